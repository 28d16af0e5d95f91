#include <algorithm>

#include "devices/reference/layers/layers.hpp"

namespace troupe::reference {
namespace {

struct Window {
  Size2 kernel, stride, padding;
};

/// Calls `take` with the index of each output element, and the indices of the inputs in its window.
template <class Take>
void for_windows(const Window& window, const LayerWork& work, Take&& take) {
  const auto& in = work.inputs[0]->shape.extents;
  const std::size_t height = in[0], width = in[1], channels = in[2];
  // The number of windows along one side: the last one begins where a whole window still fits.
  const auto count = [](std::size_t side, std::size_t kernel, std::size_t stride, std::size_t padding) {
    return (side + 2 * padding - kernel) / stride + 1;
  };
  const std::size_t rows_out = count(height, window.kernel.height, window.stride.height, window.padding.height);
  const std::size_t columns_out = count(width, window.kernel.width, window.stride.width, window.padding.width);
  std::vector<std::size_t> places;
  for (std::size_t row = 0; row < work.rows; ++row)
    for (std::size_t h = 0; h < rows_out; ++h)
      for (std::size_t w = 0; w < columns_out; ++w)
        for (std::size_t c = 0; c < channels; ++c) {
          places.clear();
          for (std::size_t i = 0; i < window.kernel.height; ++i)
            for (std::size_t j = 0; j < window.kernel.width; ++j) {
              const std::size_t y = h * window.stride.height + i - window.padding.height;  // wraps around if outside
              const std::size_t x = w * window.stride.width + j - window.padding.width;
              if (y < height && x < width) places.push_back(((row * height + y) * width + x) * channels + c);
            }
          take(((row * rows_out + h) * columns_out + w) * channels + c, places);
        }
}

template <class Pool>
Window window_of(const Pool& pool) {
  return {pool.kernel, pool_stride(pool.stride, pool.kernel), pool.padding};
}

/// A window that covers the whole image.
Window whole(const LayerWork& work) {
  const auto& in = work.inputs[0]->shape.extents;
  return {{in[0], in[1]}, {1, 1}, {0, 0}};
}

void average(const Window& window, const LayerWork& work) {
  const auto& x = work.inputs[0]->values;
  for_windows(window, work, [&](std::size_t out, const std::vector<std::size_t>& places) {
    double sum = 0;
    for (const std::size_t in : places) sum += x[in];
    work.output->values[out] = sum / static_cast<double>(places.size());
  });
}

void average_backward(const Window& window, const LayerWork& work) {
  auto& dx = work.inputs[0]->gradients;
  for_windows(window, work, [&](std::size_t out, const std::vector<std::size_t>& places) {
    for (const std::size_t in : places) dx[in] += work.output->gradients[out] / static_cast<double>(places.size());
  });
}

/// The first one of the largest elements.
std::size_t largest(const std::vector<double>& x, const std::vector<std::size_t>& places) {
  return *std::max_element(places.begin(), places.end(), [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
}

}  // namespace

void forward(const MaxPool& pool, const LayerWork& work) {
  const auto& x = work.inputs[0]->values;
  for_windows(window_of(pool), work, [&](std::size_t out, const std::vector<std::size_t>& places) {
    work.output->values[out] = x[largest(x, places)];
  });
}

void backward(const MaxPool& pool, const LayerWork& work) {
  const auto& x = work.inputs[0]->values;
  for_windows(window_of(pool), work, [&](std::size_t out, const std::vector<std::size_t>& places) {
    work.inputs[0]->gradients[largest(x, places)] += work.output->gradients[out];
  });
}

void forward(const AveragePool& pool, const LayerWork& work) { average(window_of(pool), work); }
void backward(const AveragePool& pool, const LayerWork& work) { average_backward(window_of(pool), work); }
void forward(const GlobalAveragePool&, const LayerWork& work) { average(whole(work), work); }
void backward(const GlobalAveragePool&, const LayerWork& work) { average_backward(whole(work), work); }

}  // namespace troupe::reference
