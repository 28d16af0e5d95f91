#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "runtime/data/shards.hpp"
#include "tests/runtime/data/corpus.hpp"

namespace troupe::testing {

/// A USTAR archive that is written member by member.
class TarFile {
 public:
  /// Returns where the content begins.
  std::uint64_t add(const std::string& name, const Bytes& content) {
    Bytes head(512);
    std::copy(name.begin(), name.end(), head.begin());
    const auto put = [&](std::size_t at, const char* format, unsigned long long number) {
      std::snprintf(reinterpret_cast<char*>(head.data()) + at, 12, format, number);
    };
    put(100, "%07llo", 0644);
    put(124, "%011llo", content.size());
    std::copy_n("ustar\00000", 8, head.begin() + 257);
    head[156] = '0';
    std::fill_n(head.begin() + 148, 8, std::uint8_t{' '});
    unsigned sum = 0;
    for (const std::uint8_t byte : head) sum += byte;
    put(148, "%06llo", sum);
    bytes_ = joined(std::move(bytes_), head);
    const std::uint64_t at = bytes_.size();
    bytes_ = joined(std::move(bytes_), content);
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
    return at;
  }
  /// With the two empty blocks at the end.
  Bytes finish() const { return joined(bytes_, Bytes(1024)); }

 private:
  Bytes bytes_;
};

using IndexEntries = std::vector<ShardEntry>;

inline Bytes shard_index(const IndexEntries& entries, std::uint64_t shard_bytes) {
  Bytes body;
  const auto put = [](Bytes& to, std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) to.push_back(static_cast<std::uint8_t>(number >> (8 * i)));
  };
  for (const ShardEntry& entry : entries) {
    put(body, entry.offset, 8);
    put(body, entry.size_bytes, 4);
    put(body, static_cast<std::uint32_t>(entry.label), 4);
  }
  Bytes bytes{'T', 'R', 'S', 'H', 'A', 'R', 'D', '1'};
  put(bytes, entries.size(), 8);
  put(bytes, shard_bytes, 8);
  put(bytes, crc32_z(0, body.data(), body.size()), 4);
  put(bytes, 0, 4);
  return joined(bytes, body);
}

}  // namespace troupe::testing
