#pragma once

#include <cstddef>

#include "devices/cpu/kernels/image_lanes.hpp"
#include "devices/cpu/layers/panel_dense.hpp"
#include "devices/cpu/program_builder.hpp"

namespace troupe::cpu {

/// The passes of a convolution whose output has few pixels, as those of a dense layer: a row of its input is the patch
/// of one pixel, in the order of the weights, which therefore stay as they are. A rule on shapes says where they are
/// used, so that two runs of one job compute the same bits. Memories are operands (ProgramBuilder::operand).
class PatchPasses {
 public:
  PatchPasses(ProgramBuilder& builder, const FusedLayer& fused_layer, const Conv2d& conv);

  bool gain() const noexcept { return gain_; }
  const char* name() const noexcept { return panels_.name(); }

  /// ReLU, where the layer has it, is applied. `bias` is empty if there is none.
  void forward(Calls& calls, const dnnl::memory& input, const dnnl::memory& weights, const dnnl::memory& bias,
               const dnnl::memory& output) const;
  /// `weights` and `bias`, which is empty if there is none, are the gradients to these.
  void to_weights(Calls& calls, const dnnl::memory& input, const dnnl::memory& gradient, const dnnl::memory& weights,
                  const dnnl::memory& bias) const;
  /// Of a kernel of one element: to the pixels that it reads, in plain layout. Otherwise in the layout of the input.
  void to_input(Calls& calls, const dnnl::memory& gradient, const dnnl::memory& weights,
                const dnnl::memory& input_gradient) const;

 private:
  /// Without bias and ReLU, and without patches.
  template <class Element>
  void forward_by_taps(Calls& calls, const dnnl::memory& input, const dnnl::memory& weights,
                       const dnnl::memory& output) const;
  /// The pixels that each element of the kernel reads, a copy that `calls` make.
  template <class Element>
  dnnl::memory taps(Calls& calls, const dnnl::memory& input) const;
  /// Whether the patches are the input as it lies.
  bool is_plain() const noexcept;
  /// The patches of the input: itself, or a copy that `calls` make.
  dnnl::memory patches(Calls& calls, const dnnl::memory& input) const;

  ProgramBuilder& builder_;
  const LaneConvolution of_;
  const DenseShape shape_;
  const std::size_t threads_;
  const bool in_blocks_;  // the input
  const PanelPasses panels_;
  bool gain_ = false;
  bool takes_taps_ = false;  // in the forward pass
};

}  // namespace troupe::cpu
