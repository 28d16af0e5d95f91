#include "devices/reference/layers/layers.hpp"

namespace troupe::reference {
namespace {

/// Calls `product` with the indices of y, W and x for every product of one row's convolution.
template <class Product>
void for_products(const Conv2d& conv, const LayerWork& work, std::uint32_t row, Product&& product) {
  const auto &in = work.inputs[0]->shape.extents, &out = work.output->shape.extents;
  const std::size_t height = in[0], width = in[1], channels = in[2];
  const std::size_t of_group = channels / conv.groups, filters_of_group = conv.filters / conv.groups;
  // The position of a window's element. Outside of the image it is at least the image's size, since it is unsigned.
  const auto place = [](std::size_t window, std::size_t stride, std::size_t element, std::size_t dilation,
                        std::size_t padding) { return window * stride + element * dilation - padding; };
  for (std::size_t h = 0; h < out[0]; ++h)
    for (std::size_t w = 0; w < out[1]; ++w)
      for (std::size_t f = 0; f < conv.filters; ++f)
        for (std::size_t i = 0; i < conv.kernel.height; ++i) {
          const std::size_t y = place(h, conv.stride.height, i, conv.dilation.height, conv.padding.height);
          if (y >= height) continue;
          for (std::size_t j = 0; j < conv.kernel.width; ++j) {
            const std::size_t x = place(w, conv.stride.width, j, conv.dilation.width, conv.padding.width);
            if (x >= width) continue;
            for (std::size_t c = 0; c < of_group; ++c) {
              const std::size_t channel = f / filters_of_group * of_group + c;
              product(((row * out[0] + h) * out[1] + w) * conv.filters + f,
                      ((f * of_group + c) * conv.kernel.height + i) * conv.kernel.width + j,
                      ((row * height + y) * width + x) * channels + channel);
            }
          }
        }
}

}  // namespace

void forward(const Conv2d& conv, const LayerWork& work) {
  auto& y = work.output->values;
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = conv.bias ? work.parameters[1].values[i % conv.filters] : 0;
  for (std::uint32_t row = 0; row < work.rows; ++row) {
    for_products(conv, work, row, [&](std::size_t out, std::size_t weight, std::size_t in) {
      y[out] += work.parameters[0].values[weight] * work.inputs[0]->values[in];
    });
  }
}

void backward(const Conv2d& conv, const LayerWork& work) {
  const auto& dy = work.output->gradients;
  for (std::size_t i = 0; conv.bias && i < dy.size(); ++i) work.parameters[1].gradients[i % conv.filters] += dy[i];
  for (std::uint32_t row = 0; row < work.rows; ++row) {
    for_products(conv, work, row, [&](std::size_t out, std::size_t weight, std::size_t in) {
      work.parameters[0].gradients[weight] += dy[out] * work.inputs[0]->values[in];
      work.inputs[0]->gradients[in] += dy[out] * work.parameters[0].values[weight];
    });
  }
}

}  // namespace troupe::reference
