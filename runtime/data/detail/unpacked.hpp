#pragma once

#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/fd.hpp"

namespace troupe::detail {

inline constexpr std::uint64_t kDeflateGreatestRatio = 1032;  // 258 bytes from two bits

/// Bytes of known size that can be read at any offset.
class Input {
 public:
  virtual ~Input() = default;
  virtual std::uint64_t size_bytes() const noexcept = 0;
  /// Reads out.size() bytes from `offset` on; fewer only at the end.
  virtual std::size_t read(std::uint64_t offset, std::span<std::uint8_t> out) = 0;
};

class MemoryInput final : public Input {
 public:
  explicit MemoryInput(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::uint64_t size_bytes() const noexcept override { return bytes_.size(); }
  std::size_t read(std::uint64_t offset, std::span<std::uint8_t> out) override;

 private:
  std::span<const std::uint8_t> bytes_;
};

/// A regular file. `cure`: the advice at the end of messages. Throws Error{invalid} if the file does not exist or is
/// not a regular file, Error{environment} if the system refuses to open or read it.
class FileInput final : public Input {
 public:
  FileInput(std::string name, const char* cure);
  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  std::size_t read(std::uint64_t offset, std::span<std::uint8_t> out) override;

 private:
  std::string name_;
  Fd fd_;
  std::uint64_t size_bytes_ = 0;
};

/// The whole content of a file of at most `most_bytes`. Throws like FileInput, and Error{invalid} if it is larger.
std::string read_whole(const std::string& file, std::uint64_t most_bytes, const char* cure);

/// The unpacked bytes of an input, plain or gzip (by its first bytes), from front to back. Throws Error{invalid} with
/// `name` and `cure` if the gzip data are damaged or cut short.
class Unpacked {
 public:
  Unpacked(Input& input, const std::string& name, const char* cure);
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;
  ~Unpacked();

  bool gzip() const noexcept { return packed_.has_value(); }
  /// The position in the input.
  std::uint64_t offset() const noexcept { return packed_ ? offset_ - packed_->stream.avail_in : offset_; }
  /// Fills `out`; returns fewer bytes only at the end. The end of gzip data is accepted only if the checksums agree.
  std::size_t read(std::span<std::uint8_t> out);

 private:
  struct Packed {
    z_stream stream{};
    bool over = false;
    std::vector<std::uint8_t> buffer = std::vector<std::uint8_t>(1 << 16);
  };
  std::size_t inflate_some(std::span<std::uint8_t> out);
  void refill();

  Input& input_;
  const std::string& name_;
  const char* cure_;
  std::uint64_t offset_ = 0;
  std::optional<Packed> packed_;
};

}  // namespace troupe::detail
