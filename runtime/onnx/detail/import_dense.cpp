#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/importer.hpp"

namespace troupe::detail {
namespace {

std::vector<float> transposed(const std::vector<float>& from, std::size_t rows) {
  const std::size_t width = from.size() / rows;
  std::vector<float> to(from.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < width; ++i) to[i * rows + row] = from[row * width + i];
  return to;
}

/// Column i of the weights [units, width] becomes column places[i].
void move_columns(std::vector<float>& weight, const std::vector<std::size_t>& places) {
  std::vector<float> row(places.size());
  for (std::size_t first = 0; first + places.size() <= weight.size(); first += places.size()) {
    for (std::size_t i = 0; i < places.size(); ++i) row[places[i]] = weight[first + i];
    std::ranges::copy(row, weight.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

}  // namespace

const OnnxNumbers& Importer::matrix(std::string_view name) const {
  const auto at = constants_.find(name);
  need(at != constants_.end() && !at->second.whole && at->second.dims.size() == 2 && at->second.dims[0] > 0 &&
           at->second.dims[1] > 0,
       "needs a matrix of f32 that the file has");
  return at->second;
}

/// A dense layer works on the last extent at each position, wherever the others lie; or it flattens what it reads, and
/// then the weights are put into the tensor's order. No layer stands for a Flatten of ours before it.
Importer::DenseRead Importer::dense_read(std::string_view name, std::string_view layer, std::size_t width,
                                         std::uint32_t units, bool by_gemm) {
  Value read = made(name);
  const auto reads_all = [&] {
    return read.arranged.count_axes() > 0 && read.arranged.is_flat(read.arranged.count_axes() - 1) &&
           shape(read.tensor).extents.size() > 1;
  };
  if (reads_all() && read.arranged.is_whole()) {
    need(shape(read.tensor).count_elements() == width, "has weights for another number of elements than it reads");
    std::vector<std::size_t> places = read.arranged.places();
    if (std::ranges::is_sorted(places)) places.clear();
    const bool is_input = std::ranges::find(file_.inputs, name, &OnnxValue::name) != file_.inputs.end();
    if (!places.empty() || is_input || name.starts_with(text(layer, ".flat")))
      return {read.tensor, true, Arrangement{Shape{{units}}, rows_}, std::move(places)};
    (void)plain(name);
    read = value(name);
  }
  const auto last = [&] { return static_cast<std::uint32_t>(shape(read.tensor).extents.size() - 1); };
  const auto reads_last = [&] {
    return !shape(read.tensor).extents.empty() && read.arranged.count_axes() > 0 && read.arranged.is_whole() &&
           read.arranged.is_extent(read.arranged.count_axes() - 1, last());
  };
  if (!reads_last()) {
    (void)plain(name);
    read = value(name);
    need(reads_last(), "reads elements that lie in another order than a dense layer can read");
  }
  need(shape(read.tensor).extents.back() == width, "has weights for another number of elements than it reads");
  return {read.tensor, by_gemm && last() == 0,
          read.arranged.with_extent(read.arranged.count_axes() - 1, last(), units)};
}

void Importer::gemm(const OnnxNode& node) {
  need(node.number("transA", 0) == 0, "transposes the rows that it reads (transA), which no layer does");
  const OnnxNumbers& given = matrix(input_name(1));
  const bool by_units = node.number("transB", 0) != 0;
  const auto units = static_cast<std::size_t>(given.dims[by_units ? 0 : 1]);
  const bool has_bias = has_input(2) && node.f32("beta", 1) != 0;
  std::vector<float> weight = by_units ? given.f32 : transposed(given.f32, static_cast<std::size_t>(given.dims[0]));
  for (float& one : weight) one *= node.f32("alpha", 1);
  std::vector<float> bias;
  if (has_bias) {
    bias = f32s(2);
    if (bias.size() == 1) bias.resize(units, bias[0]);
    for (float& one : bias) one *= node.f32("beta", 1);
  }
  const std::string name =
      model_.layer_name(output(), {{given.name, "weight"}, {has_bias ? numbers(2).name : std::string_view{}, "bias"}});
  DenseRead read =
      dense_read(input_name(0), name, weight.size() / units, size_of(static_cast<std::int64_t>(units)), true);
  if (!read.places.empty()) move_columns(weight, read.places);
  std::vector<ModelBuilder::Start> starts{{"weight", std::move(weight)}};
  if (has_bias) starts.push_back({"bias", std::move(bias)});
  const Dense layer{size_of(static_cast<std::int64_t>(units)), read.flatten, has_bias};
  give_tensor(add_layer(name, layer, {read.tensor}, std::move(starts)), std::move(read.arranged));
}

void Importer::matmul(const OnnxNode& node) {
  need(node.inputs.size() == 2, "reads other than two tensors");
  if (find_numbers(1) == nullptr) {
    need(find_numbers(0) == nullptr, "multiplies numbers of the file by a tensor; only tensor by matrix is a layer");
    need(multiply_heads(), "multiplies two tensors, which only an attention of a sequence to itself does");
    return;
  }
  const OnnxNumbers& weight = matrix(input_name(1));
  const DenseRead read =
      dense_read(input_name(0), {}, static_cast<std::size_t>(weight.dims[0]), size_of(weight.dims[1]), false);
  give({.form = Form::product, .tensor = read.tensor, .arranged = read.arranged, .numbers = input_name(1)});
}

/// With the bias that an Add behind it has.
Importer::Value Importer::made_product(std::string_view name, const Value& product, const OnnxNumbers* bias) {
  const OnnxNumbers& given = matrix(product.numbers);
  const auto rows = static_cast<std::size_t>(given.dims[0]);
  const std::uint32_t units = size_of(given.dims[1]);
  const std::string layer_name =
      model_.layer_name(name, {{given.name, "weight"}, {bias != nullptr ? bias->name : std::string_view{}, "bias"}});
  DenseRead read = dense_read(product.node->inputs[0], layer_name, rows, units, false);
  std::vector<float> weight = transposed(given.f32, rows);
  if (!read.places.empty()) move_columns(weight, read.places);
  std::vector<ModelBuilder::Start> starts{{"weight", std::move(weight)}};
  if (bias != nullptr) starts.push_back({"bias", bias->f32});
  const Dense layer{units, read.flatten, bias != nullptr};
  return keep(name, add_layer(layer_name, layer, {read.tensor}, std::move(starts)), product.arranged);
}

}  // namespace troupe::detail
