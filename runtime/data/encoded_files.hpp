#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Where the bytes of encoded images are, by number. Threads: any.
class EncodedFiles {
 public:
  virtual ~EncodedFiles() = default;
  virtual std::uint64_t count() const noexcept = 0;
  /// For people: a path, or a place in an archive.
  virtual std::string name(std::uint64_t image) const = 0;
  /// Reads all bytes of `image` into `to`. Returns what is wrong, as half a sentence; empty: nothing. Blocks.
  virtual std::string read(std::uint64_t image, std::vector<std::uint8_t>& to) const = 0;
  /// Memory it takes itself.
  virtual std::uint64_t size_bytes() const noexcept = 0;
  /// Reads that wait for a file, now and from now on, soon give up.
  virtual void stop_waiting() noexcept {}
};

/// A file for each image, in the order in which they are added.
class PathFiles final : public EncodedFiles {
 public:
  void add(std::string_view path);
  std::uint64_t count() const noexcept override { return ends_.size(); }
  std::string name(std::uint64_t image) const override;
  std::string read(std::uint64_t image, std::vector<std::uint8_t>& to) const override;
  std::uint64_t size_bytes() const noexcept override { return paths_.size() + ends_.size() * sizeof ends_[0]; }

 private:
  std::string paths_;  // one behind the other
  std::vector<std::uint64_t> ends_;
};

}  // namespace troupe
