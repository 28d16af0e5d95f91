#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

template <class Pool>
LayerResult infer_pool(const LayerShapes& layer) {
  const auto& pool = std::get<Pool>(layer.operation);
  const Image image = image_of(layer);
  TROUPE_CHECK(pool.padding.height < pool.kernel.height && pool.padding.width < pool.kernel.width, Code::invalid,
               layer.where, ": its padding must be less than its kernel, so that no window lies outside of the image");
  const Size2 stride = pool_stride(pool.stride, pool.kernel);
  const std::uint32_t height =
      count_windows(layer, "height", image.height, pool.kernel.height, stride.height, pool.padding.height);
  const std::uint32_t width =
      count_windows(layer, "width", image.width, pool.kernel.width, stride.width, pool.padding.width);
  return {Shape{{height, width, image.channels}}};
}

template <class Pool>
std::vector<LayerAttribute> pool_attributes() {
  return {
      {"kernel", slot_of<&Pool::kernel>, 1, kMostSide, "height and width of the window"},
      {"stride", slot_of<&Pool::stride>, 0, kMostSide, "distance between neighbouring windows; 0: the kernel's size"},
      {"padding", slot_of<&Pool::padding>, 0, kMostSide,
       "elements outside of the image that windows may cover on each side"}};
}

LayerResult infer_global_pool(const LayerShapes& layer) { return {Shape{{image_of(layer).channels}}}; }

constexpr std::string_view kPoolShape =
    "[height, width, channels] to [(height + 2 padding - kernel) / stride + 1, the same of the width, channels]";

}  // namespace

LayerKind max_pool_row() {
  return {.name = "max_pool",
          .help =
              "The largest element of each window, channel by channel. Rows and columns in which no complete window "
              "fits are left out.",
          .shape = kPoolShape,
          .made = MaxPool{},
          .attributes = pool_attributes<MaxPool>(),
          .elsewhere = {"pool", "pooling", "maxpool"},
          .infer = infer_pool<MaxPool>};
}

LayerKind average_pool_row() {
  return {.name = "average_pool",
          .help = "The mean of each window, channel by channel; what lies outside of the image does not count.",
          .shape = kPoolShape,
          .made = AveragePool{},
          .attributes = pool_attributes<AveragePool>(),
          .elsewhere = {"avg_pool", "mean_pool"},
          .infer = infer_pool<AveragePool>};
}

LayerKind global_average_pool_row() {
  return {.name = "global_average_pool",
          .help = "The mean of each channel over the whole image.",
          .shape = "[height, width, channels] to [channels]",
          .made = GlobalAveragePool{},
          .attributes = {},
          .elsewhere = {"global_pool", "adaptive_average_pool"},
          .infer = infer_global_pool};
}

}  // namespace troupe::detail
