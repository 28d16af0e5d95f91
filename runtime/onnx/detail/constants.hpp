#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/onnx/detail/onnx_file.hpp"

namespace troupe::detail {

/// What a node computes of numbers that the file has: shapes, masks, transposed weights. Only such nodes are evaluated,
/// and never one that reads data.
class Constants {
 public:
  /// All arrays together may have `most_numbers`: small files can ask for large ones.
  explicit Constants(std::uint64_t most_numbers) : left_(most_numbers) {}

  /// What the node puts out of `inputs` (null: left out). Nothing: this operation is not known, or not of such
  /// numbers. Throws Error{unsupported} if it would be too many numbers.
  std::optional<OnnxNumbers> computed(const OnnxNode& node, std::span<const OnnxNumbers* const> inputs);

 private:
  std::uint64_t left_;
};

}  // namespace troupe::detail
