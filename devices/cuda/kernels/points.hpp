#pragma once

#include "devices/cuda/kernels/times.hpp"

// Waits for lines, signals to them, and the step block of recorded work.
namespace troupe::cuda {

/// A line's word is at least this once the line is poisoned (Timeline::kPoisonedWord).
inline constexpr std::uint64_t kPoisonedBit = std::uint64_t{1} << 63;
inline constexpr unsigned kCallHashBits = 16;  // LibraryCall::kHashBits

struct PointPlace {
  std::uint64_t* word = nullptr;  // of the line, in memory of the host
  std::uint64_t value = 0;
};

struct WaitArgs {
  StreamState* stream;
  StreamReport* report;       // of the stream
  TimesPlace times;           // when it begins, and when it ends
  std::uint64_t deadline_ns;  // from the moment it begins
  Given<PointPlace> given;
};

/// Ends the stream: what follows does nothing, and the host is told why. Many threads may find a reason at once; the
/// first one's is told.
TROUPE_KERNEL_BODY void end_stream(const Block& block, StreamState* stream, StreamReport* report, StreamFault why,
                                   std::uint64_t word, std::uint64_t value) {
  if (!Block::claim(&block.at(stream)->failed, static_cast<std::uint32_t>(why))) return;
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
    write_time(block, args.times);
    const std::uint64_t begun = Block::now_ns();
    StreamFault why = StreamFault::none;
    for (;;) {
      const std::uint64_t seen = Block::acquire(word);
      if ((seen & ~kPoisonedBit) >= point.value) return write_time(block, args.times);
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
  TimesPlace times;  // whoever sees the point also sees the time
  Given<PointPlace> given;
};

/// One thread: raises the line to the value. The host sets the bit of a poison again that came in the same moment.
TROUPE_KERNEL_BODY void signal(const Block& block, const SignalArgs& args) {
  block.once([&] {
    const PointPlace point = block.values(args.given);
    std::uint64_t* const word = block.at(point.word);
    const std::uint64_t before = Block::peek(word);  // on its way over the bus while the time is written
    write_time(block, args.times);
    Block::release(word, point.value | (before & kPoisonedBit));
  });
}

/// Ranks of a group whose calls are compared, at most.
inline constexpr std::uint32_t kMostCallRanks = 256;

/// Which call of a library a rank makes: `number << kCallHashBits | hash`, where the hash tells what is called.
struct CallHead {
  std::uint64_t head = 0;
};

struct BeginCallArgs {
  const StreamState* stream;
  std::uint64_t* progress;  // word of a line, in memory of the host
  std::uint64_t* head;      // this rank's, in device memory
  Given<CallHead> given;
};

/// One thread: says which call this rank makes. A stream that has failed leaves the head of an earlier call there.
TROUPE_KERNEL_BODY void begin_call(const Block& block, const BeginCallArgs& args) {
  block.once([&] {
    const std::uint64_t head = block.values(args.given).head;
    *block.at(args.head) = head;
    Block::release(block.at(args.progress), 2 * (head >> kCallHashBits) - 1);
  });
}

struct EndCallArgs {
  StreamState* stream;
  StreamReport* report;
  std::uint64_t* progress;
  const std::uint64_t* ended;  // word of a line that the host poisons before it ends the library's work
  const std::uint64_t* heads;  // [ranks] in device memory, as the call has gathered them
  std::uint32_t ranks;
  std::uint32_t names[kMostCallRanks];  // of the ranks in the job
  Given<CallHead> given;
};

/// One thread: ends the stream unless every rank has made this very call, and the host has not ended it.
TROUPE_KERNEL_BODY void end_call(const Block& block, const EndCallArgs& args) {
  block.once([&] {
    const std::uint64_t head = block.values(args.given).head;
    if ((Block::acquire(block.at(args.ended)) & kPoisonedBit) != 0)
      return end_stream(block, args.stream, args.report, StreamFault::poisoned,
                        reinterpret_cast<std::uintptr_t>(args.ended), head);
    const std::uint64_t* const heads = block.at(args.heads);
    for (std::uint32_t r = 0; r < args.ranks; ++r) {
      if (heads[r] == head) continue;
      const bool same_number = heads[r] >> kCallHashBits == head >> kCallHashBits;
      return end_stream(block, args.stream, args.report,
                        same_number ? StreamFault::rank_differs : StreamFault::rank_failed, heads[r], args.names[r]);
    }
    Block::release(block.at(args.progress), 2 * (head >> kCallHashBits));
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
/// Of a kernel that may end its stream.
inline void declare_end(Accesses& touched, const StreamState* stream, const StreamReport* report) {
  touched.shares(stream, sizeof *stream);
  touched.shares(report, sizeof *report);
}
inline void declare(Accesses& touched, const WaitArgs& args) {
  touched.acquires(touched.values(args.given).word);
  declare_end(touched, args.stream, args.report);
  declare_time(touched, args.times);
}
inline void declare(Accesses& touched, const SignalArgs& args) {
  touched.releases(touched.values(args.given).word);
  declare_time(touched, args.times);
}
inline void declare(Accesses& touched, const BeginCallArgs& args) {
  (void)touched.values(args.given);
  touched.writes(args.head, sizeof *args.head);
  touched.releases(args.progress);
}
/// Not the word of `ended`: that it is not poisoned says nothing about what the host has done before.
inline void declare(Accesses& touched, const EndCallArgs& args) {
  (void)touched.values(args.given);
  touched.reads(args.heads, args.ranks * sizeof(std::uint64_t));
  declare_end(touched, args.stream, args.report);
  touched.releases(args.progress);
}
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
