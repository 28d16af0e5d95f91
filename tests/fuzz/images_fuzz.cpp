#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "runtime/base/clock.hpp"
#include "runtime/data/image_decoder.hpp"
#include "runtime/data/image_lists.hpp"
#include "runtime/data/voc.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/damage.hpp"
#include "tests/fuzz/seed.hpp"
#include "tests/runtime/data/encoded.hpp"
#include "tests/runtime/data/shard_files.hpp"

namespace troupe {
namespace {

using testing::Bytes;

Bytes damaged(const Bytes& bytes, std::mt19937& dice) {
  std::vector<std::byte> raw(bytes.size());
  std::transform(bytes.begin(), bytes.end(), raw.begin(), [](std::uint8_t b) { return std::byte{b}; });
  testing::damage(raw, 0, dice);
  Bytes out(raw.size());
  std::transform(raw.begin(), raw.end(), out.begin(), [](std::byte b) { return static_cast<std::uint8_t>(b); });
  return out;
}

TEST(ImagesFuzz, EndsWithPixelsOrAFaultInBoundedMemory) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  const Bytes grey = testing::smooth_image(20, 30, 1), rgb = testing::smooth_image(20, 30, 3),
              inks = testing::smooth_image(20, 30, 4);
  const std::vector<Bytes> good{
      testing::jpeg_of(grey, 20, 30, 1), testing::jpeg_of(rgb, 20, 30, 3), testing::jpeg_of(rgb, 20, 30, 3, 80, true),
      testing::jpeg_of(inks, 20, 30, 4), testing::png_of(grey, 20, 30, 1), testing::png_of(rgb, 20, 30, 3),
      testing::png_of(inks, 20, 30, 4)};
  ImageDecoder decoder;  // one for all: what it meets must not harm what follows
  const testing::FuzzTime time{std::chrono::seconds{1}};
  std::uint64_t read = 0, refused = 0;
  while (time.goes_on(read > 0 && refused > 0)) {
    const Bytes& whole = good[dice() % good.size()];
    const Bytes bytes = dice() % 8 == 0 ? whole : damaged(whole, dice);
    testing::reset_largest_allocation();
    std::string fault = decoder.open(bytes);
    if (fault.empty()) {
      const std::uint32_t height = decoder.height(), width = decoder.width();
      ASSERT_LE(std::uint64_t{height} * width, kMostImagePixels);
      if (std::uint64_t{height} * width > 4'000'000) continue;  // allowed, and too slow for here
      const double top = dice() % height, left = dice() % width;
      const PixelWindow window{top, left, 1.0 + dice() % (height - static_cast<std::uint32_t>(top)),
                               1.0 + dice() % (width - static_cast<std::uint32_t>(left))};
      const bool planes = decoder.has_planes() && dice() % 2 == 0;
      const std::uint32_t to_height = 1 + dice() % 16, to_width = 1 + dice() % 16;
      const ImageDecoder::Decoded image =
          planes ? decoder.decode_planes(window, to_height, to_width) : decoder.decode(window, to_height, to_width);
      fault = image.fault;
      if (fault.empty() && planes) {
        Resizer resizer;
        std::vector<std::uint8_t> row(3 * to_width);
        resizer.begin(image.planes, image.window, to_height, to_width, dice() % 2 == 0);
        for (std::uint32_t y = 0; y < to_height; ++y) resizer.write_row(y, 3, row.data());
      } else if (fault.empty()) {
        ASSERT_GE(image.window.top, 0);
        ASSERT_GE(image.window.left, 0);
        ASSERT_LE(image.window.top + image.window.height, image.pixels.height + 1e-9) << "seed " << seed;
        ASSERT_LE(image.window.left + image.window.width, image.pixels.width + 1e-9) << "seed " << seed;
        std::vector<std::uint8_t> to(3 * 5 * 7);
        Resizer{}.resize(image.pixels, image.window, 5, 7, 3, to.data());
      }
    }
    ++(fault.empty() ? read : refused);
    ASSERT_LE(testing::largest_allocation(), 4U * kMostImagePixels) << "seed " << seed;
  }
  std::cout << read << " images read, " << refused << " refused\n";
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

/// Calls `attempt` for a second: it makes an input and reads it, which ends well or with Error{invalid}, in little
/// memory.
template <class Attempt>
void read_for_a_second(Attempt&& attempt) {
  const std::uint32_t seed = testing::chosen_seed();
  std::mt19937 dice{seed};
  std::uint64_t read = 0, refused = 0;
  for (const testing::FuzzTime time{std::chrono::seconds{1}}; time.goes_on(read > 0 && refused > 0);) {
    try {
      attempt(dice);
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Code::invalid) << error.what();
      ++refused;
    }
    ASSERT_LE(testing::largest_allocation(), 4096U) << "seed " << seed;
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed;
  }
  EXPECT_GT(read, 0U);
  EXPECT_GT(refused, 0U);
}

TEST(MapFuzz, EndsWithEntriesOrAnError) {
  const std::string good = "a/b c.jpg\t0\n\nd.png\t12\r\n../e.jpeg\t3";
  read_for_a_second([&](std::mt19937& dice) {
    const Bytes bytes = damaged(Bytes(good.begin(), good.end()), dice);
    const std::string text(bytes.begin(), bytes.end());
    testing::reset_largest_allocation();
    for (const MapEntry& entry : parse_map(text, "fuzz")) {
      ASSERT_GE(entry.label, 0);
      ASSERT_LE(entry.label, kMostMapLabel);
      ASSERT_FALSE(entry.path.empty());
    }
  });
}

TEST(VocFuzz, EndsWithBoxesInTheImageOrAnError) {
  const std::string object =
      "<object><name>cat</name><difficult>1</difficult><bndbox><xmin>2</xmin><ymin>3.5</ymin><xmax>10</xmax>"
      "<ymax>20</ymax></bndbox></object>\n";
  const std::string good = "<?xml version=\"1.0\"?>\n<annotation><size><width>30</width><height>20</height></size>\n" +
                           object + object + "</annotation>\n";
  read_for_a_second([&](std::mt19937& dice) {
    const Bytes bytes = damaged(Bytes(good.begin(), good.end()), dice);
    const std::string text(bytes.begin(), bytes.end());
    testing::reset_largest_allocation();
    const VocAnnotation annotation = parse_voc_annotation(text, "fuzz");
    for (const VocAnnotation::Object& one : annotation.objects) {
      ASSERT_FALSE(one.name.empty());
      ASSERT_GE(one.box.left, 0);
      ASSERT_LT(one.box.left, one.box.right);
      ASSERT_LE(one.box.right, annotation.width);
      ASSERT_GE(one.box.top, 0);
      ASSERT_LT(one.box.top, one.box.bottom);
      ASSERT_LE(one.box.bottom, annotation.height);
    }
  });
}

TEST(VocListFuzz, EndsWithNamesOrAnError) {
  const std::string good = "2007_000027\n000001\r\n\nraccoon-7\n";
  read_for_a_second([&](std::mt19937& dice) {
    const Bytes bytes = damaged(Bytes(good.begin(), good.end()), dice);
    const std::string text(bytes.begin(), bytes.end());
    testing::reset_largest_allocation();
    for (const std::string& name : parse_voc_list(text, "fuzz")) {
      ASSERT_FALSE(name.empty());
      ASSERT_EQ(name.find('/'), std::string::npos);
    }
  });
}

TEST(ShardIndexFuzz, EndsWithEntriesInTheShardOrAnError) {
  read_for_a_second([](std::mt19937& dice) {
    testing::IndexEntries entries(dice() % 5);
    for (ShardEntry& entry : entries)  // the checksum agrees, so that the entries are looked at
      entry = {dice() % 20'000, static_cast<std::uint32_t>(dice() % 8 == 0 ? dice() : dice() % 2'000),
               static_cast<std::int32_t>(dice() % 30) - 1};
    Bytes bytes = testing::shard_index(entries, 20'000);
    if (dice() % 4 == 0) bytes = damaged(bytes, dice);
    testing::reset_largest_allocation();
    std::uint64_t last = 0;
    for (const ShardEntry& entry : parse_shard_index(bytes, 20'000, "fuzz")) {
      ASSERT_GE(entry.offset, last + 512);
      ASSERT_LE(entry.offset + entry.size_bytes, 20'000U);
      ASSERT_GE(entry.label, 0);
      last = entry.offset + entry.size_bytes;
    }
  });
}

}  // namespace
}  // namespace troupe
