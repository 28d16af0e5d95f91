#pragma once

#include <cstddef>

#include "devices/cpu/kernels/panels.hpp"
#include "devices/cpu/program_builder.hpp"

namespace troupe::cpu {

/// A dense layer: output [rows, units] from input [rows, inputs] by weights [units, inputs].
struct DenseShape {
  std::size_t rows = 0, inputs = 0, units = 0;
  bool relu = false;        // after the forward pass
  ColumnOrder in_blocks{};  // of the input and the gradient to it
};

/// A product by PanelKernels, divided among threads.
struct PanelParts;

/// The passes of a dense layer by kernels of our own (PanelKernels), and the rule on shapes which of them use these, so
/// that two runs of one job compute the same bits. Memories are operands (ProgramBuilder::operand).
class PanelPasses {
 public:
  PanelPasses(ProgramBuilder& builder, const DenseShape& of);

  bool forward() const noexcept { return forward_; }
  bool to_input() const noexcept { return to_input_; }
  bool to_weights() const noexcept { return to_weights_; }
  const char* name() const noexcept { return kernels_->name; }

  /// `bias` is empty if there is none. Inputs must fill the words of the kernels, here and below.
  void forward(Calls& calls, const dnnl::memory& input, const dnnl::memory& weights, const dnnl::memory& bias,
               const dnnl::memory& output) const;
  /// Of a plain input. It brings weights into columns: many rows pay for that.
  void forward_of_rows(Calls& calls, const dnnl::memory& input, const dnnl::memory& weights, const dnnl::memory& bias,
                       const dnnl::memory& output) const;
  /// `input_gradient`: in the layout of the input, in the type of the operands.
  void to_input(Calls& calls, const dnnl::memory& gradient, const dnnl::memory& weights,
                const dnnl::memory& input_gradient) const;
  /// `weights` and `bias`, which is empty if there is none, are the gradients to these.
  void to_weights(Calls& calls, const dnnl::memory& input, const dnnl::memory& gradient, const dnnl::memory& weights,
                  const dnnl::memory& bias) const;

 private:
  dnnl::memory words(std::size_t count) const;
  /// The sums of more than `terms_at_once` products are added to f32 results.
  PanelParts parts(const PanelProduct& of, std::size_t terms_at_once) const;
  dnnl::memory room_of(const PanelParts& parts) const;
  /// Adds a product [rows, columns] that is f32, or is rounded. `bias`: empty if there is none.
  void add_rows(Calls& calls, const PanelParts& parts, const dnnl::memory& a, const dnnl::memory& b,
                const dnnl::memory& bias, const dnnl::memory& result) const;

  ProgramBuilder& builder_;
  const DenseShape of_;
  const std::size_t threads_;
  const PanelKernels* kernels_ = nullptr;  // null: this machine has none
  bool forward_ = false, to_input_ = false, to_weights_ = false;
  bool forward_by_units_ = false;  // neighbouring lanes have units of a row, not rows of a unit
};

}  // namespace troupe::cpu
