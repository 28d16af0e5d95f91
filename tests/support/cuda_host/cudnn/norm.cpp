// What a batch norm is, and how it is computed.
#include "tests/support/cuda_host/cudnn/norm.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::cuda::dnn::host {
namespace {

float* floats(void* at) { return static_cast<float*>(at); }

}  // namespace

std::string BatchNorm::mistake() const {
  const TensorForm& x = inputs[0];
  const auto is_like_x = [&](const TensorForm& one) { return one.extents == x.extents && one.is_channels_last(); };
  const auto is_channels = [&](const TensorForm& one) { return one.extents == Extents{1, x.extents[1], 1, 1}; };
  const auto all = tensors();
  std::size_t images = 0;
  for (const Operand& one : all) {
    if (is_like_x(one.tensor) && images < (is_backward ? 3U : 2U)) {
      ++images;
      if (one.tensor.type != x.type) return "a batch norm of " + x.text() + " with " + one.tensor.text();
    } else if (!is_channels(one.tensor) || one.tensor.type != DataType::f32) {
      return "a batch norm of " + x.text() + " with " + one.tensor.text();
    }
  }
  return {};
}

std::vector<Computation::Operand> BatchNorm::tensors() const {
  std::vector<Operand> all;
  for (const TensorForm& one : inputs) all.push_back({one, true, false});
  for (const TensorForm& one : outputs) all.push_back({one, false, true});
  return all;
}

std::size_t BatchNorm::count_rows() const noexcept { return inputs[0].count() / channels(); }

/// Source: Ioffe, Szegedy 2015, algorithm 1; running statistics as NVIDIA's documentation has them.
void BatchNorm::forward(const Found& found) const {
  const Stored type = stored(inputs[0].type);
  const std::size_t rows = count_rows(), width = channels();
  const double epsilon = double{found.constants[0]}, momentum = double{found.constants[1]};
  for (std::size_t c = 0; c < width; ++c) {
    double mean = 0, squares = 0;
    for (std::size_t r = 0; r < rows; ++r) mean += double{load(found.tensors[0], type, r * width + c)};
    mean /= static_cast<double>(rows);
    for (std::size_t r = 0; r < rows; ++r)
      squares += std::pow(double{load(found.tensors[0], type, r * width + c)} - mean, 2);
    const double variance = squares / static_cast<double>(rows), inverse = 1 / std::sqrt(variance + epsilon);
    const double scale = double{floats(found.tensors[1])[c]}, shift = double{floats(found.tensors[2])[c]};
    for (std::size_t r = 0; r < rows; ++r) {
      const double normal = (double{load(found.tensors[0], type, r * width + c)} - mean) * inverse;
      store(found.tensors[5], type, r * width + c, static_cast<float>(scale * normal + shift));
    }
    floats(found.tensors[6])[c] = static_cast<float>(mean);
    floats(found.tensors[7])[c] = static_cast<float>(inverse);
    const auto next = [&](std::size_t before, double of_batch) {
      return static_cast<float>((1 - momentum) * double{floats(found.tensors[before])[c]} + momentum * of_batch);
    };
    floats(found.tensors[8])[c] = next(3, mean);
    floats(found.tensors[9])[c] = next(4, squares / static_cast<double>(rows - 1));
  }
}

void BatchNorm::backward(const Found& found) const {
  const Stored type = stored(inputs[0].type);
  const std::size_t rows = count_rows(), width = channels();
  for (std::size_t c = 0; c < width; ++c) {
    const double mean = double{floats(found.tensors[3])[c]}, inverse = double{floats(found.tensors[4])[c]};
    const auto normal = [&](std::size_t i) { return (double{load(found.tensors[0], type, i)} - mean) * inverse; };
    double slopes = 0, by_normal = 0;
    for (std::size_t i = c; i < rows * width; i += width) {
      slopes += double{load(found.tensors[1], type, i)};
      by_normal += double{load(found.tensors[1], type, i)} * normal(i);
    }
    for (std::size_t i = c; i < rows * width; i += width) {
      const double rest =
          double{load(found.tensors[1], type, i)} - (slopes + normal(i) * by_normal) / static_cast<double>(rows);
      store(found.tensors[5], type, i, static_cast<float>(double{floats(found.tensors[2])[c]} * inverse * rest));
    }
    floats(found.tensors[6])[c] = static_cast<float>(by_normal);
    floats(found.tensors[7])[c] = static_cast<float>(slopes);
  }
}

std::string BatchNorm::compute(const EngineConfig&, const Found& found) const {
  is_backward ? backward(found) : forward(found);
  if (found.workspace != nullptr) std::fill_n(found.workspace, words_of_part(*this), 0.0F);
  return {};
}

}  // namespace troupe::cuda::dnn::host
