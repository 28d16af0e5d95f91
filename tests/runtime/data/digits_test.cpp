#include "runtime/data/digits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

struct Drawn {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;
  friend bool operator==(const Drawn&, const Drawn&) = default;
};

Drawn draw(std::uint64_t seed, std::uint64_t first, std::size_t count, std::uint32_t threads = 1) {
  Drawn drawn{std::vector<std::uint8_t>(count * kDigitPixels), std::vector<std::uint8_t>(count)};
  draw_digits(seed, first, drawn.images, drawn.labels, threads, {});
  return drawn;
}

TEST(Digits, AreTheSameWithAnyNumberOfThreads) {
  const Drawn alone = draw(1, 0, 1000);
  EXPECT_EQ(alone, draw(1, 0, 1000, 4));
  EXPECT_EQ(alone, draw(1, 0, 1000, 64));
}

TEST(Digits, DependOnSeedAndIndexOnly) {
  const Drawn all = draw(1, 0, 600);
  for (const std::uint64_t index : {0U, 1U, 299U, 599U}) {
    std::array<std::uint8_t, kDigitPixels> image{};
    EXPECT_EQ(draw_digit(1, index, image), all.labels[index]);
    EXPECT_TRUE(
        std::equal(image.begin(), image.end(), all.images.begin() + static_cast<std::ptrdiff_t>(index * kDigitPixels)));
  }
  EXPECT_NE(all, draw(2, 0, 600));
}

TEST(Digits, ShowEveryDigitAboutEquallyOften) {
  std::array<int, 10> counts{};
  for (const std::uint8_t label : draw(1, 0, 3000).labels) ++counts.at(label);
  for (const int count : counts) EXPECT_NEAR(count, 300, 85);  // five standard deviations
}

TEST(Digits, AreInkOnEmptyGroundCentredByMass) {
  const Drawn drawn = draw(1, 0, 1000);
  double total = 0;
  for (std::size_t i = 0; i < drawn.labels.size(); ++i) {
    const std::uint8_t* image = drawn.images.data() + i * kDigitPixels;
    double mass = 0, x = 0, y = 0;
    for (std::size_t p = 0; p < kDigitPixels; ++p) {
      mass += image[p];
      x += image[p] * static_cast<double>(p % kDigitSide);
      y += image[p] * static_cast<double>(p / kDigitSide);
    }
    ASSERT_GT(mass, 12 * 255) << "digit " << i << " is hardly there";
    EXPECT_NEAR(x / mass, 13.5, 2) << i;
    EXPECT_NEAR(y / mass, 13.5, 2) << i;
    EXPECT_GT(std::count(image, image + kDigitPixels, 0), 300) << i;
    total += mass;
  }
  EXPECT_NEAR(total / 255 / static_cast<double>(drawn.images.size()), 0.13, 0.03);  // MNIST's mean is 0.1307
}

TEST(Digits, AreAllDifferent) {
  const Drawn drawn = draw(1, 0, 500);
  std::set<std::string_view> images;
  for (std::size_t i = 0; i < 500; ++i) {
    images.insert({reinterpret_cast<const char*>(drawn.images.data()) + i * kDigitPixels, kDigitPixels});
  }
  EXPECT_EQ(images.size(), 500U);
}

/// Nearest neighbour over 2,000 samples: far above guessing, and not perfect.
TEST(Digits, CanBeToldApartButNotTrivially) {
  constexpr std::size_t kKnown = 2000, kAsked = 300;
  const Drawn drawn = draw(1, 0, kKnown + kAsked);
  int right = 0;
  for (std::size_t asked = kKnown; asked < kKnown + kAsked; ++asked) {
    std::int64_t nearest = std::numeric_limits<std::int64_t>::max();
    std::uint8_t guess = 0;
    for (std::size_t known = 0; known < kKnown; ++known) {
      std::int32_t distance = 0;
      for (std::size_t p = 0; p < kDigitPixels; ++p) {
        const int d = drawn.images[asked * kDigitPixels + p] - drawn.images[known * kDigitPixels + p];
        distance += d * d;
      }
      if (distance < nearest) {
        nearest = distance;
        guess = drawn.labels[known];
      }
    }
    right += guess == drawn.labels[asked] ? 1 : 0;
  }
  EXPECT_GT(right, kAsked * 8 / 10);
  EXPECT_LT(right, kAsked);
}

TEST(Digits, TellProgressUpToTheLastOneOnTheCallersThread) {
  std::vector<std::uint8_t> images(2000 * kDigitPixels), labels(2000);
  std::vector<std::uint64_t> told;
  draw_digits(1, 0, images, labels, 1, [&](std::uint64_t done, std::uint64_t total, const std::string& what) {
    EXPECT_EQ(total, 2000U);
    EXPECT_FALSE(what.empty());
    told.push_back(done);
  });
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back(), 2000U);
}

TEST(Digits, EndWithTheErrorOfTheirListener) {
  std::vector<std::uint8_t> images(5000 * kDigitPixels), labels(5000);
  EXPECT_THROW(
      draw_digits(1, 0, images, labels, 3, [](auto, auto, const auto&) { throw std::runtime_error("enough"); }),
      std::runtime_error);
}

TEST(Digits, RefuseBuffersThatDoNotFitEachOther) {
  std::vector<std::uint8_t> images(10 * kDigitPixels), labels(11);
  testing::error_of(Code::invalid, [&] { draw_digits(1, 0, images, labels, 1, {}); });
}

}  // namespace
}  // namespace troupe
