#include "devices/cpu/layers/own_dense.hpp"

#include <algorithm>

#include "devices/cpu/parallel.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;
using Type = ProgramBuilder::Type;

/// A thread computes a range of units.
struct OwnDense {
  /// Rows of which a block of inputs stays in the second-level cache.
  static constexpr std::size_t kMostRows = 128;

  const DenseKernels* kernels;
  DenseProduct of;
  std::size_t element_bytes, threads;
  memory input, weights, bias, sums, bf16, room;  // bias, bf16: empty if there is none

  void operator()(const Kernels&) const {
    const std::size_t groups = (of.units + DenseKernels::kUnits - 1) / DenseKernels::kUnits;
    const std::size_t parts = std::min(threads, groups);
    const auto first_unit = [&](std::size_t part) { return groups * part / parts * DenseKernels::kUnits; };
    for_each_in_parallel(parts, parts, [&](std::size_t part, std::size_t) {
      compute(first_unit(part), std::min(of.units, first_unit(part + 1)), part);
    });
  }

  void compute(std::size_t first_unit, std::size_t end_unit, std::size_t part) const {
    DenseProduct some = of;
    some.first_unit = first_unit;
    some.end_unit = end_unit;
    for (std::size_t row = 0; row < of.rows; row += kMostRows) {
      some.rows = std::min(kMostRows, of.rows - row);
      kernels->forward(some, {.input = at<std::byte>(input, row * of.inputs * element_bytes),
                              .weights = at<std::byte>(weights, 0),
                              .bias = at<float>(bias, 0),
                              .sums = at<float>(sums, row * of.units),
                              .bf16 = at<std::uint16_t>(bf16, row * of.units),
                              .room = at<std::byte>(room, part * room_bytes(of.rows))});
    }
  }

  static std::size_t room_bytes(std::size_t rows) { return DenseKernels::room_bytes(std::min(kMostRows, rows)); }

  template <class T>
  static T* at(const memory& of, std::size_t index) {
    return of ? static_cast<T*>(of.get_data_handle()) + index : nullptr;
  }
};

}  // namespace

void add_own_dense(ProgramBuilder& builder, Calls& calls, const DenseKernels& kernels, const DenseShape& of,
                   const DenseMemories& on) {
  const auto threads = usable_threads();
  const auto place = [&](std::size_t count) { return builder.places().take(builder.matrix(1, count, Type::f32)); };
  OwnDense call{.kernels = &kernels,
                .of = {.rows = of.rows, .inputs = of.inputs, .units = of.units, .relu = of.relu},
                .element_bytes = builder.computed() == Type::bf16 ? sizeof(std::uint16_t) : sizeof(float),
                .threads = threads,
                .input = on.input,
                .weights = on.weights,
                .bias = on.bias,
                .sums = is_f32(on.output) ? on.output : place(of.rows * of.units),
                .bf16 = is_f32(on.output) ? memory{} : on.output,
                .room = place(threads * OwnDense::room_bytes(of.rows) / sizeof(float))};
  calls.emplace_back(OwnWork{{call.input, call.weights, call.sums, call.room, call.bias, call.bf16},
                             std::move(call),
                             /*is_product=*/true});
}

}  // namespace troupe::cpu
