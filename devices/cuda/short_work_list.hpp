#pragma once

#include <cstddef>
#include <optional>

#include "devices/cuda/kernels/list.hpp"
#include "devices/cuda/recorded_work.hpp"

namespace troupe::cuda {

/// Launches of a recorded step that follow each other and have one thread each, collected for one kernel.
class ShortWorkList {
 public:
  explicit ShortWorkList(const StreamState* stream) noexcept { all_.stream = stream; }

  /// The step's first kernel.
  void begin(const LoadStepBlockArgs& load) noexcept { all_.load = load; }
  /// False: the launch is not such work, or cannot come behind what is collected.
  bool add(const Launch& launch, const std::byte* args) noexcept;
  /// The same for the step's last kernel.
  bool add(const EndStepBlockArgs& end) noexcept;
  /// Calls launch(kernel, arguments) for what is collected, if there is anything, and forgets it.
  template <class Launcher>
  void flush(Launcher&& launch);

 private:
  using Kind = ShortWork::Kind;
  template <class Args>
  bool take(Kind kind, const Args& args) noexcept;
  bool fits(Kind kind) const noexcept;
  static KernelId kernel_of(Kind kind) noexcept;

  ShortWorksArgs all_{};
  bool waits_ = false, signals_ = false;  // one of what is collected
};

/// One piece alone is its own kernel, whose name a profiler then shows.
template <class Launcher>
void ShortWorkList::flush(Launcher&& launch) {
  const bool loads = all_.load.ring != nullptr;
  const KernelId alone = kernel_of(all_.works[0].kind);
  if (loads && all_.count == 0)
    launch(KernelId::load_step_block, &all_.load);
  else if (loads || all_.count > 1 || (all_.count == 1 && alone == KernelId::short_works))
    launch(KernelId::short_works, &all_);
  else if (all_.count == 1)
    launch(alone, &all_.works[0].args);
  all_ = {.stream = all_.stream};
  waits_ = signals_ = false;
}

}  // namespace troupe::cuda
