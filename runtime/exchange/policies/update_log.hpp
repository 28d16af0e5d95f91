#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/fd.hpp"

namespace troupe {

/// One contribution that a shard applied. A shard's records stand in the order of applying, one phase behind the other;
/// those of one update follow each other in the order in which they were added up. With the workers' data this is all
/// that a bitwise replay of an asynchronous run needs: what each worker computed follows from its clock and the
/// versions it had read.
struct AppliedRecord {
  std::uint32_t sequence = 0;  // of the update at this shard, from 1: the version that it made
  std::uint32_t clock = 0;     // of the worker
  std::uint32_t base = 0;      // the version of this shard's parameters that the worker computed from
  std::uint16_t shard = 0;
  std::uint16_t worker = 0;
  friend bool operator==(const AppliedRecord&, const AppliedRecord&) = default;
};
static_assert(sizeof(AppliedRecord) == 16);

using UpdateLog = std::vector<AppliedRecord>;

/// A shard's log that a later run follows, and how far it has come.
struct UpdateReplay {
  UpdateLog log;
  std::size_t next = 0;
};

/// A file of records: 16 bytes that say what it is, then the records, little-endian. What is appended is in the file a
/// page later, or with flush(), so a process that is killed loses the last page. Threads: one.
class UpdateLogFile {
 public:
  /// Of a shard with so many `elements`. Throws Error{invalid} when the file exists, Error{environment} when it cannot
  /// be made.
  UpdateLogFile(std::string path, std::uint64_t elements);
  UpdateLogFile(const UpdateLogFile&) = delete;
  UpdateLogFile& operator=(const UpdateLogFile&) = delete;
  ~UpdateLogFile();

  /// Throws Error{environment}, as flush().
  void append(std::span<const AppliedRecord> records);
  void flush();

 private:
  std::string path_;
  Fd fd_;
  std::vector<AppliedRecord> kept_;
};

/// Reads such a file of a shard with so many `elements` in a job of so many `workers`. Throws Error{invalid} when there
/// is none, or it is of another stripe; Error{corrupt} when it is damaged.
UpdateLog read_update_log(const std::string& path, std::uint64_t elements, std::uint32_t workers);

}  // namespace troupe
