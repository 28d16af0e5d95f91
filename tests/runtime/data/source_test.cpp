#include "runtime/data/source.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/data/idx.hpp"
#include "tests/runtime/data/corpus.hpp"
#include "tests/support/batches.hpp"

namespace troupe {
namespace {

using testing::Bytes;
using testing::error_of;
using ::testing::HasSubstr;

IdxFile images_of(std::uint32_t count) { return parse_idx(testing::image_file(count), "images", IdxKind::images); }
IdxFile labels_of(const Bytes& labels) {
  return parse_idx(testing::idx_bytes({0x801, static_cast<std::uint32_t>(labels.size())}, labels), "labels",
                   IdxKind::labels);
}

ByteImages thirty_images() {
  return {idx_image_set(images_of(30), labels_of(testing::counting(30, 10)), 10), {}, true};
}

const Shape kImageShape{{4, 3, 1}};  // of testing::image_file

/// Of samples by their numbers.
void fill_rows(const Source& source, const std::vector<std::uint64_t>& indices, const BatchLayout& batch,
               std::byte* slot) {
  std::vector<Sample> samples;
  for (const std::uint64_t index : indices) samples.push_back({.index = index});
  fill_now(source, {samples, 0, &batch, slot});
}

/// A slot with something in it that must not survive.
std::vector<std::byte> used_slot(const BatchLayout& batch) {
  return std::vector<std::byte>(batch.size_bytes(), std::byte{0x5a});
}

TEST(ByteImages, GathersSamplesAsFractionsOf255) {
  const ByteImages source = thirty_images();
  const BatchLayout batch = testing::image_batch(3, kImageShape);
  auto slot = used_slot(batch);
  const std::vector<std::uint64_t> indices{29, 0, 7};
  fill_rows(source, indices, batch, slot.data());
  const auto* inputs = reinterpret_cast<const float*>(slot.data());
  const auto* labels = testing::labels_in(batch, slot.data());
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < 12; ++i) {
      EXPECT_EQ(inputs[row * 12 + i], static_cast<float>((indices[row] * 12 + i) % 251) / 255.0F);
    }
    EXPECT_EQ(labels[row], static_cast<std::int32_t>(indices[row] % 10));
  }
}

TEST(ByteImages, RoundsToBf16Once) {
  const ByteImages source = thirty_images();
  const BatchLayout batch = testing::image_batch(1, kImageShape, DType::bf16);
  auto slot = used_slot(batch);
  for (std::uint64_t index = 0; index < 30; ++index) {
    fill_rows(source, {index}, batch, slot.data());
    const auto* inputs = reinterpret_cast<const std::uint16_t*>(slot.data());
    for (std::size_t i = 0; i < 12; ++i)
      EXPECT_EQ(inputs[i], to_bf16(static_cast<float>((index * 12 + i) % 251) / 255.0F));
  }
}

TEST(ByteImages, LeavesRowsWithoutASampleAlone) {
  const ByteImages source = thirty_images();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const BatchLayout batch = testing::image_batch(4, kImageShape, dtype);
    auto slot = used_slot(batch);
    const std::vector<std::uint64_t> indices{3};
    fill_rows(source, indices, batch, slot.data());
    const std::uint64_t row_bytes = 12 * size_bytes(dtype);
    EXPECT_TRUE(std::all_of(slot.begin() + static_cast<std::ptrdiff_t>(row_bytes),
                            slot.begin() + static_cast<std::ptrdiff_t>(4 * row_bytes),
                            [](std::byte b) { return b == std::byte{0x5a}; }));
    const auto* labels = testing::labels_in(batch, slot.data());
    EXPECT_EQ((std::vector<std::int32_t>{labels, labels + 4}),
              (std::vector<std::int32_t>{3, 0x5a5a5a5a, 0x5a5a5a5a, 0x5a5a5a5a}));
  }
}

TEST(ByteImages, FillsTheFieldsAloneThatABatchHas) {
  const ByteImages source = thirty_images();
  const BatchLayout labels{3, {{"label", {}, DType::i32}}};
  auto slot = used_slot(labels);
  fill_rows(source, {7, 28, 9}, labels, slot.data());
  const auto* found = reinterpret_cast<const std::int32_t*>(slot.data());
  EXPECT_EQ((std::vector<std::int32_t>{found, found + 4}), (std::vector<std::int32_t>{7, 8, 9, 0x5a5a5a5a}));
}

TEST(ByteImages, RefusesWhatDoesNotFitTheBatch) {
  const ByteImages source = thirty_images();
  const BatchLayout batch = testing::image_batch(2, kImageShape);
  auto slot = used_slot(batch);
  const std::vector<std::uint64_t> many{1, 2, 3}, stray{30};
  EXPECT_THAT(error_of(Code::invalid, [&] { fill_rows(source, many, batch, slot.data()); }), HasSubstr("batch of 2"));
  EXPECT_THAT(error_of(Code::invalid, [&] { fill_rows(source, stray, batch, slot.data()); }),
              HasSubstr("sample 30 of 30"));
  EXPECT_THAT(error_of(Code::invalid, [&] { fill_rows(source, {}, testing::image_batch(2, {{13}}), slot.data()); }),
              HasSubstr("a batch reads image [13] f32, the data set has image [4, 3, 1] f32, label [] i32"));
  const BatchLayout boxes{2, {{"boxes", {{4}}, DType::f32}}};
  EXPECT_THAT(error_of(Code::invalid, [&] { fill_rows(source, {}, boxes, slot.data()); }),
              HasSubstr("a batch reads boxes [4] f32"));
}

TEST(IdxImageSet, RefusesImagesAndLabelsOfDifferentCount) {
  EXPECT_THAT(error_of(Code::invalid,
                       [] {
                         idx_image_set(images_of(3), labels_of({1, 2}), 10);
                       }),
              HasSubstr("do not belong together"));
}

TEST(IdxImageSet, NamesTheByteOfALabelThatIsNoClass) {
  EXPECT_THAT(error_of(Code::invalid,
                       [] {
                         idx_image_set(images_of(3), labels_of({1, 10, 2}), 10);
                       }),
              HasSubstr("labels: byte 9: label 10"));
}

TEST(CountClasses, IsOneMoreThanTheLargestLabelOfBothFiles) {
  EXPECT_EQ(count_classes(labels_of({1, 2}), labels_of({0})), 3U);
  EXPECT_EQ(count_classes(labels_of({1, 2}), labels_of({9})), 10U);
  EXPECT_EQ(count_classes(labels_of({0}), labels_of({0})), 2U);
  EXPECT_EQ(count_classes(labels_of(testing::counting(100, 47)), labels_of({3})), 47U);
  Bytes from_one = testing::counting(100, 26);
  for (std::uint8_t& label : from_one) ++label;
  EXPECT_EQ(count_classes(labels_of(from_one), labels_of({3})), 27U);
}

TEST(CountClasses, TakesAStrayByteForDamage) {
  EXPECT_THAT(error_of(Code::invalid,
                       [] {
                         count_classes(labels_of({1, 2, 200, 3}), labels_of({1}));
                       }),
              HasSubstr("labels: byte 10: label 200"));
}

std::vector<std::uint64_t> order(std::uint64_t count_samples, std::uint64_t seed, std::uint64_t first,
                                 std::size_t count) {
  std::vector<Sample> samples(count);
  SampleOrder{count_samples, seed}.fill(first, samples);
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(samples[i].epoch, (first + i) / count_samples);
    out.push_back(samples[i].index);
  }
  return out;
}

TEST(SampleOrder, ShowsEverySampleOnceAnEpoch) {
  for (const std::uint64_t count : {1U, 2U, 3U, 10U, 257U, 6000U}) {
    for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
      auto drawn = order(count, 7, epoch * count, count);
      std::sort(drawn.begin(), drawn.end());
      std::vector<std::uint64_t> all(count);
      std::iota(all.begin(), all.end(), 0U);
      EXPECT_EQ(drawn, all) << count << " samples, epoch " << epoch;
    }
  }
}

TEST(SampleOrder, IsTheSameHoweverItIsCutIntoIntervals) {
  constexpr std::uint64_t kSamples = 101, kTotal = 1000;
  const auto whole = order(kSamples, 7, 0, kTotal);
  std::mt19937 dice{1};
  SampleOrder pieces{kSamples, 7};
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t first = dice() % kTotal;
    std::vector<Sample> piece(dice() % (kTotal - first + 1));  // many cross the edges of epochs, in any order
    pieces.fill(first, piece);
    ASSERT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(first),
                           [](const Sample& sample, std::uint64_t index) { return sample.index == index; }))
        << first;
  }
}

TEST(SampleOrder, DiffersFromEpochToEpochAndFromSeedToSeed) {
  const auto first = order(1000, 7, 0, 1000);
  EXPECT_NE(first, order(1000, 7, 1000, 1000));
  EXPECT_NE(first, order(1000, 8, 0, 1000));
}

TEST(SampleOrder, PutsEverySampleEverywhereEquallyOften) {
  constexpr std::uint64_t kSamples = 8, kEpochs = 8000;
  const auto drawn = order(kSamples, 3, 0, kSamples * kEpochs);
  std::vector<std::vector<int>> counts(kSamples, std::vector<int>(kSamples));
  for (std::size_t i = 0; i < drawn.size(); ++i) ++counts[i % kSamples][drawn[i]];
  for (const auto& place : counts) {
    for (const int count : place) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
  }
}

TEST(SampleOrder, ReachesFarPositions) {
  const std::uint64_t far = (std::uint64_t{1} << 60) + 5;
  for (const std::uint64_t sample : order(60000, 7, far, 100)) EXPECT_LT(sample, 60000U);
}

TEST(SampleOrder, RefusesASetWithoutSamples) {
  error_of(Code::invalid, [] { SampleOrder(0, 7); });
}

}  // namespace
}  // namespace troupe
