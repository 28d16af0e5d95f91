#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <random>

#include "runtime/base/clock.hpp"
#include "runtime/data/idx.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/seed.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe {
namespace {

using testing::Bytes;

constexpr std::uint64_t kDeflateGreatestRatio = 1032;
constexpr std::size_t kReadBuffer = 1 << 16;

/// Changes good files in the ways that storage, networks and enemies do.
class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : dice_(seed) {}

  Bytes next() {
    Bytes bytes = dice_() % 2 == 0 ? testing::image_file(1 + below(40), 1 + below(6), 1 + below(6))
                                   : testing::label_file(1 + below(200));
    const bool inside = dice_() % 2 == 0;  // damage that gzip's checksum agrees with
    if (inside) damage(bytes);
    if (dice_() % 2 == 0) bytes = testing::gzip(bytes, static_cast<int>(below(10)));
    if (!inside || dice_() % 4 == 0) damage(bytes);
    return bytes;
  }
  std::uint32_t below(std::uint32_t bound) { return dice_() % bound; }

 private:
  std::size_t place(const Bytes& bytes) {  // heads are where it matters
    const std::size_t range = dice_() % 2 == 0 ? std::min<std::size_t>(bytes.size(), 24) : bytes.size();
    return dice_() % range;
  }
  void damage(Bytes& bytes) {
    for (std::uint32_t times = 1 + below(4); times > 0 && !bytes.empty(); --times) damage_once(bytes);
  }
  void damage_once(Bytes& bytes) {
    const std::size_t at = place(bytes);
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (dice_() % 7) {
      case 0: bytes[at] ^= static_cast<std::uint8_t>(1U << (dice_() % 8)); break;
      case 1: bytes[at] = static_cast<std::uint8_t>(dice_()); break;
      case 2: bytes.resize(at); break;
      case 3: bytes.erase(here); break;
      case 4: bytes.insert(here, 1 + dice_() % 5, static_cast<std::uint8_t>(dice_())); break;
      case 5: {  // an extreme number
        constexpr std::array<std::uint8_t, 5> kExtremes{0x00, 0xff, 0x7f, 0x80, 0x01};
        const std::uint8_t value = kExtremes[dice_() % kExtremes.size()];
        for (std::size_t i = at & ~std::size_t{3}; i < std::min(bytes.size(), (at & ~std::size_t{3}) + 4); ++i)
          bytes[i] = value;
        break;
      }
      case 6: bytes = testing::joined(bytes, Bytes(bytes.begin(), here)); break;  // a second, cut copy
    }
  }
  std::mt19937 dice_;
};

TEST(IdxFuzz, EndsWithAFileOrAnErrorAndAllocatesNoMoreThanTheBytesCanHold) {
  const std::uint32_t seed = testing::chosen_seed();
  Mutator mutator{seed};
  const testing::FuzzTime time{std::chrono::seconds{1}};
  std::uint64_t read = 0, refused = 0;
  while (time.goes_on(read > 0 && refused > 0)) {
    const Bytes bytes = mutator.next();
    const IdxKind kind = mutator.below(2) == 0 ? IdxKind::images : IdxKind::labels;
    testing::reset_largest_allocation();
    try {
      const IdxFile file = parse_idx(bytes, "fuzz", kind);
      ASSERT_EQ(file.header.kind, kind);
      ASSERT_GT(file.content.size(), 0U);
      ASSERT_EQ(file.content.size(), file.header.content_bytes());
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid) << error.what();
      ++refused;
    }
    ASSERT_LE(testing::largest_allocation(),
              std::max<std::uint64_t>(kReadBuffer, (bytes.size() + 1) * kDeflateGreatestRatio))
        << "file " << read + refused << " of seed " << seed;
  }
  std::cout << read << " files read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

}  // namespace
}  // namespace troupe
