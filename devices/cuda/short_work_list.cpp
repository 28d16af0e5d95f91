#include "devices/cuda/short_work_list.hpp"

#include <cstring>

namespace troupe::cuda {
namespace {

std::optional<ShortWork::Kind> kind_of(KernelId kernel) noexcept {
  using Kind = ShortWork::Kind;
  switch (kernel) {
    case KernelId::note_time: return Kind::note_time;
    case KernelId::wait: return Kind::wait;
    case KernelId::signal: return Kind::signal;
    case KernelId::copy_sums: return Kind::copy_sums;
    case KernelId::sum_up: return Kind::sum_up;
    default: return std::nullopt;
  }
}

}  // namespace

/// What reads or writes memory comes before waits and signals: the search for races orders a kernel's accesses before
/// what it waits for, and all of a kernel before what it signals. So a signal does not come behind a wait either.
bool ShortWorkList::fits(Kind kind) const noexcept {
  if (all_.count == kMostShortWorks) return false;
  switch (kind) {
    case Kind::note_time:
    case Kind::end_step_block: return true;
    case Kind::wait: return !signals_;
    case Kind::signal: return !waits_;
    case Kind::copy_sums:
    case Kind::sum_up: return !waits_ && !signals_;
  }
  return false;
}

template <class Args>
bool ShortWorkList::take(Kind kind, const Args& args) noexcept {
  if (!fits(kind)) return false;
  waits_ = waits_ || kind == Kind::wait;
  signals_ = signals_ || kind == Kind::signal;
  ShortWork& work = all_.works[all_.count++];
  work.kind = kind;
  static_assert(sizeof(Args) <= sizeof work.args);
  std::memcpy(work.args, &args, sizeof args);
  return true;
}

bool ShortWorkList::add(const Launch& launch, const std::byte* args) noexcept {
  const auto kind = kind_of(launch.kernel);
  if (!kind || launch.lane != Lane::main) return false;
  switch (*kind) {
    case Kind::note_time: return take(*kind, *reinterpret_cast<const NoteTimeArgs*>(args));
    case Kind::wait: return take(*kind, *reinterpret_cast<const WaitArgs*>(args));
    case Kind::signal: return take(*kind, *reinterpret_cast<const SignalArgs*>(args));
    case Kind::copy_sums: return take(*kind, *reinterpret_cast<const CopySumsArgs*>(args));
    case Kind::sum_up: {
      const auto& whole = *reinterpret_cast<const SumUpArgs*>(args);
      return take(*kind, SumUpShortArgs{whole.count_parts, whole.given.block});
    }
    case Kind::end_step_block: return false;
  }
  return false;
}

bool ShortWorkList::add(const EndStepBlockArgs& end) noexcept { return take(Kind::end_step_block, end); }

KernelId ShortWorkList::kernel_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::note_time: return KernelId::note_time;
    case Kind::wait: return KernelId::wait;
    case Kind::signal: return KernelId::signal;
    case Kind::copy_sums: return KernelId::copy_sums;
    case Kind::sum_up: return KernelId::short_works;  // whose arguments are shorter here
    case Kind::end_step_block: return KernelId::end_step_block;
  }
  return KernelId::count;
}

}  // namespace troupe::cuda
