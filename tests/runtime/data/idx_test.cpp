#include "runtime/data/idx.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using testing::cut;
using testing::error_of;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_bytes;
using testing::image_file;
using testing::joined;
using testing::label_file;
using testing::TempFolder;
using testing::write_file;

std::string refusal(const Bytes& bytes, IdxKind kind = IdxKind::images) {
  return error_of(Code::invalid, [&] { parse_idx(bytes, "some-file", kind); });
}

TEST(Idx, ReadsImagesAsTheyStandInThePlainFile) {
  const IdxFile file = parse_idx(image_file(5), "some-file", IdxKind::images);
  EXPECT_EQ(file.header, (IdxHeader{IdxKind::images, 5, 4, 3}));
  EXPECT_EQ(file.content, testing::counting(60));
}

TEST(Idx, ReadsTheSameFromGzipWhateverItsLevel) {
  for (const int level : {0, 1, 6, 9}) {
    const IdxFile file = parse_idx(gzip(image_file(5000), level), "some-file", IdxKind::images);
    EXPECT_EQ(file.content, testing::counting(60000)) << "level " << level;
  }
}

TEST(Idx, ReadsGzipOfSeveralMembersAsOneFile) {
  const Bytes whole = image_file(3);
  for (std::size_t at = 0; at <= whole.size(); ++at) {
    const Bytes front = cut(whole, at);
    const Bytes back(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end());
    const IdxFile file = parse_idx(joined(gzip(front), gzip(back)), "some-file", IdxKind::images);
    EXPECT_EQ(file.content, testing::counting(36)) << "cut at " << at;
  }
}

TEST(Idx, RefusesAFileCutAtAnyByte) {
  const Bytes whole = image_file(3);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string why = refusal(cut(whole, size));
    EXPECT_THAT(why, AllOf(HasSubstr("some-file"), HasSubstr(size == 0 ? "is empty" : "cut short"))) << size;
  }
}

TEST(Idx, RefusesGzipCutAtAnyByte) {
  const Bytes whole = gzip(image_file(3));
  for (std::size_t size = 0; size < whole.size(); ++size) refusal(cut(whole, size));
}

TEST(Idx, RefusesOrReadsRightlyGzipWithAnyBitFlipped) {
  const Bytes whole = gzip(image_file(20));
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes damaged = whole;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    try {
      const IdxFile file = parse_idx(damaged, "some-file", IdxKind::images);
      EXPECT_EQ(file.content, testing::counting(240)) << "bit " << bit;  // time stamp, system: nothing that counts
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid) << error.what();
    }
  }
}

TEST(Idx, NamesTheMagicItFoundAndTheOneItWants) {
  EXPECT_THAT(refusal(idx_bytes({0x12345678, 1, 1, 1}, {0})), AllOf(HasSubstr("0x12345678"), HasSubstr("0x00000803")));
}

TEST(Idx, KnowsWhatStandsInThePlaceOfAFile) {
  const auto of_text = [](std::string_view text) { return Bytes(text.begin(), text.end()); };
  EXPECT_THAT(refusal(gzip(gzip(image_file(3)))), HasSubstr("packed twice"));
  EXPECT_THAT(refusal(of_text("PK\x03\x04 and more")), HasSubstr("a zip archive"));
  EXPECT_THAT(refusal(of_text("<!DOCTYPE html><title>404</title>")), HasSubstr("a web page"));
  EXPECT_THAT(refusal(of_text("version https://git-lfs.github.com/spec/v1\n")), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal(idx_bytes({0x0d03, 1, 1, 1}, {0})), HasSubstr("other numbers or dimensions"));
}

TEST(Idx, SaysThatImagesAndLabelsAreSwapped) {
  EXPECT_THAT(refusal(label_file(9), IdxKind::images), HasSubstr("holds labels, not images"));
  EXPECT_THAT(refusal(image_file(9), IdxKind::labels), HasSubstr("holds images, not labels"));
}

TEST(Idx, RefusesCountsThatAreNotTheBytesPresent) {
  const Bytes content(120);
  for (const std::uint32_t count : {9U, 11U, 1U, 1'000'000U}) refusal(idx_bytes({0x803, count, 4, 3}, content));
  EXPECT_THAT(refusal(idx_bytes({0x803, 9, 4, 3}, content)), HasSubstr("12 bytes more"));
  EXPECT_THAT(refusal(gzip(idx_bytes({0x803, 9, 4, 3}, content))), HasSubstr("more bytes than the header announces"));
}

TEST(Idx, RefusesZeroExtents) {
  for (const auto& head :
       std::vector<std::vector<std::uint32_t>>{{0x803, 0, 4, 3}, {0x803, 4, 0, 3}, {0x803, 4, 3, 0}}) {
    EXPECT_THAT(refusal(idx_bytes(head, {})), HasSubstr("must be above 0"));
  }
}

TEST(Idx, RefusesExtentsWhoseProductWrapsAround) {
  refusal(idx_bytes({0x803, 0xffffffff, 0xffffffff, 0xffffffff}, Bytes(100)));
  refusal(idx_bytes({0x803, 1U << 31, 1U << 31, 4}, {}));  // 2^64
  refusal(gzip(idx_bytes({0x803, 1U << 31, 1U << 31, 4}, {})));
}

TEST(Idx, RefusesToAllocateWhatASmallGzipFileCannotHold) {
  EXPECT_THAT(refusal(gzip(idx_bytes({0x803, 1'000'000, 28, 28}, Bytes(100)))), HasSubstr("cannot hold"));
}

TEST(Idx, UnpacksNoMoreOfAGzipBombThanItsHeaderAnnounces) {
  const Bytes bomb = gzip(idx_bytes({0x803, 10, 4, 3}, Bytes(32 << 20)), 9);
  ASSERT_LT(bomb.size(), 100'000U);
  EXPECT_THAT(refusal(bomb), HasSubstr("more bytes than the header announces"));
}

TEST(Idx, RefusesAGzipFileThatAnnouncesMoreThanAnyIsTaken) {
  const Bytes head = idx_bytes({0x803, 0x7fffffff, 28, 28}, Bytes(64 << 20));
  EXPECT_THAT(refusal(gzip(head, 9)), HasSubstr("more than the"));
  EXPECT_THAT(refusal(gzip(idx_bytes({0x801, 0xffffffff}, Bytes(100))), IdxKind::labels), HasSubstr("cannot hold"));
}

TEST(Idx, RefusesGzipWhoseOwnLengthOrChecksumIsWrong) {
  for (const std::size_t from_end : {1U, 5U}) {  // the length, the checksum
    Bytes bytes = gzip(image_file(30));
    bytes[bytes.size() - from_end] ^= 0x40;
    EXPECT_THAT(refusal(bytes), HasSubstr("damaged gzip data"));
  }
}

TEST(Idx, RefusesTrailingBytes) {
  EXPECT_THAT(refusal(joined(image_file(3), {0})), HasSubstr("1 bytes more"));
  EXPECT_THAT(refusal(joined(gzip(image_file(3)), {1, 2, 3})), HasSubstr("damaged gzip data"));
  EXPECT_THAT(refusal(joined(gzip(image_file(3)), Bytes(512))), HasSubstr("damaged gzip data"));
  EXPECT_THAT(refusal(joined(gzip(image_file(3)), gzip(Bytes(1)))), HasSubstr("more bytes than the header announces"));
}

TEST(Idx, EveryRefusalOfContentTellsACure) {
  for (const Bytes& bytes :
       {Bytes{}, cut(image_file(3), 10), joined(image_file(3), {0}), cut(gzip(image_file(3)), 30)}) {
    EXPECT_THAT(refusal(bytes), AllOf(HasSubstr("some-file: "), HasSubstr("--set data.source=generated")));
  }
}

TEST(Idx, CheckAgreesWithReadOnGoodAndBrokenFiles) {
  const TempFolder folder;
  const std::string name = folder.file("file");
  const Bytes plain = image_file(7), packed = gzip(plain);
  for (const Bytes& good :
       {plain, packed, joined(gzip(cut(plain, 20)), gzip(Bytes(plain.begin() + 20, plain.end())))}) {
    write_file(name, good);
    EXPECT_EQ(check_idx(name, IdxKind::images), read_idx(name, IdxKind::images).header);
  }
  for (const Bytes& bad :
       {Bytes{}, cut(plain, 9), cut(plain, 99), joined(plain, {1}), cut(packed, 40), gzip(cut(plain, 50)),
        joined(packed, {0, 0, 0, 0}), gzip(joined(plain, {1, 2})), label_file(7)}) {
    write_file(name, bad);
    const std::string why = error_of(Code::invalid, [&] { check_idx(name, IdxKind::images); });
    EXPECT_EQ(why, error_of(Code::invalid, [&] { read_idx(name, IdxKind::images); }));
  }
}

TEST(Idx, SaysThatAFileIsMissing) {
  const TempFolder folder;
  EXPECT_THAT(error_of(Code::invalid, [&] { read_idx(folder.file("none"), IdxKind::images); }),
              AllOf(HasSubstr(folder.file("none")), HasSubstr("No such file")));
}

TEST(Idx, RefusesAFolderOrAPipeInsteadOfAFile) {
  const TempFolder folder;
  EXPECT_THAT(error_of(Code::invalid, [&] { read_idx(folder.path().string(), IdxKind::images); }),
              HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of(Code::invalid, [&] { read_idx(folder.file("pipe"), IdxKind::images); }),
              HasSubstr("not a regular file"));
}

TEST(Idx, BlamesTheEnvironmentWhenAFileMayNotBeRead) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TempFolder folder;
  write_file(folder.file("secret"), image_file(1));
  std::filesystem::permissions(folder.file("secret"), std::filesystem::perms::none);
  EXPECT_THAT(error_of(Code::environment, [&] { read_idx(folder.file("secret"), IdxKind::images); }),
              HasSubstr("permissions"));
}

TEST(IdxWriter, WritesWhatTheReaderReads) {
  const TempFolder folder;
  write_idx(folder.file("images"), {IdxKind::images, 5, 4, 3}, testing::counting(60));
  write_idx(folder.file("labels"), {IdxKind::labels, 5}, testing::counting(5));
  EXPECT_EQ(testing::read_file(folder.file("images")), image_file(5));
  EXPECT_EQ(read_idx(folder.file("labels"), IdxKind::labels).content, testing::counting(5));
}

TEST(IdxWriter, ReplacesAFileWholeAndLeavesNothingElse) {
  const TempFolder folder;
  write_file(folder.file("images"), Bytes(1000, 7));
  write_idx(folder.file("images"), {IdxKind::images, 5, 4, 3}, testing::counting(60));
  EXPECT_EQ(testing::read_file(folder.file("images")), image_file(5));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder.path()}, {}), 1);
}

TEST(IdxWriter, LetsWritersOfOneFileRunAtOnce) {
  const TempFolder folder;
  {
    std::vector<std::jthread> writers;
    for (int writer = 0; writer < 4; ++writer) {
      writers.emplace_back([&] {
        for (int i = 0; i < 20; ++i)
          write_idx(folder.file("images"), {IdxKind::images, 500, 4, 3}, testing::counting(6000));
      });
    }
  }
  EXPECT_EQ(read_idx(folder.file("images"), IdxKind::images).content, testing::counting(6000));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator{folder.path()}, {}), 1);
}

TEST(IdxWriter, NamesTheFileThatCannotBeWritten) {
  EXPECT_THAT(error_of(Code::environment,
                       [] {
                         write_idx("/nowhere/at/all", {IdxKind::labels, 1}, Bytes{1});
                       }),
              HasSubstr("/nowhere/at/all"));
}

}  // namespace
}  // namespace troupe
