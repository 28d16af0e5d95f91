#include "runtime/data/augment.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "runtime/base/random.hpp"
#include "runtime/data/byte_images.hpp"
#include "runtime/data/detail/pixel_kernels.hpp"
#include "tests/runtime/data/corpus.hpp"
#include "tests/support/batches.hpp"

namespace troupe {
namespace {

using testing::Bytes;
using testing::error_of;
using ::testing::HasSubstr;

constexpr std::uint32_t kHeight = 7, kWidth = 9, kChannels = 3, kCount = 40;
constexpr std::uint64_t kSeed = 11;

Augmentation augmentation_of(const std::vector<std::string>& written) { return parse_augmentation(written); }

Bytes random_bytes(std::size_t count, std::uint64_t key = 5) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(random_below(key, i, 256));
  return bytes;
}

ByteImageSet image_set(std::uint32_t channels = kChannels) {
  return {.height = kHeight,
          .width = kWidth,
          .channels = channels,
          .classes = 10,
          .pixels = random_bytes(std::size_t{kCount} * kHeight * kWidth * channels),
          .labels = testing::counting(kCount, 10)};
}

/// The images of `samples`, made in one batch.
std::vector<std::vector<float>> images_of(const Source& source, const std::vector<Sample>& samples) {
  const BatchLayout batch{static_cast<std::uint32_t>(samples.size()), source.fields()};
  std::vector<std::byte> slot(batch.size_bytes(), std::byte{0x5a});
  fill_now(source, {samples, kSeed, &batch, slot.data()});
  std::vector<std::vector<float>> rows;
  const std::size_t elements = batch.entry(kImage).row_elements();
  const auto* values = reinterpret_cast<const float*>(slot.data() + batch.entry(kImage).offset);
  for (std::size_t row = 0; row < samples.size(); ++row)
    rows.emplace_back(values + row * elements, values + (row + 1) * elements);
  return rows;
}

std::vector<Sample> all_samples(std::uint64_t epoch) {
  std::vector<Sample> samples;
  for (std::uint64_t i = 0; i < kCount; ++i) samples.push_back({i, epoch});
  return samples;
}

const std::vector<std::string> kEverything{"crop:2", "flip", "jitter:0.4,0.4,0.4",
                                           "normalize:0.49,0.48,0.45,0.25,0.24,0.26", "cutout:3"};

TEST(Augmentation, OfASampleIsTheSameInAnyBatch) {
  const ByteImages source{image_set(), augmentation_of(kEverything), true};
  for (const std::uint64_t epoch : {0U, 3U}) {
    const auto together = images_of(source, all_samples(epoch));
    std::vector<Sample> backwards = all_samples(epoch);
    std::reverse(backwards.begin(), backwards.end());
    const auto reversed = images_of(source, backwards);
    for (std::size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(together[i], reversed[kCount - 1 - i]);
      EXPECT_EQ(together[i], images_of(source, {{i, epoch}}).front());
    }
  }
}

TEST(Augmentation, DiffersBetweenEpochsSeedsAndSamples) {
  const Augmentation augmentation = augmentation_of({"crop:4", "flip", "cutout:3"});
  const DrawnAugmentation first = draw_augmentation(augmentation, 1, {0, 0}, 32, 32);
  int same = 0;
  for (std::uint64_t i = 1; i <= 100; ++i) {
    same += draw_augmentation(augmentation, 1, {i, 0}, 32, 32) == first;
    same += draw_augmentation(augmentation, 1, {0, i}, 32, 32) == first;
    same += draw_augmentation(augmentation, 1 + i, {0, 0}, 32, 32) == first;
  }
  EXPECT_LE(same, 1);
}

TEST(Augmentation, OfOneKindIsTheSameWhateverElseIsDone) {
  const DrawnAugmentation alone = draw_augmentation(augmentation_of({"crop:4"}), kSeed, {3, 2}, 32, 32);
  const DrawnAugmentation among =
      draw_augmentation(augmentation_of({"cutout:3", "flip", "jitter:0.4", "crop:4"}), kSeed, {3, 2}, 32, 32);
  EXPECT_EQ(alone.down, among.down);
  EXPECT_EQ(alone.right, among.right);
}

TEST(Augmentation, MovesEquallyOftenToEveryPlaceAndMirrorsHalfTheImages) {
  const Augmentation augmentation = augmentation_of({"crop:2", "flip"});
  std::map<std::pair<int, int>, int> places;
  int flipped = 0;
  constexpr int kDraws = 25'000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const DrawnAugmentation drawn = draw_augmentation(augmentation, kSeed, {i, 0}, 32, 32);
    ++places[{drawn.down, drawn.right}];
    flipped += drawn.flipped;
  }
  EXPECT_EQ(places.size(), 25U);
  for (const auto& [place, count] : places) {
    EXPECT_LE(std::max(std::abs(place.first), std::abs(place.second)), 2);
    EXPECT_NEAR(count, kDraws / 25, 160);  // five standard deviations
  }
  EXPECT_NEAR(flipped, kDraws / 2, 400);
}

TEST(Augmentation, CutsWindowsOfTheWrittenSizeOutOfThePaddedImage) {
  const ByteImageSet set = image_set();
  const Augmentation augmentation = augmentation_of({"crop:3", "flip"});
  const ByteImages source{set, augmentation, true};
  const auto images = images_of(source, all_samples(1));
  for (std::size_t i = 0; i < kCount; ++i) {
    const DrawnAugmentation drawn = draw_augmentation(augmentation, kSeed, {i, 1}, kHeight, kWidth);
    for (int y = 0; y < static_cast<int>(kHeight); ++y) {
      for (int x = 0; x < static_cast<int>(kWidth); ++x) {
        const int from_y = y + drawn.down;
        const int from_x = (drawn.flipped ? static_cast<int>(kWidth) - 1 - x : x) + drawn.right;
        const bool inside =
            from_y >= 0 && from_y < static_cast<int>(kHeight) && from_x >= 0 && from_x < static_cast<int>(kWidth);
        for (std::size_t c = 0; c < kChannels; ++c) {
          const std::size_t from =
              ((i * kHeight + static_cast<std::size_t>(from_y)) * kWidth + static_cast<std::size_t>(from_x)) *
                  kChannels +
              c;
          const float wanted = inside ? static_cast<float>(set.pixels[from]) / 255.0F : 0.0F;
          const std::size_t at = (static_cast<std::size_t>(y) * kWidth + static_cast<std::size_t>(x)) * kChannels + c;
          ASSERT_EQ(images[i][at], wanted) << "image " << i << ", " << y << ", " << x;
        }
      }
    }
  }
}

TEST(Augmentation, NormalizesEachChannelByItsOwnNumbers) {
  const ByteImageSet set = image_set();
  const ByteImages source{set, augmentation_of({"normalize:0.4,0.5,0.6,0.2,0.25,0.3"}), true};
  const auto images = images_of(source, all_samples(0));
  const double mean[] = {0.4, 0.5, 0.6}, deviation[] = {0.2, 0.25, 0.3};
  for (std::size_t i = 0; i < images[7].size(); ++i) {
    const double value = set.pixels[7 * images[7].size() + i] / 255.0;
    EXPECT_NEAR(images[7][i], (value - mean[i % 3]) / deviation[i % 3], 1e-5);
  }
}

TEST(Augmentation, LeavesTheTestSetToNoChance) {
  const ByteImageSet set = image_set();
  const ByteImages plain{set, augmentation_of({"normalize:0.5,0.25"}), false};
  const ByteImages source{set, augmentation_of({"crop:2", "flip", "jitter:1,1,1", "normalize:0.5,0.25", "cutout:5"}),
                          false};
  EXPECT_EQ(images_of(source, all_samples(0)), images_of(plain, all_samples(0)));
}

TEST(Augmentation, CutsASquareAroundTheDrawnPixelOut) {
  const Augmentation augmentation = augmentation_of({"normalize:0.5,0.25", "cutout:3"});
  const ByteImages source{image_set(), augmentation, true};
  const ByteImages whole{image_set(), augmentation_of({"normalize:0.5,0.25"}), true};
  const auto images = images_of(source, all_samples(2)), before = images_of(whole, all_samples(2));
  for (std::size_t i = 0; i < kCount; ++i) {
    const DrawnAugmentation drawn = draw_augmentation(augmentation, kSeed, {i, 2}, kHeight, kWidth);
    for (std::size_t at = 0; at < images[i].size(); ++at) {
      const int y = static_cast<int>(at / kChannels / kWidth), x = static_cast<int>(at / kChannels % kWidth);
      const bool cut = std::abs(y - drawn.cut_row) <= 1 && std::abs(x - drawn.cut_column) <= 1;
      ASSERT_EQ(images[i][at], cut ? 0.0F : before[i][at]) << "image " << i << ", " << y << ", " << x;
    }
  }
}

TEST(Augmentation, ChangesColorsAsTheDrawnFactorsSay) {
  const ByteImageSet set = image_set();
  const Augmentation augmentation = augmentation_of({"jitter:0.4,0.3,0.5"});
  const ByteImages source{set, augmentation, true};
  const auto images = images_of(source, all_samples(0));
  for (std::size_t i = 0; i < kCount; ++i) {
    const DrawnAugmentation drawn = draw_augmentation(augmentation, kSeed, {i, 0}, kHeight, kWidth);
    const std::uint8_t* const pixels = set.pixels.data() + i * images[i].size();
    const auto grey = [](const double* rgb) { return 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]; };
    double mean = 0;
    for (std::size_t p = 0; p < kHeight * kWidth; ++p) {
      const double rgb[] = {pixels[3 * p] / 1.0, pixels[3 * p + 1] / 1.0, pixels[3 * p + 2] / 1.0};
      mean += drawn.brightness * grey(rgb) / (kHeight * kWidth);
    }
    for (std::size_t p = 0; p < kHeight * kWidth; ++p) {
      double rgb[3];
      for (std::size_t c = 0; c < 3; ++c)
        rgb[c] = drawn.contrast * (drawn.brightness * pixels[3 * p + c] - mean) + mean;
      const double its_grey = grey(rgb);
      for (std::size_t c = 0; c < 3; ++c) {
        const double wanted = std::clamp(drawn.saturation * (rgb[c] - its_grey) + its_grey, 0.0, 255.0);
        ASSERT_NEAR(images[i][3 * p + c] * 255, wanted, 0.51);
      }
    }
  }
}

/// What a triangle filter gives, in double numbers and without order or haste.
double resized_value(const Bytes& from, std::uint32_t height, std::uint32_t width, const PixelWindow& window,
                     std::uint32_t to_height, std::uint32_t to_width, std::uint32_t y, std::uint32_t x, std::size_t c) {
  const auto weights = [](double first, double extent, std::uint32_t count, std::uint32_t to, std::uint32_t i) {
    std::vector<double> all(count);
    const double step = extent / to, reach = std::max(1.0, step), center = first + (i + 0.5) * step;
    double sum = 0;
    for (std::uint32_t k = 0; k < count; ++k) sum += all[k] = std::max(0.0, 1 - std::abs(k + 0.5 - center) / reach);
    for (double& weight : all) weight /= sum;
    return all;
  };
  const auto down = weights(window.top, window.height, height, to_height, y);
  const auto across = weights(window.left, window.width, width, to_width, x);
  double value = 0;
  for (std::uint32_t i = 0; i < height; ++i)
    for (std::uint32_t k = 0; k < width; ++k) value += down[i] * across[k] * from[(i * width + k) * kChannels + c];
  return value;
}

TEST(Resizer, GivesWhatTheFilterSaysForAnyWindowUpAndDown) {
  Resizer resizer;
  std::uint64_t draw = 0;
  const auto below = [&](std::uint32_t bound) {
    return static_cast<std::uint32_t>(random_below(kSeed, draw++, bound));
  };
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t height = 1 + below(24), width = 1 + below(24), to_height = 1 + below(16),
                        to_width = 1 + below(16);
    const Bytes from = random_bytes(std::size_t{height} * width * kChannels, draw);
    PixelWindow window;
    window.height = 1 + random_unit(kSeed, draw++) * (height - 1);
    window.width = 1 + random_unit(kSeed, draw++) * (width - 1);
    window.top = random_unit(kSeed, draw++) * (height - window.height);
    window.left = random_unit(kSeed, draw++) * (width - window.width);
    Bytes to(std::size_t{to_height} * to_width * kChannels);
    resizer.resize({from.data(), height, width, kChannels, std::size_t{width} * kChannels}, window, to_height, to_width,
                   kChannels, to.data());
    for (std::uint32_t y = 0; y < to_height; ++y)
      for (std::uint32_t x = 0; x < to_width; ++x)
        for (std::size_t c = 0; c < kChannels; ++c)
          ASSERT_NEAR(to[(y * to_width + x) * kChannels + c],
                      resized_value(from, height, width, window, to_height, to_width, y, x, c), 0.55)
              << height << " x " << width << " to " << to_height << " x " << to_width;
  }
}

TEST(Resizer, LeavesAnImageOfTheRightSizeAsItIs) {
  const Bytes from = random_bytes(kHeight * kWidth * kChannels);
  Bytes to(from.size());
  Resizer resizer;
  resizer.resize({from.data(), kHeight, kWidth, kChannels, kWidth * kChannels}, {0, 0, kHeight, kWidth}, kHeight,
                 kWidth, kChannels, to.data());
  EXPECT_EQ(to, from);
}

TEST(Resizer, AveragesWhatASmallImageHasNoRoomFor) {
  Bytes stripes(64 * 64);  // columns of 0 and 255, which no pixel may be picked from
  for (std::size_t i = 0; i < stripes.size(); ++i) stripes[i] = i % 2 == 0 ? 0 : 255;
  Bytes to(8 * 8);
  Resizer resizer;
  resizer.resize({stripes.data(), 64, 64, 1, 64}, {0, 0, 64, 64}, 8, 8, 1, to.data());
  for (const std::uint8_t value : to) EXPECT_NEAR(value, 127.5, 12);  // at the edges half a filter is missing
}

TEST(RandomCrop, StaysInsideAndHasTheWrittenAreaAndShape) {
  const Augmentation augmentation = augmentation_of({"random_crop:224,0.3"});
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const PixelWindow window = draw_augmentation(augmentation, kSeed, {i, 0}, 375, 500).window;
    EXPECT_GE(window.top, 0);
    EXPECT_GE(window.left, 0);
    EXPECT_LE(window.top + window.height, 375);
    EXPECT_LE(window.left + window.width, 500);
    EXPECT_GE(window.height * window.width, 0.3 * 375 * 500 * 0.99);
    EXPECT_NEAR(std::log(window.width / window.height), 0, std::log(4.0 / 3) + 0.02);
  }
}

TEST(RandomCrop, TakesTheMiddleOfAnImageThatIsTooNarrow) {
  const PixelWindow window = draw_augmentation(augmentation_of({"random_crop:32,1"}), kSeed, {0, 0}, 10, 1000).window;
  EXPECT_EQ(window.height, 10);
  EXPECT_EQ(window.width, 13);
  EXPECT_EQ(window.left, 493);
}

TEST(Augmentation, BringsImagesToTheWrittenSize) {
  const ByteImages source{image_set(), augmentation_of({"resize:4,5"}), true};
  EXPECT_EQ(source.fields().front().shape, (Shape{{4, 5, 3}}));
  EXPECT_EQ(images_of(source, all_samples(0)).front().size(), 60U);
}

TEST(Augmentation, RefusesWhatTheImagesDoNotFit) {
  EXPECT_THAT(
      error_of(Code::invalid, [] { ByteImages(image_set(), augmentation_of({"normalize:0.5,0.5,0.2,0.2"}), true); }),
      HasSubstr("normalize has 2 means, the images have 3 channels"));
  EXPECT_THAT(error_of(Code::invalid, [] { ByteImages(image_set(), augmentation_of({"crop:7"}), true); }),
              HasSubstr("crop pads by 7 pixels, the images are 7 x 9"));
}

TEST(AugmentOperations, AreAllReadAsTheirExamplesShow) {
  for (const AugmentOperation& operation : augment_operations()) {
    EXPECT_EQ(find_augment_fault(operation.example), "") << operation.name;
    EXPECT_NE(parse_augmentation(std::vector{std::string{operation.example}}), Augmentation{}) << operation.name;
  }
}

TEST(PixelKernels, OfEveryInstructionSetGiveTheSameBits) {
  const auto sets = detail::usable_pixel_kernels();
  const detail::PixelKernels& plain = *sets.front();
  for (const detail::PixelKernels* kernels : sets) {
    for (const std::size_t count : {1U, 3U, 15U, 16U, 17U, 63U, 64U, 255U, 784U}) {
      const Bytes from = random_bytes(4 * count, count);
      std::vector<float> scale(count), offset(count), wanted(4 * count), found(4 * count);
      for (std::size_t i = 0; i < count; ++i) {
        scale[i] = static_cast<float>(random_unit(1, i) * 4);
        offset[i] = static_cast<float>(random_unit(2, i) - 0.5);
      }
      plain.to_f32(wanted.data(), from.data(), scale.data(), offset.data(), count);
      kernels->to_f32(found.data(), from.data(), scale.data(), offset.data(), count);
      EXPECT_EQ(found, wanted) << kernels->name;
      std::vector<std::uint16_t> wanted_bf16(count), found_bf16(count);
      kernels->to_bf16(found_bf16.data(), from.data(), scale.data(), offset.data(), count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(found_bf16[i], to_bf16(wanted[i])) << kernels->name;
      Bytes mixed = testing::cut(from, count / 3 * 3), mixed_plain = mixed;
      const float matrix[12] = {0.5F, 0.3F, 0.2F, 4.0F, 1.1F, -0.2F, 0.3F, -9.0F, 0.9F, 0.8F, -0.6F, 0.25F};
      plain.mix_colors(mixed_plain.data(), matrix, count / 3);
      kernels->mix_colors(mixed.data(), matrix, count / 3);
      EXPECT_EQ(mixed, mixed_plain) << kernels->name;
    }
  }
}

TEST(PixelKernels, DivideByTheGreatestByteExactly) {
  Bytes from(256);
  std::iota(from.begin(), from.end(), std::uint8_t{0});
  const std::vector<float> one(256, 1.0F), zero(256, 0.0F);
  for (const detail::PixelKernels* kernels : detail::usable_pixel_kernels()) {
    std::vector<float> found(256);
    kernels->to_f32(found.data(), from.data(), one.data(), zero.data(), found.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], static_cast<float>(i) / 255.0F) << kernels->name;
  }
}

TEST(PixelKernels, OfEveryInstructionSetBlendRowsAlike) {
  const auto sets = detail::usable_pixel_kernels();
  for (const std::size_t count : {1U, 15U, 16U, 31U, 32U, 33U, 224U}) {
    for (std::size_t rows = 1; rows <= 5; ++rows) {
      const Bytes from = random_bytes(rows * count, count);
      std::vector<std::int16_t> weights(rows), wanted(count), found(count);
      for (std::size_t k = 0; k < rows; ++k) weights[k] = static_cast<std::int16_t>(random_below(1, k, 1 << 14) / rows);
      for (std::size_t j = 0; j < count; ++j) {
        int sum = 64;
        for (std::size_t k = 0; k < rows; ++k) sum += weights[k] * from[k * count + j];
        wanted[j] = static_cast<std::int16_t>(sum >> 7);
      }
      for (const detail::PixelKernels* kernels : sets) {
        kernels->blend_down(found.data(), from.data(), count, weights.data(), rows, count);
        EXPECT_EQ(found, wanted) << kernels->name << ", " << rows << " rows of " << count;
      }
    }
  }
}

TEST(PixelKernels, OfEveryInstructionSetMergePlanesAlike) {
  const auto sets = detail::usable_pixel_kernels();
  for (const std::size_t count : {1U, 15U, 16U, 17U, 100U}) {
    std::vector<std::int16_t> planes[3];
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t i = 0; i < count; ++i)
        planes[c].push_back(static_cast<std::int16_t>(random_below(c, i, 255 * 128 + 1)));
    Bytes colors(3 * count), luma(3 * count), wanted(3 * count);
    for (const detail::PixelKernels* kernels : sets) {
      kernels->merge_colors(colors.data(), planes[0].data(), planes[1].data(), planes[2].data(), count);
      kernels->merge_luma(luma.data(), planes[0].data(), planes[1].data(), planes[2].data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        const double y = planes[0][i] / 128.0, cb = planes[1][i] / 128.0 - 128, cr = planes[2][i] / 128.0 - 128;
        const double rgb[] = {y + 1.402 * cr, y - 0.344136 * cb - 0.714136 * cr, y + 1.772 * cb};
        for (std::size_t c = 0; c < 3; ++c) {
          EXPECT_EQ(colors[3 * i + c], (planes[c][i] + 64) >> 7) << kernels->name;
          EXPECT_NEAR(luma[3 * i + c], std::clamp(rgb[c], 0.0, 255.0), 0.52) << kernels->name;
        }
      }
      if (kernels == sets.front()) wanted = luma;
      EXPECT_EQ(luma, wanted) << kernels->name;
    }
  }
}

TEST(Resizer, MirrorsAsItWrites) {
  constexpr std::uint32_t kTo = 21;  // no whole number of groups
  const Bytes from = random_bytes(kHeight * kWidth * kChannels);
  const PixelView image{from.data(), kHeight, kWidth, kChannels, kWidth * kChannels};
  Resizer resizer;
  Bytes whole(5 * kTo * kChannels), row(kTo * kChannels);
  resizer.resize(image, {1, 0.5, 5, 7}, 5, kTo, kChannels, whole.data());
  resizer.begin(image, {1, 0.5, 5, 7}, 5, kTo, kChannels, /*flipped=*/true);
  for (std::uint32_t y = 0; y < 5; ++y) {
    resizer.write_row(y, kChannels, row.data());
    for (std::size_t x = 0; x < kTo; ++x)
      for (std::size_t c = 0; c < kChannels; ++c)
        ASSERT_EQ(row[x * kChannels + c], whole[(y * kTo + kTo - 1 - x) * kChannels + c]);
  }
}

}  // namespace
}  // namespace troupe
