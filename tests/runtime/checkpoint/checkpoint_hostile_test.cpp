// Checkpoint files that were forged or exchanged: refused with the reason, and at low cost.

#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/store.hpp"

#include <xxhash.h>

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal(Code code, const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

std::vector<std::byte> header_file(std::uint64_t length, std::string_view json) {
  std::vector<std::byte> bytes(8 + json.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + 8, json.data(), json.size());
  return bytes;
}

/// The error about a header, with `data_bytes` after it.
std::string refusal_of(const std::string& json, std::uint64_t data_bytes) {
  const std::vector<std::byte> bytes = header_file(json.size(), json);
  return refusal(Code::corrupt, [&] { parse_safetensors(bytes, bytes.size() + data_bytes, "f"); });
}

/// An entry of `count` bytes; the offsets as they are written.
std::string entry(const std::string& name, const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
}

TEST(HostileHeader, OfAnyImpossibleLengthIsRefusedBeforeItIsRead) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  for (const std::uint64_t length : {kMost, kMost - 1, ~std::uint64_t{0}, ~std::uint64_t{7}, std::uint64_t{1} << 32}) {
    const std::vector<std::byte> bytes = header_file(length, "{}");
    EXPECT_THAT(
        refusal(Code::corrupt, [&] { parse_safetensors(bytes, bytes.size(), "f"); }),
        AllOf(StartsWith("f: a header of " + std::to_string(length)), HasSubstr("no safetensors file has more")));
  }
  const std::vector<std::byte> longer = header_file(3, "{}");
  EXPECT_THAT(refusal(Code::corrupt, [&] { parse_safetensors(longer, longer.size(), "f"); }),
              HasSubstr("it was cut off"));
  for (std::size_t size = 0; size < 8; ++size) {
    const std::vector<std::byte> bytes(size);
    EXPECT_THAT(refusal(Code::corrupt, [&] { parse_safetensors(bytes, size, "f"); }), HasSubstr("too short"));
  }
}

TEST(HostileHeader, WithTensorsThatDoNotJoinIsRefused) {
  const auto two = [](const std::string& first, const std::string& second, std::uint64_t data_bytes) {
    return refusal_of("{" + entry("a", "4", first) + "," + entry("b", "4", second) + "}", data_bytes);
  };
  EXPECT_EQ(two("0,4", "4,8", 8), "nothing was thrown");
  EXPECT_THAT(two("0,4", "2,6", 6), HasSubstr("\"b\" begins at byte 2 of the data, where the one before ends at 4"));
  EXPECT_THAT(two("0,4", "0,4", 4), HasSubstr("they overlap or leave a gap"));
  EXPECT_THAT(two("0,4", "5,9", 9), HasSubstr("they overlap or leave a gap"));
  EXPECT_THAT(two("1,5", "5,9", 9), HasSubstr("\"a\" begins at byte 1"));
  EXPECT_THAT(two("0,4", "4,8", 7), HasSubstr("leaves the file, which was cut off"));
  EXPECT_THAT(two("0,4", "4,8", 9), HasSubstr("its tensors take 8 bytes, it has 9"));
}

TEST(HostileHeader, WithNumbersThatAreNoneOfItsOwnIsRefused) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return refusal_of("{" + entry("a", shape, offsets) + "}", 4);
  };
  EXPECT_THAT(one("4", "-4,0"), HasSubstr("a negative number"));
  EXPECT_THAT(one("-1", "0,4"), HasSubstr("a negative number"));
  EXPECT_THAT(one("4.0", "0,4"), HasSubstr("a broken number"));
  EXPECT_THAT(one("4", "0,1e3"), HasSubstr("a broken number"));
  EXPECT_THAT(one("4", "0,18446744073709551616"), HasSubstr("a broken number"));
  EXPECT_THAT(one("4", "0,18446744073709551615"), HasSubstr("is said to take 18446744073709551615"));
  EXPECT_THAT(one("4", "4"), HasSubstr("lacks its dtype, shape or data_offsets"));
  EXPECT_THAT(one("4", "0,4,8"), HasSubstr("a number where none belongs"));
  EXPECT_THAT(one("4294967296,4294967296", "0,0"), HasSubstr("more elements than can be counted"));
  std::string dimensions = "1";
  for (int i = 0; i < 64; ++i) dimensions += ",1";
  EXPECT_THAT(one(dimensions, "0,1"), HasSubstr("too many dimensions"));
}

TEST(HostileHeader, WithANameTwiceIsRefused) {
  EXPECT_THAT(refusal_of("{" + entry("a", "4", "0,4") + "," + entry("a", "4", "4,8") + "}", 8),
              HasSubstr("two tensors are named \"a\""));
  EXPECT_THAT(refusal_of(R"({"a":{"dtype":"U8","shape":[4],"shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("\"a\" has its \"shape\" twice"));
}

TEST(HostileHeader, OfAnyShapeButItsOwnIsRefused) {
  for (const char* json :
       {"", "null", "3", "\"a\"", "[]", "{}}", R"({"a":[]})", R"({"a":{"dtype":{}}})", R"({"a":null})",
        R"({"__metadata__":{"a":1}})", R"({"__metadata__":{"a":{}}})", "{\"\xff\":{}}", R"({"a":{}})"}) {
    EXPECT_THAT(refusal_of(json, 0), StartsWith("f: the header is none of a safetensors file: ")) << json;
  }
  for (const char bracket : {'[', '{'}) {
    EXPECT_THAT(refusal_of(std::string(1 << 20, bracket), 0), StartsWith("f: the header is none")) << bracket;
  }
}

/// A manifest with whatever `body`; its checksum agrees.
std::string sealed(const std::string& body) {
  std::array<char, 64> line{};
  std::snprintf(line.data(), line.size(), "troupe-checkpoint 1 %016llx\n",
                static_cast<unsigned long long>(XXH3_64bits(body.data(), body.size())));
  return line.data() + body;
}

class HostileManifest : public ::testing::Test {
 protected:
  HostileManifest() {
    manifest.shapes = {{"a", {4}}};
    manifest.files = {{"rank-00000.safetensors", 100, 7, {{.key = "a", .tensor = "a", .count = 4, .hash = 9}}}};
  }
  /// What is said when `from` of the good one's text is `to`.
  std::string refusal_with(const std::string& from, const std::string& to) const {
    std::string text = format_manifest(manifest);
    text.erase(0, text.find('\n') + 1);
    const std::size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << text;
    return refusal(Code::corrupt, [&] { parse_manifest(sealed(text.replace(at, from.size(), to)), "m"); });
  }
  CheckpointManifest manifest{.steps = 5, .samples = 50, .seed = 7, .model = "mlp"};
};

TEST_F(HostileManifest, IsReadWhenNothingIsWrong) {
  EXPECT_EQ(refusal_with("\"steps\": 5", "\"steps\": 6"), "nothing was thrown");
}

TEST_F(HostileManifest, NamesNoFileElsewhere) {
  for (const char* name : {"../rank-00000.safetensors", "/etc/passwd", "a/b", ".", "..", ".hidden", ""})
    EXPECT_THAT(refusal_with("rank-00000.safetensors", name), HasSubstr("is not the name of a checkpoint's file"))
        << name;
}

TEST_F(HostileManifest, OfAnyWrongNumberIsRefused) {
  EXPECT_THAT(refusal_with("\"count\": 4", "\"count\": 72057594037927936"), HasSubstr("more than can be counted"));
  EXPECT_THAT(refusal_with("\"count\": 4", "\"count\": 26"), HasSubstr("are larger than the file"));
  EXPECT_THAT(refusal_with("\"first\": 0", "\"first\": 72057594037927936"), HasSubstr("more than can be counted"));
  EXPECT_THAT(refusal_with("\"part\": \"parameters\"", "\"part\": \"state9\""),
              HasSubstr("is not a part of a checkpoint"));
  EXPECT_THAT(refusal_with("0000000000000009", "000000000000000g"), HasSubstr("is not a hash"));
  EXPECT_THAT(refusal_with("\"steps\": 5", "\"steps\": \"5\""), StartsWith("m: not as it was written"));
  EXPECT_THAT(refusal_with("\"seed\"", "\"sead\""), StartsWith("m: not as it was written"));
}

TEST_F(HostileManifest, OfEndlessBracketsIsRefusedAtOnce) {
  for (const char bracket : {'[', '{'}) {
    const std::string text = sealed(std::string(1 << 20, bracket));
    EXPECT_THAT(refusal(Code::corrupt, [&] { parse_manifest(text, "m"); }), StartsWith("m: ")) << bracket;
  }
  EXPECT_THAT(refusal(Code::corrupt, [&] { parse_manifest(sealed(std::string(100, '[')), "m"); }),
              HasSubstr("nested more than 8 deep"));
  EXPECT_THAT(refusal(Code::corrupt, [&] { parse_checkpoint_file(std::string(100, '[')); }), HasSubstr("8 deep"));
}

TEST_F(HostileManifest, OfMoreBytesThanAnyHasIsRefused) {
  EXPECT_THAT(refusal(Code::corrupt, [&] { parse_manifest(sealed(std::string(kMaxManifestBytes, ' ')), "m"); }),
              HasSubstr("none has more than"));
}

TEST_F(HostileManifest, OfANewerVersionNamesBothVersions) {
  std::string text = format_manifest(manifest);
  text.replace(text.find(" 1 "), 3, " 2 ");
  EXPECT_THAT(refusal(Code::unsupported, [&] { parse_manifest(text, "m"); }),
              AllOf(HasSubstr("a checkpoint of version 2; this build reads version 1"), HasSubstr("use the build")));
}

TEST(MixedUpCheckpoint, WithItsRanksFilesSwappedIsNotWhole) {
  std::string pattern = ::testing::TempDir() + "/checkpoints-XXXXXX";
  const fs::path folder = ::mkdtemp(pattern.data());
  const CheckpointStore store(folder.string());
  Blocking blocking = Blocking::on_thread("test");
  const CheckpointId id{1, 10};
  std::array<float, 10> numbers{};
  std::iota(numbers.begin(), numbers.end(), 0.F);
  CheckpointManifest manifest{.steps = 10};
  manifest.shapes = {{"a", {10}}};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const auto half = std::span(numbers).subspan(rank * 5, 5);
    std::array piece{PieceToWrite{{.tensor = "a", .first = rank * 5, .count = 5}, {10}, std::as_bytes(half)}};
    manifest.files.push_back(store.write(blocking, id, rank, piece));
  }
  store.publish(blocking, id, manifest);
  ASSERT_TRUE(store.verify(blocking, id).ok()) << store.verify(blocking, id).text();
  const fs::path first = store.folder_of(id) + "/rank-00000.safetensors";
  const fs::path second = store.folder_of(id) + "/rank-00001.safetensors";
  fs::rename(first, folder / "aside");
  fs::rename(second, first);
  fs::rename(folder / "aside", second);
  const Status found = store.verify(blocking, id);
  EXPECT_EQ(found.code(), Code::corrupt);
  EXPECT_THAT(std::string{found.text()}, AllOf(HasSubstr("rank-00000.safetensors"), HasSubstr("another rank's")));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace troupe::testing
