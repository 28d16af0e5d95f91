#include <algorithm>
#include <cstring>

#include "devices/cpu/layers/layers.hpp"

namespace troupe::cpu {
namespace {

using dnnl::memory;

/// One loop over elements: its length, and the distance between consecutive elements on both sides, in elements.
struct Loop {
  std::size_t count = 1, from = 0, to = 0;
};

/// The loops that copy a tensor of all rows with its extents in another order, the outermost first. Extents that stay
/// adjacent are one loop. In the last loop elements of the output are adjacent.
class Copying {
 public:
  /// `shape` [...] is the shape of a row of the input; extent k of the output is extent order[k] of the input.
  Copying(std::uint32_t rows, const Shape& shape, const std::vector<std::uint32_t>& order) {
    const std::vector<std::uint32_t>& extents = shape.extents;
    std::vector<std::size_t> strides(extents.size(), 1);
    for (std::size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
    const std::size_t row = shape.count_elements();
    std::size_t to = row;
    add({rows, row, row});
    for (const std::uint32_t extent : order) {
      to /= extents[extent];
      add({extents[extent], strides[extent], to});
    }
    if (loops_.empty()) loops_.push_back({1, 1, 1});
    // The loop in which elements of the input are adjacent becomes the last but one: then both are copied in tiles.
    const auto near = std::ranges::find(loops_, std::size_t{1}, &Loop::from);
    if (near != loops_.end() && near + 1 != loops_.end()) std::rotate(near, near + 1, loops_.end() - 1);
  }

  template <class T>
  void run(T* to, const T* from) const {
    copy<T>(0, to, from);
  }

 private:
  void add(const Loop& loop) {
    if (loop.count == 1) return;
    if (!loops_.empty() && loops_.back().from == loop.from * loop.count) {
      loops_.back() = {loops_.back().count * loop.count, loop.from, loop.to};
    } else {
      loops_.push_back(loop);
    }
  }

  template <class T>
  void copy(std::size_t depth, T* to, const T* from) const {
    const Loop& loop = loops_[depth];
    if (depth + 1 == loops_.size()) {
      if (loop.from == 1) {
        std::memcpy(to, from, loop.count * sizeof(T));
      } else {
        for (std::size_t i = 0; i < loop.count; ++i) to[i * loop.to] = from[i * loop.from];
      }
    } else if (depth + 2 == loops_.size() && loop.from == 1) {
      copy_tiles(loop, loops_.back(), to, from);
    } else {
      for (std::size_t i = 0; i < loop.count; ++i) copy(depth + 1, to + i * loop.to, from + i * loop.from);
    }
  }

  /// Transposes a matrix by tiles whose cache lines stay in the cache on both sides.
  template <class T>
  static void copy_tiles(const Loop& near, const Loop& far, T* to, const T* from) {
    constexpr std::size_t kTile = 16;
    for (std::size_t i = 0; i < near.count; i += kTile) {
      const std::size_t i_end = std::min(i + kTile, near.count);
      for (std::size_t j = 0; j < far.count; j += kTile) {
        const std::size_t j_end = std::min(j + kTile, far.count);
        for (std::size_t a = i; a < i_end; ++a)
          for (std::size_t b = j; b < j_end; ++b) to[a * near.to + b * far.to] = from[a * near.from + b * far.from];
      }
    }
  }

  std::vector<Loop> loops_;
};

class TransposeCalls final : public LayerCalls {
 public:
  TransposeCalls(ProgramBuilder& builder, const FusedLayer& fused_layer, const Transpose& transpose)
      : builder_(builder), fused_layer_(fused_layer), order_(transpose.order) {}

  void forward(Calls& calls) override {
    add(calls, builder_.tensor(fused_layer_.output).value, builder_.tensor(fused_layer_.inputs.front()).value,
        Copying{builder_.rows(), fused_layer_.input_shape, order_});
  }

  void backward(Calls& calls, Gradients& gradients) override {
    std::vector<std::uint32_t> back(order_.size());
    for (std::uint32_t k = 0; k < order_.size(); ++k) back[order_[k]] = k;
    add_backward(builder_, fused_layer_, calls, gradients, [&](const memory& gradient, const memory& input_gradient) {
      if (input_gradient)
        add(calls, input_gradient, gradient, Copying{builder_.rows(), fused_layer_.output_shape, back});
    });
  }

 private:
  static void add(Calls& calls, const memory& to, const memory& from, Copying copying) {
    calls.emplace_back(OwnWork{
        {to, from}, [to, from, copying = std::move(copying)](const Kernels&) {
          if (is_f32(to)) {
            copying.run(static_cast<float*>(to.get_data_handle()), static_cast<const float*>(from.get_data_handle()));
          } else {
            using Half = std::uint16_t;
            copying.run(static_cast<Half*>(to.get_data_handle()), static_cast<const Half*>(from.get_data_handle()));
          }
        }});
  }

  ProgramBuilder& builder_;
  const FusedLayer& fused_layer_;
  const std::vector<std::uint32_t> order_;
};

}  // namespace

std::unique_ptr<LayerCalls> make_transpose(ProgramBuilder& builder, const FusedLayer& fused_layer,
                                           const Transpose& transpose) {
  return std::make_unique<TransposeCalls>(builder, fused_layer, transpose);
}

}  // namespace troupe::cpu
