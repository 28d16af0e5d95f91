#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/onnx/detail/onnx_tensor.hpp"

namespace troupe::detail {

struct OnnxNode {
  std::string_view operation, name, domain;
  std::vector<std::string_view> inputs, outputs;  // an input that is left out is empty
  std::map<std::string_view, std::int64_t> numbers;
  std::map<std::string_view, float> f32s;
  std::map<std::string_view, std::string_view> texts;
  std::map<std::string_view, std::vector<std::int64_t>> lists;
  std::map<std::string_view, OnnxNumbers> tensors;

  std::int64_t number(std::string_view attribute, std::int64_t otherwise) const;
  float f32(std::string_view attribute, float otherwise) const;
  std::string_view text(std::string_view attribute, std::string_view otherwise) const;
  /// Null: it is not there.
  const std::vector<std::int64_t>* list(std::string_view attribute) const;
};

/// What goes in or out. Of dims, 0 stands for one that is not told.
struct OnnxValue {
  std::string_view name;
  bool whole = false;
  std::vector<std::int64_t> dims;
};

/// A file as it is, whose bytes outlive it. Nodes stand behind those that they read.
struct OnnxFile {
  std::string_view name;
  std::vector<OnnxNode> nodes;
  std::map<std::string_view, OnnxNumbers> initializers;
  std::vector<OnnxValue> inputs, outputs;  // without initializers
};

/// Takes no more memory than a few times the bytes, and those of the other files. Throws Error{invalid} for what is no
/// file of ONNX, Error{unsupported} for a version or a type of numbers that this build does not read.
OnnxFile parse_onnx(std::span<const std::byte> bytes, ExternalData& external);

}  // namespace troupe::detail
