#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "runtime/base/clock.hpp"
#include "runtime/data/cifar.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

constexpr std::uint64_t kDeflateGreatestRatio = 1032;
constexpr std::size_t kReadBuffer = 1 << 16;

TEST(CifarFuzz, EndsWithImagesOrAnErrorAndAllocatesNoMoreThanTheBytesCanHold) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  const testing::FuzzTime time{std::chrono::seconds{1}};
  std::uint64_t read = 0, refused = 0;
  while (time.goes_on(read > 0 && refused > 0)) {
    testing::Bytes bytes = testing::counting((dice() % 12) * 3073);
    for (std::size_t at = 0; at < bytes.size(); at += 3073) bytes[at] = static_cast<std::uint8_t>(dice() % 10);
    if (dice() % 2 == 0) bytes = testing::gzip(bytes, static_cast<int>(dice() % 10));
    if (dice() % 4 != 0) {
      const auto view = std::as_bytes(std::span{bytes});
      std::vector<std::byte> damaged(view.begin(), view.end());
      testing::damage(damaged, 0, dice);
      bytes.resize(damaged.size());
      std::transform(damaged.begin(), damaged.end(), bytes.begin(), [](std::byte b) { return std::uint8_t(b); });
    }
    testing::reset_largest_allocation();
    try {
      const ByteImageSet set = parse_cifar(bytes, "fuzz");
      ASSERT_GT(set.labels.size(), 0U);
      ASSERT_EQ(set.pixels.size(), set.labels.size() * 3072);
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid) << error.what();
      ++refused;
    }
    ASSERT_LE(testing::largest_allocation(),
              std::max<std::uint64_t>(kReadBuffer, (bytes.size() + 1) * 2 * kDeflateGreatestRatio))
        << "file " << read + refused << " of seed " << seed;
  }
  std::cout << read << " files read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace troupe
