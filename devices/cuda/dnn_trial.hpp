#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "devices/cuda/dnn_operation.hpp"
#include "devices/cuda/gpu.hpp"
#include "devices/cuda/kernels/products.hpp"

namespace troupe::cuda {

/// The length of the difference of two vectors, divided by that of the second one.
double relative_distance(const std::vector<float>& a, const std::vector<float>& b) noexcept;

/// Runs the library and kernels of ours on made-up numbers, to compare their results. It allocates memory and waits, so
/// it must be used before the first step.
class DnnTrial {
 public:
  /// Enqueues `form` by the library on the trial's stream; false: it cannot.
  using Run = std::function<bool(const DnnForm& form, const DnnPlaces& places)>;
  DnnTrial(std::shared_ptr<const Gpu> gpu, StreamHandle stream, Run run);
  ~DnnTrial();
  DnnTrial(const DnnTrial&) = delete;
  DnnTrial& operator=(const DnnTrial&) = delete;

  /// The length of the difference between the library's results and those of kernels of ours, divided by the length of
  /// the latter. NaN: the library did not run, or its results are NaN.
  double distance(const DnnForm& form);
  /// Whether a second run gave the same bits; for forms whose engines do not say whether they do.
  bool has_same_bits() const noexcept { return has_same_bits_; }

 private:
  double distance_of(const ConvolutionForm& form);
  template <class Args>
  double distance_of(const ConvolutionForm& form, std::int64_t result);
  double distance_of(const AttentionForm& form);
  double distance_of_gradient(const AttentionForm& form, const DnnPlaces& forward, const std::byte* weights);
  /// Runs `form` twice.
  bool run_again(const DnnForm& form, const DnnPlaces& places, const std::byte* result, std::uint64_t count);
  /// Multiples of an eighth: they are in every type, and sums of their products are exact in f32. The same for the same
  /// `seed`.
  std::byte* numbers(std::uint32_t seed, std::uint64_t count, Stored type);
  std::byte* memory(std::uint64_t size_bytes);
  template <class Args>
  void launch(Args& args, std::uint64_t items);
  void multiply(MultiplyArgs args);
  std::vector<float> read(const std::byte* from, std::uint64_t count, Stored type);
  double distance(const std::byte* found, const std::byte* own, std::uint64_t count, Stored type) {
    return relative_distance(read(found, count, type), read(own, count, type));
  }

  const std::shared_ptr<const Gpu> gpu_;
  const StreamHandle stream_;
  const Run run_;
  std::deque<DeviceMemory> memory_;
  std::deque<PinnedMemory> copied_;  // from where numbers are copied
  const DeviceMemory state_;
  bool has_same_bits_ = true;
};

/// What is tried in the place of `form`: the same of few rows. Attention over long texts has fewer heads, too, since
/// kernels of ours keep all weights of a head: its trial takes at most kMostTrialBytes, or what one row of one head
/// takes.
DnnForm form_to_try(const DnnForm& form);
inline constexpr std::uint64_t kMostTrialBytes = std::uint64_t{512} << 20;
/// What a trial of attention, or of its gradient, takes for weights, scores and the gradients to them.
std::uint64_t trial_bytes(const AttentionForm& form) noexcept;
/// The most that results may differ: what rounding in their type explains.
double most_distance(Stored type, bool tf32) noexcept;

}  // namespace troupe::cuda
