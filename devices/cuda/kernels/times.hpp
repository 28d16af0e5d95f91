#pragma once

#include "devices/cuda/kernels/kernel.hpp"

// Times at which a stream comes from one piece of its work to the next.
namespace troupe::cuda {

/// A stream's newest times, in pinned memory: time number n is in word n % kTimesKept, with its lap (1 + n /
/// kTimesKept) in the bits above kTimeBits, by which the host sees whether it is there, and whether it was overwritten.
inline constexpr std::uint32_t kTimesKept = 8192;
inline constexpr unsigned kTimeBits = 48;  // of nanoseconds, which come back after 78 hours
inline constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;

/// Where a lane of a stream notes its times.
struct TimesPlace {
  std::uint64_t* ring = nullptr;   // [kTimesKept] in pinned memory; null: it notes none
  std::uint64_t* count = nullptr;  // that were written, in device memory
};

/// One thread: writes what time it is.
TROUPE_KERNEL_BODY void write_time(const Block& block, const TimesPlace& times) {
  if (times.ring == nullptr) return;
  const auto number = static_cast<std::uint32_t>((*block.at(times.count))++);
  const std::uint64_t lap = 1 + number / kTimesKept;
  Block::post(block.at(times.ring) + number % kTimesKept, lap << kTimeBits | (Block::now_ns() & kTimeMask));
}

struct NoteTimeArgs {
  const StreamState* stream;
  TimesPlace times;
};

TROUPE_KERNEL_BODY void note_time(const Block& block, const NoteTimeArgs& args) {
  block.once([&] { write_time(block, args.times); });
}

#if !defined(__CUDACC__)
inline void declare_time(Accesses& touched, const TimesPlace& times) {
  if (times.ring == nullptr) return;
  touched.writes(times.count, sizeof *times.count);
  touched.writes(times.ring, kTimesKept * sizeof *times.ring);
}
inline void declare(Accesses& touched, const NoteTimeArgs& args) { declare_time(touched, args.times); }
#endif

}  // namespace troupe::cuda
