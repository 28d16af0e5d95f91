#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <string>

#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/model/graph_text.hpp"
#include "tests/fuzz/allocation_watch.hpp"
#include "tests/fuzz/seed.hpp"

#include <xxhash.h>

namespace troupe {
namespace {

/// A header's JSON must not cost more memory than this many times its bytes: entries are larger than the shortest text
/// that makes one, and vectors double.
constexpr std::uint64_t kGreatestRatio = 32;
constexpr std::uint64_t kBasis = 1 << 16;

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : dice_(seed) {}

  std::vector<std::byte> header() {
    std::vector<SafetensorsEntry> entries;
    for (std::uint32_t i = below(6); i > 0; --i) {
      const std::uint64_t rows = below(50), columns = below(50);
      entries.push_back({"layer" + std::to_string(i) + ".weight", "F32", {rows, columns}, 0, rows * columns * 4});
      data_bytes_ += entries.back().size_bytes;
    }
    std::vector<std::byte> bytes = format_safetensors(entries, {{"format", "troupe"}});
    if (below(8) == 0) bytes = deep(below(100'000));
    return damaged(std::move(bytes));
  }
  std::string manifest() {
    CheckpointManifest manifest{.steps = below(1000), .samples = below(100'000), .seed = 7, .model = "mlp"};
    manifest.shapes = {{"a", {2, 3}}};
    manifest.files = {{"rank-00000.safetensors", 100, 7, {{.key = "a", .tensor = "a", .count = 6, .hash = 9}}}};
    std::string text = format_manifest(manifest);
    // Damage that the checksum agrees with is made inside of it.
    const std::size_t body = text.find('\n') + 1;
    std::vector<std::byte> bytes(text.size() - body);
    std::memcpy(bytes.data(), text.data() + body, bytes.size());
    if (below(8) == 0) bytes.assign(below(100'000), static_cast<std::byte>(below(2) == 0 ? '[' : '{'));
    bytes = damaged(std::move(bytes));
    std::array<char, 64> line{};
    std::snprintf(line.data(), line.size(), "troupe-checkpoint 1 %016llx\n",
                  static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
    return line.data() + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  /// What a manifest has of its model.
  std::string graph() {
    const std::string text =
        R"(graph "g" field "image" [9, 8, 3] f32 field "label" [] i32 field "sample_key" [2] i32 f32 )"
        R"("c"=conv2d(4, kernel=3x2, bias=false) "t"=transpose([2, 0, 1]) "d"=dropout(0.25) "s"=add["t", "d"] "o"=dense(10, flatten=false) )"
        R"("p"=dense(10) "loss"=softmax_cross_entropy(0.5, smoothing=0.25)["p", "label"])";
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), bytes.size());
    if (below(8) != 0) bytes = damaged(std::move(bytes));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// The message to rank 0 about another rank's file.
  std::string file() {
    const std::string text = format_checkpoint_file(
        {"rank-00001.safetensors", 100, 7, {{.key = "a[0:6]", .tensor = "a", .count = 6, .hash = 9}}});
    std::vector<std::byte> bytes(text.size());
    std::memcpy(bytes.data(), text.data(), bytes.size());
    bytes = damaged(std::move(bytes));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::uint64_t file_bytes(std::size_t header_bytes) {
    return below(4) == 0 ? dice_() : header_bytes + std::exchange(data_bytes_, 0);
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return dice_() % bound; }
  /// Brackets without end.
  std::vector<std::byte> deep(std::uint32_t depth) {
    std::vector<std::byte> bytes(8 + depth, static_cast<std::byte>(below(2) == 0 ? '[' : '{'));
    const std::uint64_t length = depth;
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes;
  }
  std::vector<std::byte> damaged(std::vector<std::byte> bytes) {
    for (std::uint32_t times = below(4); times > 0 && !bytes.empty(); --times) {
      const std::size_t at = below(static_cast<std::uint32_t>(bytes.size()));
      const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      switch (below(5)) {
        case 0: bytes[at] ^= static_cast<std::byte>(1U << below(8)); break;
        case 1: bytes[at] = static_cast<std::byte>(dice_()); break;
        case 2: bytes.resize(at); break;
        case 3: bytes.erase(here); break;
        case 4: bytes.insert(here, 1 + below(5), static_cast<std::byte>('0' + below(10))); break;
      }
    }
    return bytes;
  }
  std::mt19937 dice_;
  std::uint64_t data_bytes_ = 0;
};

/// Runs `parse`, which ends well or with an Error; nothing else, and with no more memory than the bytes can hold.
template <class Parse>
bool survives(std::size_t bytes, Parse parse) {
  testing::reset_largest_allocation();
  bool read = true;
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == Code::corrupt || error.code() == Code::unsupported) << error.what();
    read = false;
  }
  EXPECT_LE(testing::largest_allocation(), kBasis + kGreatestRatio * bytes);
  return read;
}

/// Calls `try_one`, which returns whether something was read, until some were read and some refused.
template <class TryOne>
void read_and_refuse(std::chrono::milliseconds span, TryOne try_one) {
  const testing::FuzzTime time{span};
  std::uint64_t read = 0, refused = 0;
  while (time.goes_on(read > 0 && refused > 0)) (try_one() ? read : refused) += 1;
  std::cout << read << " read, " << refused << " refused\n";
  EXPECT_GT(read, 0u);
  EXPECT_GT(refused, 0u);
}

TEST(CheckpointFuzz, HeadersAreReadOrRefusedInMemoryThatTheirBytesBound) {
  Mutator mutator{testing::chosen_seed()};
  read_and_refuse(std::chrono::seconds{1}, [&] {
    const std::vector<std::byte> bytes = mutator.header();
    const std::uint64_t file_bytes = mutator.file_bytes(bytes.size());
    return survives(bytes.size(), [&] { parse_safetensors(bytes, file_bytes, "f"); });
  });
}

TEST(CheckpointFuzz, ManifestsAreReadOrRefusedAsWrittenOnes) {
  Mutator mutator{testing::chosen_seed()};
  read_and_refuse(std::chrono::seconds{1}, [&] {
    const std::string text = mutator.manifest();
    return survives(text.size(), [&] { parse_manifest(text, "m"); });
  });
}

TEST(CheckpointFuzz, TheTextOfAGraphIsReadOrRefused) {
  Mutator mutator{testing::chosen_seed()};
  read_and_refuse(std::chrono::seconds{1}, [&] {
    const std::string text = mutator.graph();
    return survives(text.size(), [&] { parse_graph(text); });
  });
}

TEST(CheckpointFuzz, AFileThatARankTellsOfIsReadOrRefused) {
  Mutator mutator{testing::chosen_seed()};
  read_and_refuse(std::chrono::milliseconds{500}, [&] {
    const std::string text = mutator.file();
    return survives(text.size(), [&] { parse_checkpoint_file(text); });
  });
}

}  // namespace
}  // namespace troupe
