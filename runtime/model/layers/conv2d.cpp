#include "runtime/model/detail/layer_rows.hpp"

namespace troupe::detail {
namespace {

/// The number of elements that a kernel spans, gaps included.
std::uint32_t covered(const LayerShapes& layer, std::uint32_t kernel, std::uint32_t dilation) {
  const std::uint64_t side = (std::uint64_t{kernel} - 1) * dilation + 1;
  TROUPE_CHECK(static_cast<double>(side) <= kMostCounted, Code::invalid, layer.where, ": its kernel covers ", side,
               " elements of a side");
  return static_cast<std::uint32_t>(side);
}

LayerResult infer_conv2d(const LayerShapes& layer) {
  const auto& conv = std::get<Conv2d>(layer.operation);
  const Image image = image_of(layer);
  TROUPE_CHECK(image.channels % conv.groups == 0 && conv.filters % conv.groups == 0, Code::invalid, layer.where,
               ": reads ", layer.inputs.front().to_string(), "; its ", conv.filters, " filters and the ",
               image.channels, " channels cannot be cut into ", conv.groups, " groups");
  const std::uint32_t height =
      count_windows(layer, "height", image.height, covered(layer, conv.kernel.height, conv.dilation.height),
                    conv.stride.height, conv.padding.height);
  const std::uint32_t width =
      count_windows(layer, "width", image.width, covered(layer, conv.kernel.width, conv.dilation.width),
                    conv.stride.width, conv.padding.width);
  const std::uint32_t channels = image.channels / conv.groups;
  const std::uint64_t inputs =
      limited_product(layer, "inputs of a filter",
                      limited_product(layer, "inputs of a filter", conv.kernel.height, conv.kernel.width), channels);
  limited_product(layer, "weights", inputs, conv.filters);
  const std::uint64_t outputs =
      limited_product(layer, "elements", limited_product(layer, "elements", height, width), conv.filters);
  return {Shape{{height, width, conv.filters}},
          weight_and_bias({conv.filters, channels, conv.kernel.height, conv.kernel.width}, inputs, conv.bias),
          limited_product(layer, "multiplications", outputs, inputs)};
}

}  // namespace

LayerKind conv2d_row() {
  return {.name = "conv2d",
          .help =
              "A convolution of an image: each filter is a small window of weights that is applied at every position. "
              "Weights are [filters, channels / groups, kernel height, kernel width], as in PyTorch and ONNX.",
          .shape =
              "[height, width, channels] to [(height + 2 padding - dilation (kernel - 1) - 1) / stride + 1, the same "
              "of the width, filters]",
          .made = Conv2d{},
          .attributes = {{"filters",
                          slot_of<&Conv2d::filters>,
                          1,
                          kMostCounted,
                          "number of output channels",
                          true,
                          false,
                          {"out_channels", "channels", "units", "maps"}},
                         {"kernel", slot_of<&Conv2d::kernel>, 1, kMostSide, "height and width of the window"},
                         {"stride", slot_of<&Conv2d::stride>, 1, kMostSide, "distance between neighbouring windows"},
                         {"padding", slot_of<&Conv2d::padding>, 0, kMostSide, "zeros on each side of the image"},
                         {"dilation", slot_of<&Conv2d::dilation>, 1, kMostSide,
                          "distance between neighbouring elements that a window reads"},
                         {"groups", slot_of<&Conv2d::groups>, 1, kMostCounted,
                          "number of groups of channels, each convolved separately; as many as channels: depthwise"},
                         {"bias",
                          slot_of<&Conv2d::bias>,
                          0,
                          1,
                          "whether each filter has a bias; a batch norm that follows has its own",
                          false,
                          false,
                          {"use_bias"}}},
          .elsewhere = {"conv", "convolution"},
          .infer = infer_conv2d};
}

}  // namespace troupe::detail
