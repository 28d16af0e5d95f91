#include "runtime/model/layout.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/model/f16.hpp"

namespace troupe {
namespace {

/// Keeps the random numbers of weights different from all others of the same seed.
constexpr std::uint64_t kWeightsKey = 0x77656967687473;

/// Stripes are whole blocks of this many elements: 4 KiB of f32.
constexpr std::uint64_t kStripeBlock = 1024;

/// A field of a batch begins on a cache line.
constexpr std::uint64_t kAlignBytes = 64;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Layout::Layout(const Graph& graph, std::span<const GroupId> groups) {
  const std::vector<Parameter>& parameters = graph.parameters();
  TROUPE_CHECK(groups.empty() || groups.size() == parameters.size(), Code::invalid, "graph ", graph.name(), " has ",
               parameters.size(), " parameters, groups are given for ", groups.size());
  group_of_.assign(groups.begin(), groups.end());
  group_of_.resize(parameters.size());
  const auto last = std::max_element(group_of_.begin(), group_of_.end());
  const std::uint32_t count_groups = last == group_of_.end() ? 1 : last->value + 1;
  entries_.resize(parameters.size());
  for (GroupId group{0}; group.value < count_groups; ++group.value) {
    const std::uint64_t first = count_elements_;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (group_of_[p] != group) continue;
      entries_[p] = {count_elements_, parameters[p].count_elements()};
      count_elements_ += round_up(entries_[p].count, kAlignElements);
    }
    TROUPE_CHECK(parameters.empty() || count_elements_ > first, Code::invalid, "graph ", graph.name(), ": group ",
                 group.value, " of ", count_groups, " has no parameters");
    groups_.push_back({first, count_elements_ - first});
  }
}

std::vector<std::size_t> parameters_matching(const Graph& graph, const std::string& pattern) {
  const auto& parameters = graph.parameters();
  std::vector<std::size_t> found;
  std::string names;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (::fnmatch(pattern.c_str(), parameters[p].name.c_str(), 0) == 0) found.push_back(p);
    names += (names.empty() ? "" : ", ") + parameters[p].name;
  }
  TROUPE_CHECK(!found.empty(), Code::invalid, "no parameter is called \"", pattern, "\"; there are ", names);
  return found;
}

std::vector<Layout::Entry> entries_matching(const Graph& graph, const Layout& layout,
                                            std::span<const std::string> patterns, GroupId group, bool with_vectors) {
  std::vector<bool> chosen(graph.parameters().size());
  for (std::size_t p = 0; with_vectors && p < chosen.size(); ++p)
    chosen[p] = graph.parameters()[p].extents.size() < 2 && layout.group_of(p) == group;
  for (const std::string& pattern : patterns)
    for (const std::size_t p : parameters_matching(graph, pattern))
      chosen[p] = chosen[p] || layout.group_of(p) == group;
  const std::uint64_t first = layout.groups().at(group.value).first;
  std::vector<Layout::Entry> entries;
  for (std::size_t p = 0; p < chosen.size(); ++p)
    if (chosen[p]) entries.push_back({layout.entries()[p].first - first, layout.entries()[p].count});
  return entries;
}

std::vector<Layout::Entry> entries_of_tensors(const Graph& graph, const Layout& layout, GroupId group) {
  const std::uint64_t first = layout.groups().at(group.value).first;
  std::vector<Layout::Entry> entries;
  for (std::size_t p = 0; p < graph.parameters().size(); ++p)
    if (graph.parameters()[p].extents.size() > 1 && layout.group_of(p) == group)
      entries.push_back({layout.entries()[p].first - first, layout.entries()[p].count});
  return entries;
}

void fill_initial(const Graph& graph, const Layout& layout, std::uint64_t seed, std::span<float> parameters) {
  TROUPE_CHECK(parameters.size() == layout.count_elements(), Code::invalid, "starting weights of ", graph.name(), ": ",
               parameters.size(), " elements were given, the layout has ", layout.count_elements());
  std::fill(parameters.begin(), parameters.end(), 0.0F);  // including the gaps
  const std::uint64_t weights_key = sub_key(seed, kWeightsKey);
  for (std::size_t p = 0; p < layout.entries().size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    const Layout::Entry entry = layout.entries()[p];
    std::fill_n(parameters.begin() + static_cast<std::ptrdiff_t>(entry.first), entry.count,
                static_cast<float>(parameter.mean));
    if (parameter.deviation == 0) continue;
    const std::uint64_t key = sub_key(weights_key, p);
    for (std::uint64_t i = 0; i < entry.count; ++i) {
      parameters[entry.first + i] = static_cast<float>(parameter.mean + parameter.deviation * random_normal(key, i));
    }
  }
}

std::uint16_t to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40);  // makes a quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1)) >> 16);
}

float from_bf16(std::uint16_t value) noexcept { return std::bit_cast<float>(std::uint32_t{value} << 16); }

namespace {

float element_at(const std::byte* from, DType type, std::uint64_t i) noexcept {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, from + i * sizeof half, sizeof half);
  return type == DType::f16 ? from_f16(half) : from_bf16(half);
}

void put_element(std::byte* to, DType type, std::uint64_t i, float value) noexcept {
  if (type == DType::f32) {
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  } else {
    const std::uint16_t half = type == DType::f16 ? to_f16(value) : to_bf16(value);
    std::memcpy(to + i * sizeof half, &half, sizeof half);
  }
}

}  // namespace

void convert_elements(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                      std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) put_element(to, to_type, i, element_at(from, from_type, i));
}

void convert_elements_with_residual(std::byte* to, DType to_type, const float* from, float* residual,
                                    std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    const float whole = from[i] + residual[i];
    put_element(to, to_type, i, whole);
    const float left = whole - element_at(to, to_type, i);
    residual[i] = std::isfinite(left) ? left : 0;
  }
}

void add_converted_elements(float* to, const std::byte* from, DType from_type, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) to[i] += element_at(from, from_type, i);
}

BatchLayout::BatchLayout(std::uint32_t rows, const std::vector<Field>& fields) : rows_(rows) {
  for (const Field& field : fields) {
    const Entry& entry = entries_.emplace_back(Entry{field, size_bytes_});
    size_bytes_ += round_up(rows * entry.row_bytes(), kAlignBytes);
  }
  size_bytes_ = std::max(size_bytes_, kAlignBytes);
}

const BatchLayout::Entry& BatchLayout::entry(std::string_view name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.field.name == name; });
  if (found == entries_.end()) fail(Code::invalid, text("a batch has no field \"", name, "\"; it has ", fields_text()));
  return *found;
}

std::string BatchLayout::fields_text() const {
  std::vector<Field> fields;
  for (const Entry& entry : entries_) fields.push_back(entry.field);
  return list_fields(fields);
}

void BatchLayout::check_fits(const Graph& graph) const {
  bool fits = rows_ > 0 && entries_.size() == graph.fields().size();
  for (std::size_t f = 0; fits && f < entries_.size(); ++f) {
    const Field &is = entries_[f].field, &wanted = graph.fields()[f];
    fits = is.name == wanted.name && is.shape == wanted.shape && is.dtype == wanted.dtype;
  }
  TROUPE_CHECK(fits, Code::invalid, "graph ", graph.name(), " takes rows of ", list_fields(graph.fields()),
               ", the batch has ", rows_, " rows of ", fields_text());
}

std::string list_fields(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) out += text(out.empty() ? "" : ", ", field.to_string());
  return out.empty() ? "nothing" : out;
}

std::vector<Stripe> equal_stripes(GroupId group, std::uint64_t count_elements, std::uint32_t ranks) {
  TROUPE_CHECK(ranks > 0, Code::invalid, "stripes of group ", group.value, ": there are no ranks to give them to");
  const std::uint64_t blocks = (count_elements + kStripeBlock - 1) / kStripeBlock;
  std::vector<Stripe> stripes;
  stripes.reserve(ranks);
  std::uint64_t first = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t own = blocks / ranks + (rank < blocks % ranks ? 1 : 0);
    const std::uint64_t count = std::min(own * kStripeBlock, count_elements - first);
    stripes.push_back({group, Rank{rank}, first, count});
    first += count;
  }
  return stripes;
}

std::vector<Bucket> make_buckets(GroupId group, const Graph& graph, const Layout& layout, std::uint64_t target_bytes) {
  const Layout::Entry whole = layout.groups().at(group.value);
  if (target_bytes == 0) return {{group, 0, 0, whole.count, whole.first}};
  std::vector<std::size_t> members;
  for (std::size_t p = 0; p < layout.entries().size(); ++p)
    if (layout.group_of(p) == group) members.push_back(p);
  std::vector<Bucket> buckets;
  std::uint64_t end = whole.count;
  for (std::size_t m = members.size(); m-- > 0;) {
    // A layer's parameters stay together: their gradients are ready together.
    const auto layer_of = [&](std::size_t member) { return graph.parameters()[members[member]].layer; };
    const bool starts_layer = m == 0 || layer_of(m - 1) != layer_of(m);
    const std::uint64_t first = layout.entries()[members[m]].first - whole.first;
    if (!starts_layer || (m != 0 && (end - first) * sizeof(float) < target_bytes)) continue;
    buckets.push_back({group, static_cast<std::uint32_t>(buckets.size()), first, end - first, whole.first});
    end = first;
  }
  return buckets;
}

std::uint32_t first_layer(const Graph& graph, const Layout& layout, const Bucket& bucket) {
  std::optional<std::uint32_t> layer;
  for (std::size_t p = 0; p < layout.entries().size(); ++p) {
    const std::uint64_t at = layout.entries()[p].first;
    if (at < bucket.first_in_layout() || at >= bucket.first_in_layout() + bucket.count) continue;
    layer = std::min(layer.value_or(graph.parameters()[p].layer), graph.parameters()[p].layer);
  }
  TROUPE_CHECK(layer.has_value(), Code::invalid, "bucket ", bucket.index, " of group ", bucket.group.value,
               " covers elements ", bucket.first, " to ", bucket.first + bucket.count, ", where no parameter starts");
  return *layer;
}

std::vector<Bucket> in_backward_order(const Graph& graph, const Layout& layout, std::vector<Bucket> buckets) {
  // A backward pass goes through the layers from the last to the first.
  std::stable_sort(buckets.begin(), buckets.end(), [&](const Bucket& a, const Bucket& b) {
    return first_layer(graph, layout, a) > first_layer(graph, layout, b);
  });
  return buckets;
}

}  // namespace troupe
