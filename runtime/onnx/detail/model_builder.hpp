#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/onnx/onnx_import.hpp"

namespace troupe::detail {

/// The layers that a file becomes: their names, shapes and first numbers.
class ModelBuilder {
 public:
  /// The layers may have `most_numbers` in all: a few bytes can use large weights again and again.
  ModelBuilder(const std::vector<Field>& fields, std::uint64_t most_numbers);

  /// The first numbers of a parameter of a layer.
  struct Start {
    std::string_view parameter;
    std::vector<float> numbers;
  };

  /// Adds a layer that reads those tensors; the tensor that it puts out. `where` begins messages. Throws Error{invalid}
  /// or Error{unsupported} if the layer cannot be.
  std::uint32_t add(const std::string& where, const std::string& wanted_name, Operation operation,
                    const std::vector<std::uint32_t>& read, std::vector<Start> starts = {});

  const std::vector<Field>& fields() const noexcept { return fields_; }
  bool is_field(std::uint32_t tensor) const noexcept { return tensor < fields_.size(); }
  bool has_tokens(std::uint32_t tensor) const noexcept {
    return is_field(tensor) && fields_[tensor].dtype == DType::i32;
  }
  const Shape& shape(std::uint32_t tensor) const { return tensors_[tensor].shape; }

  /// As a layer's name: PyTorch's /conv1/Conv_output_0 becomes conv1.Conv.
  static std::string name_of(std::string_view name);
  /// Of a layer with numbers: so that they have the names that they have in the file, if one of those is of our form;
  /// otherwise that of its output. `numbers`: names in the file, each with the parameter that they are.
  std::string layer_name(std::string_view output,
                         const std::vector<std::pair<std::string_view, std::string_view>>& numbers) const;

  /// The model that puts out that tensor.
  OnnxModel finish(std::string_view name, std::uint32_t output);

 private:
  struct Tensor {
    std::string name;
    Shape shape;
    std::uint32_t classes = 0;  // of tokens
  };
  std::string free_name(const std::string& wanted);

  const std::vector<Field>& fields_;
  std::uint64_t numbers_left_;
  std::vector<Tensor> tensors_;               // fields, then what layers put out
  std::map<std::string, std::size_t> taken_;  // names, each with the number of the next layer that wants it
  OnnxModel made_;
};

}  // namespace troupe::detail
