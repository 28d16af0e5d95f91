#include "runtime/data/shards.hpp"

#include <gmock/gmock.h>

#include <cstdio>
#include <numeric>

#include "runtime/data/find_data.hpp"
#include "tests/runtime/data/encoded.hpp"
#include "tests/runtime/data/shard_files.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using testing::error_of;
using ::testing::HasSubstr;
using testing::IndexEntries;
using testing::joined;
using testing::shard_index;
using testing::TarFile;
using testing::write_file;

constexpr std::uint32_t kSide = 16;

Bytes numbered_png(unsigned number) {
  return testing::png_of(testing::smooth_image(kSide, kSide, 3, number), kSide, kSide, 3);
}

class Shards : public ::testing::Test {
 protected:
  /// Writes a shard of `count` images, whose labels go round through three classes.
  void write_shard(const std::string& name, unsigned count, unsigned first = 0) {
    TarFile tar;
    IndexEntries entries;
    for (unsigned i = first; i < first + count; ++i) {
      const Bytes png = numbered_png(i);
      entries.push_back({tar.add(std::to_string(i) + ".png", png), static_cast<std::uint32_t>(png.size()),
                         static_cast<std::int32_t>(i % 3)});
      const std::string label = std::to_string(i % 3);
      tar.add(std::to_string(i) + ".cls", Bytes(label.begin(), label.end()));
    }
    write_file(folder.path() / name, tar.finish());
    write_file(folder.path() / (name + ".index"), shard_index(entries, tar.finish().size()));
  }
  DataRequest request() const { return {.source = "shards", .path = folder.path().string(), .path_is_set = true}; }
  testing::TempFolder folder;
};

TEST_F(Shards, GiveImagesAndLabelsInTheOrderOfTheirNames) {
  write_shard("train-000001.tar", 4, 5);
  write_shard("train-000000.tar", 5);
  write_shard("val-000000.tar", 2);
  const DataPlace place = find_data(request());
  EXPECT_THAT(place.description, HasSubstr("9 training, 2 test samples, 16 x 16 x 3, 3 classes"));
  const DataSet set = read_data(place);
  const BatchLayout layout{1, set.train->fields()};
  std::vector<std::byte> slot(layout.size_bytes());
  for (std::uint64_t i = 0; i < 9; ++i) {
    const Sample sample{i, 0};
    fill_now(*set.train, {{&sample, 1}, 7, &layout, slot.data()});
    const Bytes wanted = testing::smooth_image(kSide, kSide, 3, static_cast<unsigned>(i));
    const auto* image = reinterpret_cast<const float*>(slot.data() + layout.entry(kImage).offset);
    for (std::size_t at = 0; at < wanted.size(); ++at) ASSERT_EQ(image[at], static_cast<float>(wanted[at]) / 255.0F);
    EXPECT_EQ(*reinterpret_cast<const std::int32_t*>(slot.data() + layout.entry(kLabel).offset),
              static_cast<std::int32_t>(i % 3));
  }
}

TEST_F(Shards, NeedAnIndexEach) {
  write_shard("train-000000.tar", 5);
  write_shard("test-000000.tar", 3);
  std::filesystem::remove(folder.path() / "train-000000.tar.index");
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request()); }),
              AllOf(HasSubstr("train-000000.tar.index"), HasSubstr("tools/make-shards --index")));
}

TEST_F(Shards, NoticeAnIndexOfAnotherShard) {
  write_shard("train-000000.tar", 5);
  write_shard("test-000000.tar", 3);
  std::filesystem::copy_file(folder.path() / "train-000000.tar.index", folder.path() / "test-000000.tar.index",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request()); }), HasSubstr("belongs to a shard of"));
}

TEST_F(Shards, NoticeAnIndexThatLies) {
  TarFile tar;
  const Bytes png = numbered_png(1);
  const std::uint64_t first = tar.add("1.png", png), second = tar.add("2.png", png);
  const auto size = static_cast<std::uint32_t>(png.size());
  write_file(folder.path() / "shard.tar", tar.finish());
  const auto fault_of = [&](const ShardEntry& entry) {
    write_file(folder.path() / "shard.tar.index", shard_index({entry}, tar.finish().size()));
    ShardFiles files;
    files.add(folder.file("shard.tar"));
    std::vector<std::uint8_t> bytes;
    return files.read(0, bytes);
  };
  EXPECT_EQ(fault_of({first, size, 0}), "");
  EXPECT_EQ(fault_of({second, size, 0}), "");
  EXPECT_THAT(fault_of({first + 1, size, 0}), HasSubstr("no member of the archive begins there"));
  EXPECT_THAT(fault_of({second, size - 1, 0}), HasSubstr("the archive's member has"));
}

TEST_F(Shards, MayBeInTheFormatOfTheSeventhEdition) {
  Bytes tar(512);
  const Bytes png = numbered_png(1);
  const auto size = static_cast<std::uint32_t>(png.size());
  const auto put = [&](std::size_t at, const char* format, unsigned number) {
    std::snprintf(reinterpret_cast<char*>(tar.data()) + at, 13, format, number);
  };
  put(0, "%u.png", 1);
  put(124, "%11o ", size);
  std::fill_n(tar.begin() + 148, 8, std::uint8_t{' '});
  put(148, "%6o", std::accumulate(tar.begin(), tar.end(), 0U));
  write_file(folder.path() / "shard.tar", joined(tar, png));
  write_file(folder.path() / "shard.tar.index", shard_index({{512, size, 0}}, tar.size() + png.size()));
  ShardFiles files;
  files.add(folder.file("shard.tar"));
  std::vector<std::uint8_t> bytes;
  EXPECT_EQ(files.read(0, bytes), "");
  EXPECT_EQ(bytes, png);
}

TEST_F(Shards, ReadNoMoreOfAnIndexThanTheirMembersCanNeed) {
  write_shard("train-000000.tar", 5);
  write_shard("test-000000.tar", 3);
  std::filesystem::resize_file(folder.path() / "train-000000.tar.index", std::uint64_t{1} << 40);
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request()); }),
              HasSubstr("train-000000.tar.index: has 1099511627776 bytes, but a shard of"));
}

TEST(ShardIndex, IsRefusedWhereItIsDamagedOrImpossible) {
  const auto refusal = [](const Bytes& bytes) {
    return error_of(Code::invalid, [&] { parse_shard_index(bytes, 10'000, "shard.tar.index"); });
  };
  const IndexEntries good{{512, 100, 0}, {1536, 200, 1}};
  const Bytes whole = shard_index(good, 10'000);
  EXPECT_EQ(parse_shard_index(whole, 10'000, "shard.tar.index"), good);
  for (std::size_t size = 0; size < whole.size(); ++size) refusal(testing::cut(whole, size));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (at >= 28 && at < 32) continue;  // says nothing
    Bytes flipped = whole;
    flipped[at] ^= 4;
    refusal(flipped);
  }
  EXPECT_THAT(refusal(shard_index({{512, 100, 0}, {600, 10, 1}}, 10'000)), HasSubstr("entry 1: bytes 600 to 610"));
  EXPECT_THAT(refusal(shard_index({{100, 100, 0}}, 10'000)), HasSubstr("entry 0"));
  EXPECT_THAT(refusal(shard_index({{9'950, 100, 0}}, 10'000)), HasSubstr("do not lie in the shard"));
  EXPECT_THAT(refusal(shard_index({{~std::uint64_t{0} - 5, 100, 0}}, 10'000)), HasSubstr("do not lie in the shard"));
  EXPECT_THAT(refusal(shard_index({{512, 100, -1}}, 10'000)), HasSubstr("label -1"));
}

}  // namespace
}  // namespace troupe
