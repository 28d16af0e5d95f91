#pragma once

#include "devices/cuda/kernels/points.hpp"
#include "devices/cuda/kernels/sums.hpp"

// Work of one thread, several pieces in one kernel: on a GPU the launch of each costs more than what it does.
namespace troupe::cuda {

/// sum_up, whose values are in a step block.
struct SumUpShortArgs {
  std::uint64_t count_parts;
  const SumUpValues* values;
};

/// One piece: the arguments of a kernel of that name.
struct ShortWork {
  enum class Kind : std::uint32_t { note_time, wait, signal, copy_sums, sum_up, end_step_block };
  static constexpr std::size_t kMostBytes = 64;
  Kind kind = Kind::note_time;
  std::uint32_t reserved = 0;
  alignas(8) std::byte args[kMostBytes] = {};

  template <class Args>
  TROUPE_KERNEL_MEMBER const Args& as() const {
    static_assert(sizeof(Args) <= kMostBytes);
    return *reinterpret_cast<const Args*>(args);
  }
};

inline constexpr std::uint32_t kMostShortWorks = 16;
struct ShortWorksArgs {
  const StreamState* stream;
  LoadStepBlockArgs load;  // comes first; without a ring: nothing is loaded
  std::uint32_t count;
  std::uint32_t reserved;
  ShortWork works[kMostShortWorks];
};

TROUPE_KERNEL_BODY void do_short_work(const Block& block, const ShortWork& work) {
  switch (work.kind) {
    case ShortWork::Kind::note_time: return note_time(block, work.as<NoteTimeArgs>());
    case ShortWork::Kind::wait: return wait(block, work.as<WaitArgs>());
    case ShortWork::Kind::signal: return signal(block, work.as<SignalArgs>());
    case ShortWork::Kind::copy_sums: return copy_sums(block, work.as<CopySumsArgs>());
    case ShortWork::Kind::sum_up:
      return add_up_sums(block, work.as<SumUpShortArgs>().count_parts, *block.at(work.as<SumUpShortArgs>().values));
    case ShortWork::Kind::end_step_block: return end_step_block(block, work.as<EndStepBlockArgs>());
  }
}

/// One block. A wait may fail: then the pieces behind it do nothing.
TROUPE_KERNEL_BODY void short_works(const Block& block, const ShortWorksArgs& args) {
  if (args.load.ring != nullptr) load_step_block(block, args.load);
  const StreamState* const state = block.at(args.stream);
  block.once([&] {
    for (std::uint32_t w = 0; w < args.count; ++w) {
      if (state != nullptr && Block::glance(&state->failed) != 0) return;
      do_short_work(block, args.works[w]);
    }
  });
}

#if !defined(__CUDACC__)
/// Values that the kernel itself loads are still in the ring when it is declared.
template <class Args>
Args with_values_of(const Accesses& touched, const LoadStepBlockArgs& load, Args args) {
  const auto* const at = reinterpret_cast<const std::uint64_t*>(args.given.block);
  if (load.ring == nullptr || at < load.to || at >= load.to + load.words) return args;
  const std::uint64_t slot = touched.at(load.count)->begun % load.slots;
  args.given.block = reinterpret_cast<decltype(args.given.block)>(load.ring + slot * load.words + (at - load.to));
  return args;
}
inline void declare(Accesses& touched, const ShortWork& work, const LoadStepBlockArgs& load) {
  switch (work.kind) {
    case ShortWork::Kind::note_time: return declare(touched, work.as<NoteTimeArgs>());
    case ShortWork::Kind::wait: return declare(touched, with_values_of(touched, load, work.as<WaitArgs>()));
    case ShortWork::Kind::signal: return declare(touched, with_values_of(touched, load, work.as<SignalArgs>()));
    case ShortWork::Kind::copy_sums: return declare(touched, with_values_of(touched, load, work.as<CopySumsArgs>()));
    case ShortWork::Kind::sum_up: {
      SumUpArgs whole{nullptr, work.as<SumUpShortArgs>().count_parts, {}};
      whole.given.block = work.as<SumUpShortArgs>().values;
      return declare(touched, with_values_of(touched, load, whole));
    }
    case ShortWork::Kind::end_step_block: return declare(touched, work.as<EndStepBlockArgs>());
  }
}
inline void declare(Accesses& touched, const ShortWorksArgs& args) {
  if (args.load.ring != nullptr) declare(touched, args.load);
  for (std::uint32_t w = 0; w < args.count; ++w) declare(touched, args.works[w], args.load);
}
#endif

}  // namespace troupe::cuda
