#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/fd.hpp"

namespace troupe {

/// One contribution that a shard applied. A shard's records are in the order of applying, phase after phase; the
/// records of one update are consecutive, in the order of addition. With the workers' data this is all that a bitwise
/// replay of an asynchronous run needs: what each worker computed follows from its clock and the versions that it
/// read.
struct AppliedRecord {
  std::uint32_t sequence = 0;  // number of the update at this shard, from 1: the version that it produced
  std::uint32_t clock = 0;     // of the worker
  std::uint32_t base = 0;      // version of this shard's parameters from which the worker computed
  std::uint16_t shard = 0;
  std::uint16_t worker = 0;
  friend bool operator==(const AppliedRecord&, const AppliedRecord&) = default;
};
static_assert(sizeof(AppliedRecord) == 16);

using UpdateLog = std::vector<AppliedRecord>;

/// A shard's log that a later run follows, and the position in it.
struct UpdateReplay {
  UpdateLog log;
  std::size_t next = 0;
};

/// A file of records: a header of 16 bytes, then the records, little-endian. Records are written page by page, or with
/// flush(); a process that is killed loses up to a page. Threads: one.
class UpdateLogFile {
 public:
  /// The log of a shard with `elements` elements. Throws Error{invalid} if the file exists, Error{environment} if it
  /// cannot be created.
  UpdateLogFile(std::string path, std::uint64_t elements);
  UpdateLogFile(const UpdateLogFile&) = delete;
  UpdateLogFile& operator=(const UpdateLogFile&) = delete;
  ~UpdateLogFile();

  /// Throws Error{environment}, like flush().
  void append(std::span<const AppliedRecord> records);
  void flush();

 private:
  std::string path_;
  Fd fd_;
  std::vector<AppliedRecord> kept_;
};

/// Reads the log of a shard with `elements` elements in a job of `workers` workers. Throws Error{invalid} if there is
/// none or it belongs to another stripe, Error{corrupt} if it is damaged.
UpdateLog read_update_log(const std::string& path, std::uint64_t elements, std::uint32_t workers);

}  // namespace troupe
