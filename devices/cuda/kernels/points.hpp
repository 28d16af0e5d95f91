#pragma once

#include "devices/cuda/kernels/kernel.hpp"

// Waits for lines, signals to them, and the step block of recorded work.
namespace troupe::cuda {

/// A line's word is at least this once the line is poisoned (Timeline::kPoisonedWord).
inline constexpr std::uint64_t kPoisonedBit = std::uint64_t{1} << 63;

struct PointPlace {
  std::uint64_t* word = nullptr;  // of the line, in memory of the host
  std::uint64_t value = 0;
};

struct WaitArgs {
  StreamState* stream;
  StreamReport* report;       // of the stream
  std::uint64_t deadline_ns;  // from the moment it begins
  Given<PointPlace> given;
};

/// Ends the stream: what follows does nothing, and the host is told why.
TROUPE_KERNEL_BODY void end_stream(const Block& block, StreamState* stream, StreamReport* report, StreamFault why,
                                   std::uint64_t word, std::uint64_t value) {
  block.at(stream)->failed = static_cast<std::uint32_t>(why);
  StreamReport* const told = block.at(report);
  told->word = word;
  told->value = value;
  Block::release(&told->fault, static_cast<std::uint64_t>(why));
}

/// One thread: returns when the line has come to the value, or ends the stream: when the line is poisoned below it,
/// when the wait is overdue, or when the host ends it.
TROUPE_KERNEL_BODY void wait(const Block& block, const WaitArgs& args) {
  block.once([&] {
    const PointPlace point = block.values(args.given);
    const std::uint64_t* const word = block.at(point.word);
    const StreamReport* const report = block.at(args.report);
    const std::uint64_t begun = Block::now_ns();
    StreamFault why = StreamFault::none;
    for (;;) {
      const std::uint64_t seen = Block::acquire(word);
      if ((seen & ~kPoisonedBit) >= point.value) return;
      if ((seen & kPoisonedBit) != 0) why = StreamFault::poisoned;
      if (Block::acquire(&report->end) != 0) why = StreamFault::ended;
      if (Block::now_ns() - begun > args.deadline_ns) why = StreamFault::overdue;
      if (why != StreamFault::none) break;
      Block::pause();
    }
    end_stream(block, args.stream, args.report, why, reinterpret_cast<std::uintptr_t>(point.word), point.value);
  });
}

struct SignalArgs {
  const StreamState* stream;
  Given<PointPlace> given;
};

/// One thread: raises the line to the value. The host sets the bit of a poison again that came in the same moment.
TROUPE_KERNEL_BODY void signal(const Block& block, const SignalArgs& args) {
  block.once([&] {
    const PointPlace point = block.values(args.given);
    std::uint64_t* const word = block.at(point.word);
    const std::uint64_t poison = Block::acquire(word) & kPoisonedBit;
    Block::release(word, point.value | poison);
  });
}

/// Counts a program's replays, in device memory.
struct ReplayCount {
  std::uint64_t begun = 0;
};

struct LoadStepBlockArgs {
  const StreamState* stream;
  ReplayCount* count;
  const std::uint64_t* ring;  // [slots, words] in pinned memory
  std::uint64_t* to;          // [words] in device memory
  std::uint32_t slots;
  std::uint32_t words;
};

/// One block, the first of a program: brings the values of this replay to where its kernels read them.
TROUPE_KERNEL_BODY void load_step_block(const Block& block, const LoadStepBlockArgs& args) {
  ReplayCount* const count = block.at(args.count);
  const std::uint64_t* const from = block.at(args.ring) + (count->begun % args.slots) * args.words;
  std::uint64_t* const to = block.at(args.to);
  block.for_each_here(args.words, [&](std::uint64_t i) { to[i] = from[i]; });
  block.barrier();
  block.once([&] { ++count->begun; });
}

struct EndStepBlockArgs {
  const StreamState* stream;
  const ReplayCount* count;
  std::uint64_t* done;  // in pinned memory
};

/// One thread, the last of a program: tells the host how many replays are done.
TROUPE_KERNEL_BODY void end_step_block(const Block& block, const EndStepBlockArgs& args) {
  block.once([&] { Block::release(block.at(args.done), block.at(args.count)->begun); });
}

#if !defined(__CUDACC__)
inline void declare(Accesses& touched, const WaitArgs& args) {
  touched.acquires(touched.values(args.given).word);
  touched.writes(args.stream, sizeof *args.stream);
  touched.writes(args.report, sizeof *args.report);
}
inline void declare(Accesses& touched, const SignalArgs& args) { touched.releases(touched.values(args.given).word); }
inline void declare(Accesses& touched, const LoadStepBlockArgs& args) {
  const std::uint64_t slot = touched.at(args.count)->begun % args.slots;
  touched.reads(args.ring + slot * args.words, args.words * sizeof(std::uint64_t));
  touched.writes(args.to, args.words * sizeof(std::uint64_t));
  touched.writes(args.count, sizeof *args.count);
}
inline void declare(Accesses& touched, const EndStepBlockArgs& args) {
  touched.reads(args.count, sizeof *args.count);
  touched.releases(args.done);
}
#endif

}  // namespace troupe::cuda
