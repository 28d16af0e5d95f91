#pragma once

#include <string>

#include "runtime/model/layout.hpp"

namespace troupe::testing {

/// The batch of a classifier: "image" of this shape, and "label".
inline BatchLayout image_batch(std::uint32_t rows, Shape shape, DType dtype = DType::f32) {
  return {rows, {{std::string{kImage}, std::move(shape), dtype}, {std::string{kLabel}, {}, DType::i32}}};
}

/// The labels in such a batch, which lies at `slot`.
template <class Byte>
auto* labels_in(const BatchLayout& batch, Byte* slot) {
  using Label = std::conditional_t<std::is_const_v<Byte>, const std::int32_t, std::int32_t>;
  return reinterpret_cast<Label*>(slot + batch.entry(kLabel).offset);
}

}  // namespace troupe::testing
