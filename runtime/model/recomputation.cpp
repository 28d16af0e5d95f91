#include "runtime/model/recomputation.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/model/layer_kinds.hpp"

namespace troupe {
namespace {

constexpr std::string_view kSegments = "segments:";
constexpr std::string_view kTo = "..";

/// The range of all layers that `name` stands for; layers between them are included.
std::optional<LayerRange> find_layers(std::span<const Layer> layers, std::string_view name) {
  std::optional<LayerRange> found;
  for (std::uint32_t l = 0; l < layers.size(); ++l) {
    const std::string_view layer = layers[l].name;
    const bool is_inside = layer.starts_with(name) && layer.substr(name.size()).starts_with('.');
    if (layer != name && !is_inside) continue;
    if (!found) found = {l, l};
    found->last = l;
  }
  return found;
}

/// The names of a text's first and last layers.
std::pair<std::string_view, std::string_view> ends_of(std::string_view text_of_range) {
  const std::size_t to = text_of_range.find(kTo);
  if (to == text_of_range.npos) return {text_of_range, text_of_range};
  return {text_of_range.substr(0, to), text_of_range.substr(to + kTo.size())};
}

LayerRange range_of(const Graph& graph, std::string_view text_of_range) {
  const auto find = [&](std::string_view name) {
    const auto found = find_layers(graph.layers(), name);
    TROUPE_CHECK(found.has_value(), Code::invalid, "train.recompute has \"", text_of_range, "\", but model ",
                 graph.name(), " has no layer \"", name, "\" and none whose name begins with \"", name, ".\"");
    return *found;
  };
  const auto [from, to] = ends_of(text_of_range);
  return {find(from).first, find(to).last};
}

/// The number of elements per sample that layers from `cut` on read from layers before it.
std::uint64_t crossing_elements(const Graph& graph, std::uint32_t cut) {
  const std::uint32_t end = graph.output_tensor(cut);
  std::vector<bool> crosses(end);
  for (std::size_t l = cut; l < graph.layers().size(); ++l)
    for (const std::uint32_t input : graph.inputs_of(l))
      if (input < end) crosses[input] = true;
  std::uint64_t elements = 0;
  for (auto tensor = static_cast<std::uint32_t>(graph.fields().size()); tensor < end; ++tensor)
    if (crosses[tensor]) elements += graph.shape_of(tensor).count_elements();
  return elements;
}

std::vector<LayerRange> segments_of(const Graph& graph, std::string_view number) {
  const auto& layers = graph.layers();
  const auto is_loss = [](const Layer& layer) { return kind_of(layer.operation).is_loss; };
  const auto count = static_cast<std::uint32_t>(std::ranges::find_if(layers, is_loss) - layers.begin());
  const std::uint32_t segments = number_in<std::uint32_t>(number).value_or(0);
  TROUPE_CHECK(segments >= 2 && segments <= count, Code::invalid, "train.recompute has \"", kSegments, number,
               "\"; for model ", graph.name(), " the number must be 2 to ", count,
               ", its layers before the first loss");
  std::vector<std::uint64_t> before{0};  // elements of the outputs of all earlier layers
  for (std::uint32_t l = 0; l < count; ++l) before.push_back(before.back() + graph.output_of(l).count_elements());
  std::vector<LayerRange> ranges;
  std::uint32_t first = 0;
  for (std::uint32_t segment = 1; segment < segments && first + 1 < count; ++segment) {
    // Near the fraction segment / segments of all elements, at most half a segment away.
    const std::uint64_t width = before.back() / segments, target = before.back() / segments * segment;
    std::optional<std::uint32_t> best;
    std::uint64_t best_crossing = 0;
    for (std::uint32_t cut = first + 1; cut < count; ++cut) {
      const std::uint64_t distance = before[cut] > target ? before[cut] - target : target - before[cut];
      if (distance > width / 2) continue;
      const std::uint64_t crossing = crossing_elements(graph, cut);
      if (best && crossing >= best_crossing) continue;
      best = cut;
      best_crossing = crossing;
    }
    if (!best) continue;  // a layer is larger than a segment
    ranges.push_back({first, *best - 1});
    first = *best;
  }
  return ranges;
}

}  // namespace

bool is_synchronized(const Layer& layer) noexcept {
  const auto* norm = std::get_if<BatchNorm>(&layer.operation);
  return norm != nullptr && norm->synchronized;
}

std::string recomputes_synchronized(const Layer& layer) {
  return text(
      "train.recompute has the layer ", layer.name,
      ", in which ranks wait for each other (synchronized = true), so it is computed only once in a step; leave "
      "it out of train.recompute, or leave synchronized out");
}

std::optional<LayerRange> find_range(std::span<const Layer> layers, std::string_view text_of_range) {
  const auto [from, to] = ends_of(text_of_range);
  const auto first = find_layers(layers, from), last = find_layers(layers, to);
  if (!first || !last) return {};
  return LayerRange{first->first, last->last};
}

std::vector<LayerRange> recomputed_ranges(const Graph& graph, std::span<const std::string> texts) {
  std::vector<LayerRange> ranges;
  for (const std::string& one : texts) {
    if (one.starts_with(kSegments)) {
      TROUPE_CHECK(texts.size() == 1, Code::invalid, "train.recompute has \"", one,
                   "\" and other ranges; leave one or the others out");
      return segments_of(graph, std::string_view{one}.substr(kSegments.size()));
    }
    ranges.push_back(range_of(graph, one));
  }
  std::ranges::sort(ranges, {}, &LayerRange::first);
  return ranges;
}

}  // namespace troupe
