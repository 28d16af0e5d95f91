#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/base/ids.hpp"
#include "runtime/base/trace.hpp"
#include "runtime/compute/stream_times.hpp"

namespace troupe {

/// A library of a device's vendor that enqueues work of its own on the device's streams, such as collectives between
/// GPUs.
class LibraryCalls {
 public:
  /// Enqueues what `what` says on `stream`, the vendor's own handle of a stream, which may be recording: then it is
  /// called once, and the call runs in each replay. Throws Error. The calling thread's device is that of the stream.
  virtual void enqueue(void* stream, std::span<const std::byte> what) = 0;

 protected:
  ~LibraryCalls() = default;  // outlives the stream's work and the programs in which its calls are recorded
};

/// A call that all ranks of a group make. The library moves each rank's entry of `heads` to all others, beside what it
/// does otherwise; by that the stream sees whether all ranks made the same call with streams that had not failed.
struct LibraryCall {
  static constexpr unsigned kHashBits = 16;

  std::uint64_t number = 0;         // of the call, from 1: other numbers are no part of `what`
  std::uint16_t hash = 0;           // of what is called: the same at all ranks
  std::span<const std::byte> what;  // plain data: replayed work is recognized by it
  Memory heads;                     // [ranks] u64 in the device's memory, used for nothing else
  std::uint32_t rank = 0;           // whose entry this rank writes
  std::span<const Rank> ranks;      // numbers of the group's ranks in the job
  TimelineId progress;              // 2 * number - 1 when the stream begins the call, 2 * number when it is done
  /// Poisoned before the library's work is ended: the call then ends the stream with that reason. Both lines are in an
  /// arena.
  TimelineId ended;
};

/// A stream on which libraries of its vendor can enqueue. It has a second lane beside the one of all its work: what is
/// enqueued there runs at the same time, also within recorded work, of which it is a part. Threads: those of Stream;
/// make_current, times_beside: any.
class LibraryStream {
 public:
  /// The calling thread's calls of the library go to the stream's device.
  virtual void make_current() const = 0;
  /// Where the device finds `memory`.
  virtual void* device_address(const Memory& memory) = 0;
  /// Enqueues the call. The stream ends with peer_lost that names a rank whose stream had failed, with invalid that
  /// names a rank which made another call, or with the reason of `ended`.
  virtual void call(LibraryCalls& library, const LibraryCall& call) = 0;

  /// Enqueues beside what `work` enqueues on this stream: behind earlier work there, and when all work enqueued on the
  /// main lane so far is done. `work` neither marks nor signals. If it throws, its earlier work stays. The point is one
  /// of this stream's own line: work enqueued here after wait(point), mark() or signal() comes behind the work beside,
  /// and the next mark() reaches it. What is enqueued before those does not wait for it.
  virtual Point beside(const std::function<void()>& work) = 0;
  /// Work enqueued on the stream from here on begins when all work beside is done.
  virtual void join_beside() = 0;
  /// As Stream's, of the work beside.
  virtual void trace_beside(TraceRow& row) = 0;
  /// How the lane beside has spent its time so far; what it waited for the main lane is `idle`.
  virtual StreamTimes times_beside() const noexcept = 0;

 protected:
  ~LibraryStream() = default;
};

}  // namespace troupe
