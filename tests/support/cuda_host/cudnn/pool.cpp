// What a pool is, and how it is computed.
#include "tests/support/cuda_host/cudnn/pool.hpp"

#include <algorithm>
#include <limits>

namespace troupe::cuda::dnn::host {
namespace {

/// An element of a window: where in the window it is, row by row, and in the images.
struct Element {
  std::int64_t place;
  std::size_t at;
};

/// Calls act(output, elements of its window) for each element of the output. What lies in the padding is left out.
template <class Act>
void for_each_window(const Pool& pool, Act&& act) {
  const Grid in{pool.images}, out{pool.output};
  std::vector<Element> elements;
  for (std::int64_t image = 0; image < pool.images.extents[0]; ++image)
    for (std::int64_t y = 0; y < out.height; ++y)
      for (std::int64_t x = 0; x < out.width; ++x) {
        elements.clear();
        for (std::int64_t place = 0; place < pool.window[0] * pool.window[1]; ++place) {
          const std::int64_t row = y * pool.stride[0] - pool.padding[0] + place / pool.window[1];
          const std::int64_t column = x * pool.stride[1] - pool.padding[1] + place % pool.window[1];
          if (row >= 0 && column >= 0 && row < in.height && column < in.width)
            elements.push_back({place, in.at(image, row, column)});
        }
        for (std::int64_t c = 0; c < out.channels; ++c) {
          act(out.at(image, y, x) + static_cast<std::size_t>(c), elements);
          for (Element& one : elements) ++one.at;  // the next channel
        }
      }
}

}  // namespace

std::vector<Computation::Operand> Pool::tensors() const {
  std::vector<Operand> all{{images, !is_backward, is_backward}, {output, is_backward, !is_backward}};
  if (index) all.push_back({*index, is_backward, !is_backward});
  return all;
}

const char* Pool::fault_name() const noexcept {
  if (mode == ResampleMode::max) return is_backward ? "max_pool_backward" : "max_pool";
  return is_backward ? "average_pool_backward" : "average_pool";
}

std::string Pool::compute(const EngineConfig&, const Found& found) const {
  const Stored type = stored(images.type);
  void *const in = found.tensors[0], *const out = found.tensors[1];
  auto* const places = index ? static_cast<std::int8_t*>(found.tensors[2]) : nullptr;
  std::vector<double> sums(is_backward ? images.count() : 0);
  std::string mistake;
  for_each_window(*this, [&](std::size_t to, const std::vector<Element>& elements) {
    const double share = 1.0 / static_cast<double>(std::max<std::size_t>(elements.size(), 1));
    if (mode != ResampleMode::max) {
      double sum = 0;
      for (const Element& one : elements) {
        if (is_backward)
          sums[one.at] += share * double{load(out, type, to)};
        else
          sum += double{load(in, type, one.at)};
      }
      if (!is_backward) store(out, type, to, static_cast<float>(sum * share));
      return;
    }
    if (is_backward) {
      const auto chosen = std::ranges::find(elements, std::int64_t{places[to]}, &Element::place);
      if (chosen == elements.end())
        mistake = "an index of " + std::to_string(places[to]) + ", which no max pool with these windows has written";
      else
        sums[chosen->at] += double{load(out, type, to)};
      return;
    }
    float largest = -std::numeric_limits<float>::infinity();
    std::int64_t place = elements.empty() ? 0 : elements[0].place;
    for (const Element& one : elements) {
      const float value = load(in, type, one.at);
      if (value > largest || value != value) largest = value, place = one.place;
    }
    store(out, type, to, largest);
    if (places != nullptr) places[to] = static_cast<std::int8_t>(place);
  });
  for (std::size_t i = 0; i < sums.size(); ++i) store(in, type, i, static_cast<float>(sums[i]));
  if (found.workspace != nullptr) std::fill_n(found.workspace, words_of_part(*this), 0.0F);
  return mistake;
}

}  // namespace troupe::cuda::dnn::host
