#include "runtime/data/cifar.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cstdlib>

#include "runtime/data/find_data.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using testing::cut;
using testing::error_of;
using testing::gzip;
using ::testing::HasSubstr;
using testing::joined;
using testing::TempFolder;
using testing::write_file;

constexpr std::size_t kRecord = 3073;

/// Records whose labels count from 0 to 9; plane c of image i holds i + c + its place.
Bytes records(std::size_t count) {
  Bytes bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i % 10));
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t at = 0; at < 1024; ++at) bytes.push_back(static_cast<std::uint8_t>(i + c * 50 + at));
  }
  return bytes;
}

TEST(Cifar, TurnsPlanesIntoPixels) {
  for (const Bytes& bytes : {records(12), gzip(records(12))}) {
    const ByteImageSet set = parse_cifar(bytes, "batch");
    ASSERT_EQ(set.labels.size(), 12U);
    ASSERT_EQ(set.pixels.size(), 12U * 3072);
    for (std::size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(set.labels[i], i % 10);
      for (std::size_t at = 0; at < 1024; ++at)
        for (std::size_t c = 0; c < 3; ++c)
          ASSERT_EQ(set.pixels[(i * 1024 + at) * 3 + c], static_cast<std::uint8_t>(i + c * 50 + at));
    }
  }
}

TEST(Cifar, RefusesARecordThatIsCut) {
  for (const std::size_t size : {1U, 3072U, 3074U, 9218U}) {
    EXPECT_THAT(error_of(Code::invalid, [&] { parse_cifar(cut(records(4), size), "batch"); }),
                AllOf(HasSubstr("batch: byte " + std::to_string(size / kRecord * kRecord)), HasSubstr("cut short")));
  }
  EXPECT_THAT(error_of(Code::invalid, [] { parse_cifar({}, "batch"); }), HasSubstr("batch: is empty"));
}

TEST(Cifar, NamesTheByteOfALabelThatIsNoClass) {
  Bytes bytes = records(3);
  bytes[kRecord] = 10;
  EXPECT_THAT(error_of(Code::invalid, [&] { parse_cifar(bytes, "batch"); }),
              AllOf(HasSubstr("batch: byte 3073: label 10"), HasSubstr("get-data cifar10")));
}

/// A folder with a set of few images.
class CifarFolder : public ::testing::Test {
 protected:
  void write_set(const std::filesystem::path& to) {
    for (int i = 1; i <= 5; ++i) write_file(to / ("data_batch_" + std::to_string(i) + ".bin"), records(20));
    write_file(to / "test_batch.bin.gz", gzip(records(7)));
  }
  DataRequest request(const std::filesystem::path& path) const {
    return {.source = "cifar10", .path = path.string(), .path_is_set = true};
  }
  TempFolder folder;
};

TEST_F(CifarFolder, IsFoundWithOrWithoutTheFolderOfTheArchive) {
  for (const char* inner : {"plain", "archive/cifar-10-batches-bin"}) {
    write_set(folder.path() / inner);
    const DataPlace place = find_data(request(folder.path() / std::filesystem::path{inner}.begin()->string()));
    EXPECT_THAT(place.description, HasSubstr("100 training, 7 test samples, 32 x 32 x 3, 10 classes"));
    const DataSet set = read_data(place);
    const DataFacts facts = look_at_data(place);
    EXPECT_EQ(set.train->count_samples(), facts.train_samples);
    EXPECT_EQ(set.test->count_samples(), facts.test_samples);
    EXPECT_EQ(set.train->fields(), facts.fields);
    EXPECT_EQ(set.train->size_bytes() + set.test->size_bytes(), facts.size_bytes);
  }
}

TEST_F(CifarFolder, NamesTheFilesThatAreMissing) {
  write_set(folder.path());
  std::filesystem::remove(folder.path() / "data_batch_4.bin");
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request(folder.path())); }),
              AllOf(HasSubstr("lacks data_batch_4.bin"), HasSubstr("get-data cifar10")));
}

TEST_F(CifarFolder, IsRefusedBeforeItIsReadWhereAFileIsEmptyOrHoldsTooMuch) {
  write_set(folder.path());
  const auto file = folder.path() / "data_batch_4.bin";
  std::filesystem::resize_file(file, 0);
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request(folder.path())); }), HasSubstr("is empty"));
  std::filesystem::resize_file(file, std::uintmax_t{10'000'000} * 3073);  // a hole
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(request(folder.path())); }),
              HasSubstr("has 10000000 images, more than the 200000 that are taken"));
}

TEST_F(CifarFolder, MustBeThere) {
  DataRequest absent{.source = "cifar10"};
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(absent); }),
              AllOf(HasSubstr("no data.path"), HasSubstr("TROUPE_DATA unset"), HasSubstr("get-data cifar10")));
  absent.environment = folder.path().string();
  EXPECT_THAT(error_of(Code::invalid, [&] { find_data(absent); }), HasSubstr("cifar10 (TROUPE_DATA): no such folder"));
}

TEST(RealCifar, HasTheLabelsThatArePublished) {
  const char* shared = std::getenv("TROUPE_TEST_SHARED");
  const std::string file =
      std::string{shared != nullptr ? shared : TROUPE_SHARED_FOLDER} + "/data/cifar10/data_batch_1.first4000.bin.gz";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there; TROUPE_TEST_SHARED names where data lies";
  const ByteImageSet set = read_cifar({&file, 1});
  ASSERT_EQ(set.labels.size(), 4000U);
  EXPECT_EQ(Bytes(set.labels.begin(), set.labels.begin() + 10), (Bytes{6, 9, 9, 4, 1, 1, 2, 7, 8, 3}));
  std::array<double, 3> sums{};
  for (std::size_t i = 0; i < set.pixels.size(); ++i) sums[i % 3] += set.pixels[i];
  const double pixels = static_cast<double>(set.pixels.size()) / 3 * 255;
  EXPECT_NEAR(sums[0] / pixels, 0.4914, 0.01);  // of all 50,000
  EXPECT_NEAR(sums[1] / pixels, 0.4822, 0.01);
  EXPECT_NEAR(sums[2] / pixels, 0.4465, 0.01);
}

}  // namespace
}  // namespace troupe
