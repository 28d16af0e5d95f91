#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/importer.hpp"

namespace troupe::detail {

/// An image as convolutions read it, and the zeros that a node before put around it.
Importer::Image Importer::image(std::size_t index) {
  if (const Value& padded = input(index); padded.form == Form::padded) return {padded.tensor, padded.padding};
  const Value found = made(index);
  if (shape(found.tensor).extents.size() == 3 &&
      found.arranged == Arrangement::channels_first(shape(found.tensor), rows_))
    return {found.tensor};
  const std::uint32_t tensor = plain(index);
  need(shape(tensor).extents.size() == 3, "reads what is no image [rows, channels, height, width]");
  const std::string name = ModelBuilder::name_of(input_name(index));
  return {add_layer(name + ".channels_last", Transpose{{1, 2, 0}}, {tensor})};
}
void Importer::give_image(std::uint32_t tensor) {
  give_tensor(tensor, Arrangement::channels_first(shape(tensor), rows_));
}

Size2 Importer::pair(const OnnxNode& node, std::string_view attribute) const {
  const auto* list = node.list(attribute);
  if (list == nullptr) return {};
  need(list->size() == 2, "is not of images: one of its attributes has other than two numbers");
  return {size_of((*list)[0]), size_of((*list)[1])};
}

namespace {

/// The zeros on the two sides of an extent, and what a layer would have: as many on both.
struct Sides {
  std::int64_t begin = 0, end = 0;
};

/// How many windows there are; below 1: none.
std::int64_t count_windows(std::int64_t extent, std::int64_t zeros, std::int64_t window, std::int64_t stride,
                           bool up = false) {
  const std::int64_t rest = extent + zeros - window;
  return rest < 0 ? 0 : (rest + (up ? stride - 1 : 0)) / stride + 1;
}

Sides sides_of(std::string_view automatic, std::int64_t extent, std::int64_t window, std::int64_t stride) {
  const std::int64_t zeros = std::max<std::int64_t>(((extent + stride - 1) / stride - 1) * stride + window - extent, 0);
  return automatic == "SAME_LOWER" ? Sides{zeros - zeros / 2, zeros / 2} : Sides{zeros / 2, zeros - zeros / 2};
}

constexpr std::int64_t kMostPlaces = 65536;  // of a kernel, a stride or a padding

}  // namespace

/// Of `pads` or auto_pad. A layer has as many zeros on both sides; other numbers will do if there are as many windows.
Size2 Importer::padding(const OnnxNode& node, const Shape& image, Size2 kernel, Size2 stride, Size2 dilation) const {
  const std::string_view automatic = node.text("auto_pad", "NOTSET");
  need(automatic == "NOTSET" || automatic == "VALID" || automatic == "SAME_UPPER" || automatic == "SAME_LOWER",
       "has an auto_pad that operations do not have");
  const auto* list = node.list("pads");
  need(list == nullptr || list->size() == 4, "is not of images: it pads other than two extents");
  const auto padding_of = [&](std::size_t extent, std::int64_t size, std::int64_t gap, std::int64_t step) {
    need(size > 0 && gap > 0 && step > 0 && size <= kMostPlaces && gap <= kMostPlaces && step <= kMostPlaces,
         "has a window of no size that a layer has");
    const std::int64_t window = (size - 1) * gap + 1, of = image.extents[extent];
    Sides sides;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER")
      sides = sides_of(automatic, of, window, step);
    else if (list != nullptr && automatic != "VALID")
      sides = {(*list)[extent], (*list)[extent + 2]};
    need(sides.begin >= 0 && sides.end >= 0 && sides.begin <= kMostPlaces && sides.end <= kMostPlaces,
         "pads by a number that no layer has");
    const bool up = node.number("ceil_mode", 0) != 0;
    const std::int64_t wanted = count_windows(of, sides.begin + sides.end, window, step, up);
    if (count_windows(of, 2 * sides.begin, window, step) != wanted)
      refuse(text(up ? "rounds up the number of windows" : "pads the two sides of an image differently", ": with ",
                  sides.begin, " and ", sides.end, " zeros there are ", wanted, " windows, and with ", sides.begin,
                  " on both, as layers have them, ", count_windows(of, 2 * sides.begin, window, step),
                  "; pad both sides alike"));
    return size_of(sides.begin);
  };
  return {padding_of(0, kernel.height, dilation.height, stride.height),
          padding_of(1, kernel.width, dilation.width, stride.width)};
}

void Importer::conv(const OnnxNode& node) {
  const OnnxNumbers& weight = numbers(1);
  need(!weight.whole && weight.dims.size() == 4, "has no weights of an image's kernel");
  const std::string_view output_name = output();
  if (input().form != Form::padded)
    if (const Value read = made(std::size_t{0}); shape(read.tensor).extents.size() == 1)
      return conv_of_one_place(node, read);
  Conv2d layer{.filters = size_of(weight.dims[0]), .bias = has_input(2)};
  layer.kernel = {size_of(weight.dims[2]), size_of(weight.dims[3])};
  if (const auto* kernel = node.list("kernel_shape"))
    need(kernel->size() == 2 && (*kernel)[0] == weight.dims[2] && (*kernel)[1] == weight.dims[3],
         "has weights of another kernel");
  layer.stride = pair(node, "strides");
  layer.dilation = pair(node, "dilations");
  layer.groups = size_of(node.number("group", 1));
  const Image read = image(0);
  Shape padded = shape(read.tensor);
  padded.extents[0] += 2 * read.padding.height;
  padded.extents[1] += 2 * read.padding.width;
  layer.padding = padding(node, padded, layer.kernel, layer.stride, layer.dilation);
  layer.padding.height += read.padding.height;
  layer.padding.width += read.padding.width;
  const std::uint64_t channels = shape(read.tensor).extents[2];
  need(layer.groups > 0 && static_cast<std::uint64_t>(weight.dims[1]) * layer.groups == channels,
       "has weights of another number of channels than its input");
  std::vector<ModelBuilder::Start> starts{{"weight", weight.f32}};
  if (layer.bias) starts.push_back({"bias", f32s(2)});
  const std::string name = model_.layer_name(
      output_name, {{weight.name, "weight"}, {layer.bias ? numbers(2).name : std::string_view{}, "bias"}});
  give_image(add_layer(name, layer, {read.tensor}, std::move(starts)));
}

/// After a global pool a convolution of 1 x 1 is a dense layer.
void Importer::conv_of_one_place(const OnnxNode& node, const Value& read) {
  const OnnxNumbers& weight = numbers(1);
  need(weight.dims[2] == 1 && weight.dims[3] == 1 && node.number("group", 1) == 1 && pair(node, "strides") == Size2{},
       "convolves what has one place by a kernel that is not 1 x 1");
  const auto* pads = node.list("pads");
  need(pads == nullptr || std::ranges::all_of(*pads, [](std::int64_t one) { return one == 0; }),
       "pads what has one place");
  need(read.arranged.count_axes() == 4 && read.arranged.is_extent(1, 0), "reads what is no image");
  std::vector<ModelBuilder::Start> starts{{"weight", weight.f32}};
  if (has_input(2)) starts.push_back({"bias", f32s(2)});
  const Dense layer{.units = size_of(weight.dims[0]), .bias = has_input(2)};
  const std::uint32_t made =
      add_layer(model_.layer_name(output(), {{weight.name, "weight"}}), layer, {read.tensor}, std::move(starts));
  give_tensor(made, read.arranged.with_extent(1, 0, layer.units));
}

template <class Pool>
void Importer::pool(const OnnxNode& node) {
  const Image read = image(0);
  Pool layer;
  need(node.list("kernel_shape") != nullptr, "has no kernel_shape");
  layer.kernel = pair(node, "kernel_shape");
  layer.stride = pair(node, "strides");
  need(node.outputs.size() == 1 || node.outputs[1].empty(), "gives indices, which no layer does");
  need(pair(node, "dilations") == Size2{}, "dilates, which no layer does");
  layer.padding = padding(node, shape(read.tensor), layer.kernel, layer.stride, {});
  const bool counts = read.padding != Size2{0, 0} || node.number("count_include_pad", 0) != 0;
  if (layer.padding != Size2{0, 0} || read.padding != Size2{0, 0})
    need(!std::is_same_v<Pool, AveragePool> || !counts,
         "counts padding as zeros (count_include_pad), which no layer does; pool without padding");
  need(std::is_same_v<Pool, AveragePool> || read.padding == Size2{0, 0},
       "takes the largest of elements and the zeros of a Pad, which no layer does; let the pool pad");
  if (layer.stride == layer.kernel) layer.stride = {0, 0};
  give_image(add_layer(own_name(), layer, {read.tensor}));
}
template void Importer::pool<MaxPool>(const OnnxNode& node);
template void Importer::pool<AveragePool>(const OnnxNode& node);

void Importer::global_average_pool(const OnnxNode&) {
  const Image read = image(0);
  need(read.padding == Size2{0, 0}, "counts the zeros of a Pad");
  Value pooled{.form = Form::pending, .factors = {read.tensor}, .operation = GlobalAveragePool{}};
  pooled.shape = Shape{{shape(read.tensor).extents[2]}};
  pooled.arranged = Arrangement{pooled.shape, rows_};
  need(pooled.arranged.unsqueeze({2, 3}), "has no image");
  give(std::move(pooled));
}

void Importer::global_max_pool(const OnnxNode&) {
  const Image read = image(0);
  need(read.padding == Size2{0, 0}, "counts the zeros of a Pad");
  const Size2 whole{shape(read.tensor).extents[0], shape(read.tensor).extents[1]};
  give_image(add_layer(own_name(), MaxPool{.kernel = whole}, {read.tensor}));
}

/// Of an image's height and width: a global pool. Of the last extent: a step of a layer norm.
void Importer::reduce_mean(const OnnxNode& node) {
  if (input().form == Form::centered_squares) {
    need(is_over_last(node, input()), "takes means over another extent than the last");
    return give_next(input(), Form::variance);
  }
  const Value read = made(std::size_t{0});
  if (is_over_last(node, read)) return give_next(read, Form::mean);
  std::vector<std::size_t> over;
  for (const std::int64_t axis : axes(node)) over.push_back(read.arranged.find_axis(axis).value_or(0));
  std::ranges::sort(over);
  const bool fits = shape(read.tensor).extents.size() == 3 && over.size() == 2 && over[0] != over[1] &&
                    read.arranged.is_whole() && read.arranged.count_axes() == 4 && over[0] != 0;
  need(fits && read.arranged.is_extent(over[0], 0) && read.arranged.is_extent(over[1], 1),
       "takes means over other extents than an image's height and width, or the last one in a layer norm");
  Value pooled{.form = Form::pending, .factors = {read.tensor}, .operation = GlobalAveragePool{}};
  pooled.shape = Shape{{shape(read.tensor).extents[2]}};
  pooled.arranged = Arrangement{pooled.shape, rows_};
  if (node.number("keepdims", 1) != 0)
    need(pooled.arranged.unsqueeze({static_cast<std::int64_t>(over[0]), static_cast<std::int64_t>(over[1])}),
         "has no image");
  give_arranged(std::move(pooled), true, "");
}

/// Zeros around an image, as many on both sides, which the convolution that follows then has.
void Importer::pad(const OnnxNode& node) {
  const std::vector<std::int64_t> pads = node.list("pads") != nullptr ? *node.list("pads") : integers(1);
  const bool zeros = node.text("mode", "constant") == "constant" && node.f32("value", 0) == 0 &&
                     (find_numbers(2) == nullptr || (is_number(2) && number(2) == 0));
  need(zeros && !has_input(3) && pads.size() == 8, "pads by other than zeros around an image");
  const bool alike = pads[0] == 0 && pads[1] == 0 && pads[4] == 0 && pads[5] == 0 && pads[2] == pads[6] &&
                     pads[3] == pads[7] && pads[2] >= 0 && pads[3] >= 0 && pads[2] <= kMostPlaces &&
                     pads[3] <= kMostPlaces;
  need(alike, "pads the two sides of an image differently; layers pad both alike");
  if (pads[2] == 0 && pads[3] == 0) return identity(node);
  Value padded{.form = Form::padded};
  const Image read = image(0);
  padded.tensor = read.tensor;
  padded.padding = {read.padding.height + size_of(pads[2]), read.padding.width + size_of(pads[3])};
  need(padded.padding.height <= kMostPlaces && padded.padding.width <= kMostPlaces,
       "pads by a number that no layer has");
  give(std::move(padded));
}

/// In a file of a model that trains, it also puts out running statistics: nothing reads them, since the layer has its
/// own.
void Importer::batch_norm(const OnnxNode& node) {
  BatchNorm layer;
  layer.momentum = decimal_of(static_cast<float>(1 - decimal_of(node.f32("momentum", 0.9F))));
  layer.epsilon = decimal_of(node.f32("epsilon", 1e-5F));
  const bool of_image = shape(made(std::size_t{0}).tensor).extents.size() == 3;
  const Image read = of_image ? image(0) : Image{plain(std::size_t{0})};
  std::vector<ModelBuilder::Start> starts;
  std::size_t index = 0;
  for (const std::string_view parameter : {"weight", "bias", "running_mean", "running_var"})
    starts.push_back({parameter, f32s(++index)});
  const std::string name =
      model_.layer_name(output(), {{numbers(1).name, "weight"}, {numbers(3).name, "running_mean"}});
  const std::uint32_t made = add_layer(name, layer, {read.tensor}, std::move(starts));
  of_image ? give_image(made) : give_plain(made);
}

}  // namespace troupe::detail
