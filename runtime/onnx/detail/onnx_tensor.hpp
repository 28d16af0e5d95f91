#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/onnx/detail/external_data.hpp"

namespace troupe::detail {

inline constexpr std::size_t kMostDims = 16;  // of an array that nodes reshape, or of computed numbers

/// Numbers that a file has or computes: f32, or whole ones.
struct OnnxNumbers {
  std::vector<std::int64_t> dims;
  bool whole = false;
  std::vector<float> f32;              // as many as the dims say
  std::vector<std::int64_t> integers;  // likewise
  std::vector<bool> of_rows{};         // which integers are multiples of the number of rows; empty: none
  std::string_view name{};             // of the tensor in the file; computed numbers keep that of what they are made of

  std::size_t count() const noexcept { return whole ? integers.size() : f32.size(); }
  double at(std::size_t i) const { return whole ? static_cast<double>(integers[i]) : f32[i]; }
  bool is_of_rows(std::size_t i) const { return !of_rows.empty() && of_rows[i]; }
};

/// Whether ONNX's type has whole numbers here; a type that is not read counts as whole.
bool is_whole(std::int64_t type) noexcept;

/// The numbers of a tensor message, which may lie in another file. Floats of 16 and 64 bits become f32. Allocates no
/// more than a few times the bytes that are there. Throws Error{invalid}, Error{unsupported} for a type that is not
/// read.
OnnxNumbers parse_tensor(std::span<const std::byte> message, ExternalData& external);

}  // namespace troupe::detail
