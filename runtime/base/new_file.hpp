#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// A file that is being written. It appears under its name complete or not at all and replaces the previous file, so a
/// reader sees the old file or the new one. Until then it has no name: a writer that is killed, at any instruction,
/// leaves nothing. Only on file systems without nameless files (NFS) does it leave a hidden file that ends in .tmp. A
/// target that is not a regular file (a device, a pipe that somebody reads, /dev/stdout) is never replaced but written
/// in place. A symbolic link stays, and the file that it leads to is replaced. Threads: one.
class NewFile {
 public:
  /// `target`: the file's name; its folder must exist. Throws Error{environment}, which names the target, also if the
  /// target is a folder.
  explicit NewFile(const std::string& target);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  /// Discards a file that was not published.
  ~NewFile();
  /// The target is written in place: what reads it must get nothing else, for example no message on stdout.
  bool in_place() const noexcept { return in_place_; }

  /// Bytes whose addresses and file positions are multiples of this can be written to the disk directly.
  static constexpr std::size_t kBlockBytes = 4096;

  /// Appends. Long ranges that begin at a multiple of kBlockBytes, both in memory and in the file, bypass the page
  /// cache if the file system allows it (O_DIRECT). Data that is written once and not read soon then costs no copy, and
  /// no other data has to leave the cache. Throws Error{environment}.
  void write(std::span<const std::byte> bytes);
  /// Waits until the written bytes are on the disk: for files that must survive a power failure. Does nothing for a
  /// target that is written in place. Throws Error{environment}.
  void sync();
  /// Gives the file its name (a target that is written in place has it already). Call it once, as the last call. Throws
  /// Error{environment}; then the old file stays.
  void publish();

 private:
  std::string hidden_name() const;
  std::size_t write_direct(std::span<const std::byte> bytes);
  std::string target_;  // not a symbolic link, unless it is written in place
  std::string name_;    // empty: the file has no name yet
  bool in_place_ = false;
  int fd_ = -1;
  std::uint64_t size_bytes_ = 0;
};

/// Makes `content` that of the file `target`. Returns NewFile::in_place(). Throws Error{environment}.
bool write_new_file(const std::string& target, std::string_view content);

/// Whether a folder, a pipe, a device or a socket is at `path`, itself or behind symbolic links. Opening such a file
/// may wait without end, and it keeps nothing. False: a regular file, or nothing is there.
bool is_special_file(const std::string& path) noexcept;

/// Throws Error{environment} with the path and what is there if it is a special file.
void refuse_special_file(const std::string& path);

}  // namespace troupe
