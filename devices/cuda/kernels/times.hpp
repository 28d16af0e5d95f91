#pragma once

#include "devices/cuda/kernels/kernel.hpp"

// Times at which a stream comes from one piece of its work to the next.
namespace troupe::cuda {

/// A stream's newest times, in pinned memory: time number n is in word n % kTimesKept, with its lap (1 + n /
/// kTimesKept) in the bits above kTimeBits, by which the host sees whether it is there, and whether it was overwritten.
inline constexpr std::uint32_t kTimesKept = 8192;
inline constexpr unsigned kTimeBits = 48;  // of nanoseconds, which come back after 78 hours
inline constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;

/// One thread: writes what time it is to the stream's ring `times`; null: nothing.
TROUPE_KERNEL_BODY void write_time(const Block& block, StreamState* stream, std::uint64_t* times) {
  if (times == nullptr) return;
  StreamState* const state = block.at(stream);
  const std::uint32_t number = state->count_times++;
  const std::uint64_t lap = 1 + number / kTimesKept;
  Block::post(block.at(times) + number % kTimesKept, lap << kTimeBits | (Block::now_ns() & kTimeMask));
}

struct NoteTimeArgs {
  StreamState* stream;
  std::uint64_t* times;  // [kTimesKept]
};

TROUPE_KERNEL_BODY void note_time(const Block& block, const NoteTimeArgs& args) {
  block.once([&] { write_time(block, args.stream, args.times); });
}

#if !defined(__CUDACC__)
inline void declare_time(Accesses& touched, const StreamState* stream, const std::uint64_t* times) {
  if (times == nullptr) return;
  touched.writes(stream, sizeof *stream);
  touched.writes(times, kTimesKept * sizeof *times);
}
inline void declare(Accesses& touched, const NoteTimeArgs& args) { declare_time(touched, args.stream, args.times); }
#endif

}  // namespace troupe::cuda
