#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

/// A file in the making: it appears under its name complete or not at all, replacing what was there, and a reader sees
/// the old file or the new one. Until then it has no name, so a writer that is killed, at any instruction, leaves
/// nothing; only where the file system knows no nameless files (NFS) a hidden one ending in .tmp. What is no regular
/// file (a device, a pipe, /dev/stdout) is never replaced but written in place; a symbolic link stays, and the file it
/// leads to is replaced. Threads: one.
class NewFile {
 public:
  /// `target`: the name it is to have; its folder must be there. Throws Error{environment} naming the target, and for
  /// a folder.
  explicit NewFile(const std::string& target);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  /// Forgets what was not published.
  ~NewFile();

  /// What lies at a multiple of this in memory, and comes to lie at one in the file, goes to the disk as it is.
  static constexpr std::size_t kBlockBytes = 4096;

  /// Appends. Many bytes that begin at a multiple of kBlockBytes, both in memory and in the file, are not copied into
  /// the page cache where the file system can do without (O_DIRECT): what is written once, and read by nobody soon,
  /// then costs neither the copy nor the clearing away of what the cache holds. Throws Error{environment}.
  void write(std::span<const std::byte> bytes);
  /// Waits until the disk has what was written: for files that must outlive a power cut. Does nothing for what is
  /// written in place. Throws Error{environment}.
  void sync();
  /// Gives the file its name (what is written in place has it); once, as the last call. Throws Error{environment}: the
  /// old file stays.
  void publish();

 private:
  std::string hidden_name() const;
  std::size_t write_direct(std::span<const std::byte> bytes);
  std::string target_;  // no symbolic link, unless it is written in place
  std::string name_;    // empty: it has none
  bool in_place_ = false;
  int fd_ = -1;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace troupe
