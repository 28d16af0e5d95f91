#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "devices/cuda/dnn_operation.hpp"
#include "devices/cuda/gpu.hpp"

namespace troupe::cuda {

/// Measures how long the GPU takes to compute a form, by an engine of cuDNN or by kernels of ours. All of them work on
/// the same tensors: memory of the timer's own, of the form's extents, filled with numbers other than 0. Runs are
/// recorded as in a step, so that the time does not contain the host's launches. It allocates memory and waits, so it
/// must be used before the first step.
class EngineTimer {
 public:
  /// Enqueues a run on the timer's stream; false: it cannot.
  using Enqueue = std::function<bool()>;

  /// Whether the driver measures times; a stand-in for it may not.
  static bool has_clock(const Gpu& gpu, StreamHandle stream);
  /// Whether forms of this kind can be measured.
  static bool can_measure(const DnnForm& form) noexcept;

  /// Of a form that can be measured. Throws Error{out_of_memory}.
  EngineTimer(std::shared_ptr<const Gpu> gpu, StreamHandle stream, const DnnForm& form);
  ~EngineTimer();
  EngineTimer(const EngineTimer&) = delete;
  EngineTimer& operator=(const EngineTimer&) = delete;

  const DnnPlaces& places() const noexcept { return places_; }
  /// Of at least so many bytes, until the next call; null: there is not so much.
  std::byte* workspace(std::uint64_t size_bytes);
  /// Microseconds of a run. Where the first one shows that it takes far longer than `best`, it is the time of that one.
  /// Without a value: it cannot be recorded.
  std::optional<float> time_of(const Enqueue& enqueue, float best) const;
  /// Of kernels of ours; without a value: they are not offered for this kind of form.
  std::optional<float> time_of_own(float best);

 private:
  std::uint64_t size_of(const DnnForm& form, std::size_t id) const;
  template <class Args>
  void launch(Args& args, std::uint64_t items) const;
  template <class Args>
  void convolve(const ConvolutionForm& form, std::int64_t result);

  const std::shared_ptr<const Gpu> gpu_;
  const StreamHandle stream_;
  const DnnForm form_;
  DnnPlaces places_{};
  DeviceMemory tensors_, workspace_, partial_;
  const DeviceMemory state_;
  EventHandle begin_ = nullptr, end_ = nullptr;
};

}  // namespace troupe::cuda
