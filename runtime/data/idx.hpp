#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/byte_images.hpp"

namespace troupe {

/// The two kinds of IDX file that a set of images consists of; the value is the file's magic number.
/// Source: LeCun, Cortes, Burges (The MNIST database of handwritten digits), "File formats".
enum class IdxKind : std::uint32_t { labels = 0x00000801, images = 0x00000803 };

/// The header of an IDX file, of big-endian 32-bit numbers: magic, count and, for images, height and
/// width.
struct IdxHeader {
  IdxKind kind = IdxKind::labels;
  std::uint32_t count = 0;  // samples
  std::uint32_t height = 1;
  std::uint32_t width = 1;
  std::uint64_t header_bytes() const noexcept { return kind == IdxKind::images ? 16 : 8; }
  std::uint64_t sample_bytes() const noexcept { return std::uint64_t{height} * width; }
  std::uint64_t content_bytes() const noexcept { return count * sample_bytes(); }
  friend bool operator==(const IdxHeader&, const IdxHeader&) = default;
};

/// Files whose header announces more content are refused.
inline constexpr std::uint64_t kIdxMaxContentBytes = std::uint64_t{4} << 30;

/// An IDX file in memory.
struct IdxFile {
  std::string name;  // for messages
  IdxHeader header;
  std::vector<std::uint8_t> content;  // [count, height, width]
};

/// Reads an IDX file, plain or gzip (by its first bytes; several members are allowed). Memory for content is allocated
/// only after the header was found to agree with the file's size: exactly for a plain file, within deflate's greatest
/// ratio for gzip; at most one byte is unpacked beyond the announced content. Throws Error{invalid} with file,
/// position, cause and cure if the magic, a count, the length or the gzip data is wrong, or if the file does not exist;
/// Error{environment} if the system refuses to open or read it. Blocks on the file system.
IdxFile read_idx(const std::string& file, IdxKind kind);

/// The same from bytes in memory; `name` stands for the file in messages.
IdxFile parse_idx(std::span<const std::uint8_t> bytes, const std::string& name, IdxKind kind);

/// Checks header and length without keeping the content. Cheap: a gzip file is unpacked only if the length in its
/// trailer is not the announced one (several members, or damage). Throws like read_idx.
IdxHeader check_idx(const std::string& file, IdxKind kind);

/// Writes a plain IDX file, which appears under its name complete and synced, or not at all (NewFile). `content` has
/// header.content_bytes() bytes. Throws Error{environment} if the system refuses.
void write_idx(const std::string& file, const IdxHeader& header, std::span<const std::uint8_t> content);

/// The number of classes of a data set: the largest label + 1, at least 2. A label of 10 or more counts only if it is
/// in the training set and all labels from 10 up to it occur there, so that a wrong byte is an Error{invalid} and does
/// not become a class.
std::uint32_t count_classes(const IdxFile& labels, const IdxFile& test_labels);

/// The images and labels of one set. Throws Error{invalid} if counts differ or a label is not below `classes`.
ByteImageSet idx_image_set(IdxFile images, IdxFile labels, std::uint32_t classes);

}  // namespace troupe
