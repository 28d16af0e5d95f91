#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/encoded_images.hpp"

namespace troupe {

/// The position of an image in a shard, and its label.
struct ShardEntry {
  std::uint64_t offset = 0;  // bytes from the beginning of the shard to the image; the tar header is before it
  std::uint32_t size_bytes = 0;
  std::int32_t label = 0;
  friend bool operator==(const ShardEntry&, const ShardEntry&) = default;
};

/// A shard is a tar archive (USTAR) with two members for each sample, KEY.jpg or KEY.png and KEY.cls, which contains
/// the label in digits. Beside it is its index, SHARD.index, with little-endian numbers: "TRSHARD1", u64 number of
/// entries, u64 size of the shard, u32 CRC-32 of the entries, u32 0; then for each sample u64 offset, u32 size, i32
/// label, by ascending offset.
inline constexpr std::size_t kShardHeadBytes = 32;
inline constexpr std::size_t kShardEntryBytes = 16;

/// Reads an index; `shard_bytes` is the size of its shard. Allocates memory only in proportion to the bytes. Throws
/// Error{invalid} with `name`, cause and cure if it is cut or damaged, belongs to another shard, or has an entry that
/// is not inside the shard.
std::vector<ShardEntry> parse_shard_index(std::span<const std::uint8_t> bytes, std::uint64_t shard_bytes,
                                          const std::string& name);

/// Images in shards. Each is read together with its tar header, which must agree with the index.
class ShardFiles final : public EncodedFiles {
 public:
  /// Adds a shard after the present ones. Throws like parse_shard_index, and Error{invalid} if shard or index is
  /// missing, Error{environment} if the system refuses to read them. Blocks.
  void add(const std::string& path);

  std::uint64_t count() const noexcept override { return entries_.size(); }
  std::string name(std::uint64_t image) const override;
  std::string read(std::uint64_t image, std::vector<std::uint8_t>& to) const override;
  std::uint64_t size_bytes() const noexcept override { return entries_.size() * sizeof(ShardEntry); }
  std::int32_t label(std::uint64_t image) const { return entries_.at(image).label; }

 private:
  struct Shard {
    std::string path;
    std::uint64_t first = 0;  // image
  };
  const Shard& shard_of(std::uint64_t image) const;
  std::vector<Shard> shards_;
  std::vector<ShardEntry> entries_;
};

}  // namespace troupe
