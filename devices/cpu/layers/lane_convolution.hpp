#pragma once

#include "devices/cpu/kernels/image_lanes.hpp"
#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {

/// The shape of a convolution without groups and dilation.
LaneConvolution lane_convolution(const FusedLayer& fused_layer, const Conv2d& conv);

/// The passes of a convolution by kernels of our own that have one image in each lane of a vector (image_lanes.hpp).
/// All operands are plain images and parameters of the computed type; gradients to parameters are f32.
class LanePasses {
 public:
  /// `conv` in a program of `builder`.
  LanePasses(ProgramBuilder& builder, const FusedLayer& fused_layer, const Conv2d& conv);

  // Whether to compute a pass this way: a rule on shapes, so that two runs of one job compute the same bits.
  bool gain_forward() const noexcept { return forward_; }
  bool gain_to_input() const noexcept { return to_input_; }
  bool gain_to_weights() const noexcept { return to_weights_; }
  const char* name() const noexcept { return kernels_->name; }
  /// Whether forward() applies it to the output.
  static bool takes(Activation activation) noexcept;

  /// `bias`, also in to_weights(): empty if there is none.
  void forward(Calls& calls, const dnnl::memory& input, const dnnl::memory& weights, const dnnl::memory& bias,
               const dnnl::memory& output) const;
  void to_input(Calls& calls, const dnnl::memory& gradient, const dnnl::memory& weights,
                const dnnl::memory& input_gradient) const;
  void to_weights(Calls& calls, const dnnl::memory& input, const dnnl::memory& gradient, const dnnl::memory& weights,
                  const dnnl::memory& bias) const;

  struct Groups;

 private:
  dnnl::memory words(std::size_t count) const;
  Groups groups() const;

  ProgramBuilder& builder_;
  const LaneKernels* kernels_ = nullptr;  // null: this machine has none
  LaneConvolution of_;
  std::size_t threads_ = 1;
  bool forward_ = false, to_input_ = false, to_weights_ = false;
};

}  // namespace troupe::cpu
