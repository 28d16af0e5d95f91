#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/onnx/detail/importer.hpp"

// Nodes that compute nothing: they say how an array lies in a tensor.

namespace troupe::detail {

/// A pending layer is made once its output lies as the tensor does, and has the name of the node that put it so.
void Importer::give_arranged(Value from, bool can, const char* why) {
  need(can, why);
  if (from.form != Form::pending || !from.arranged.is_exactly_plain(from.shape)) return give(std::move(from));
  give_plain(add_layer(own_name(), *from.operation, from.factors));
}

/// The arrangements of these can be changed; others are made first.
Importer::Value Importer::arrangeable() {
  const Value& read = input();
  const bool is_scaled = read.form == Form::factors && read.factors.size() == 1 && !read.has_erf;
  return read.form == Form::pending || is_scaled ? read : made(0);
}

void Importer::flatten(const OnnxNode& node) {
  Value from = arrangeable();
  const std::vector<OnnxExtent> extents = from.arranged.extents();
  const std::int64_t given = node.number("axis", 1);
  const std::int64_t axis = given < 0 ? given + static_cast<std::int64_t>(extents.size()) : given;
  need(axis >= 0 && axis <= static_cast<std::int64_t>(extents.size()), "has an axis that its input has not");
  std::vector<OnnxExtent> to(2);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    OnnxExtent& side = to[static_cast<std::int64_t>(i) < axis ? 0 : 1];
    side.count *= extents[i].count;
    side.of_rows = side.of_rows || extents[i].of_rows;
  }
  const bool can = from.arranged.reshape(to);
  give_arranged(std::move(from), can, "joins extents that no layer joins");
}

std::vector<OnnxExtent> Importer::wanted_extents(const OnnxNode& node, const Arrangement& from) const {
  const OnnxNumbers& to = numbers(1);
  need(to.whole && to.dims.size() <= 1, "has no shape as its second input");
  if (to.count() > kMostDims) refuse(text("has more than ", kMostDims, " extents"));
  std::vector<OnnxExtent> wanted;
  for (std::size_t i = 0; i < to.integers.size(); ++i) {
    const bool keeps = to.integers[i] == 0 && node.number("allowzero", 0) == 0;
    need(!keeps || i < from.count_axes(), "keeps an extent that its input has not");
    wanted.push_back(keeps ? from.extent(i) : OnnxExtent{to.integers[i], to.is_of_rows(i)});
  }
  return wanted;
}

void Importer::reshape(const OnnxNode& node) {
  Value from = arrangeable();
  const bool can = from.arranged.reshape(wanted_extents(node, from.arranged));
  give_arranged(
      std::move(from), can,
      "cuts or joins extents as no layer does; if it fixes the number of rows, export with rows of any number");
}

void Importer::transpose(const OnnxNode& node) {
  Value from = arrangeable();
  std::vector<std::int64_t> order;
  for (std::size_t axis = from.arranged.count_axes(); axis-- > 0;) order.push_back(static_cast<std::int64_t>(axis));
  if (const auto* given = node.list("perm")) order = *given;
  const bool can = from.arranged.permute(order);
  give_arranged(std::move(from), can, "has an order of other extents than its input has");
}

void Importer::squeeze(const OnnxNode& node) {
  Value from = arrangeable();
  const bool can = from.arranged.squeeze(axes(node));
  give_arranged(std::move(from), can, "removes an extent that is not 1");
}

void Importer::unsqueeze(const OnnxNode& node) {
  if (input().form == Form::known_number) {
    need(axes(node) == std::vector<std::int64_t>{-1}, "is no part of an embedding");
    return give_next(input(), Form::known_factor);
  }
  Value from = arrangeable();
  const std::vector<std::int64_t> added = axes(node);
  const bool can = from.arranged.count_axes() + added.size() <= kMostDims && from.arranged.unsqueeze(added);
  give_arranged(std::move(from), can, "adds an extent in a place that its input has not, or too many");
}

void Importer::split(const OnnxNode& node) {
  const Value from = arrangeable();
  const auto axis = from.arranged.find_axis(node.number("axis", 0));
  need(axis.has_value(), "has an axis that its input has not");
  const std::int64_t whole = from.arranged.extent(*axis).count;
  const auto parts = static_cast<std::int64_t>(node.outputs.size());
  std::vector<std::int64_t> sizes(node.outputs.size(), whole / parts);
  if (const auto* list = node.list("split")) sizes = *list;
  if (find_numbers(1) != nullptr) sizes = integers(1);
  need(sizes.size() == node.outputs.size() && sizes == std::vector<std::int64_t>(sizes.size(), whole / parts) &&
           whole % parts == 0,
       "cuts into parts of different sizes, which no layer does");
  for (std::int64_t part = 0; part < parts; ++part) {
    Value taken = from;
    need(taken.arranged.take(*axis, part * sizes[0], sizes[0]), "cuts an extent as no layer does");
    taken.node = node_;
    values_.insert_or_assign(node.outputs[static_cast<std::size_t>(part)], std::move(taken));
  }
}

void Importer::slice(const OnnxNode& node) {
  Value from = arrangeable();
  const auto list = [&](std::string_view attribute, std::size_t index) {
    if (const auto* given = node.list(attribute)) return *given;
    return find_numbers(index) != nullptr ? integers(index) : std::vector<std::int64_t>{};
  };
  const std::vector<std::int64_t> starts = list("starts", 1), ends = list("ends", 2), steps = list("steps", 4);
  std::vector<std::int64_t> over = list("axes", 3);
  for (std::size_t i = over.size(); i < starts.size(); ++i) over.push_back(static_cast<std::int64_t>(i));
  need(!starts.empty() && ends.size() == starts.size() && over.size() == starts.size() &&
           std::ranges::all_of(steps, [](std::int64_t step) { return step == 1; }),
       "takes elements as no layer does");
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto axis = from.arranged.find_axis(over[i]);
    need(axis.has_value(), "has an axis that its input has not");
    const OnnxExtent whole = from.arranged.extent(*axis);
    const bool all = starts[i] == 0 && ends[i] >= std::int64_t{1} << 31;
    if (all) continue;
    need(!whole.of_rows, "takes some of the rows");
    const auto at = [&](std::int64_t to) {
      return std::clamp<std::int64_t>(to < 0 ? to + whole.count : to, 0, whole.count);
    };
    need(from.arranged.take(*axis, at(starts[i]), at(ends[i]) - at(starts[i])),
         "takes other than one of equal parts of an extent, which no layer does");
  }
  give_arranged(std::move(from), true, "");
}

void Importer::take_at(const OnnxNode& node) {
  Value from = arrangeable();
  const auto axis = from.arranged.find_axis(node.number("axis", 0));
  need(axis.has_value() && integers(1).size() == 1 && numbers(1).dims.size() <= 1,
       "takes other than one part of its input");
  const std::int64_t whole = from.arranged.extent(*axis).count;
  const std::int64_t index = integers(1)[0] < 0 ? integers(1)[0] + whole : integers(1)[0];
  bool can = !from.arranged.extent(*axis).of_rows && from.arranged.take(*axis, index, 1);
  if (can && numbers(1).dims.empty()) can = from.arranged.squeeze({static_cast<std::int64_t>(*axis)});
  give_arranged(std::move(from), can, "takes a part of an extent, which only an attention does");
}

void Importer::expand(const OnnxNode& node) {
  const Value from = arrangeable();
  const std::vector<OnnxExtent> to = wanted_extents(node, from.arranged);
  const std::vector<OnnxExtent> extents = from.arranged.extents();
  need(to.size() <= extents.size(), "repeats its input, which no layer does");
  for (std::size_t back = 1; back <= to.size(); ++back) {
    const OnnxExtent& wanted = to[to.size() - back];
    need(wanted == OnnxExtent{1} || wanted == OnnxExtent{-1} || wanted == extents[extents.size() - back],
         "repeats its input, which no layer does");
  }
  give(from);
}

void Importer::concat(const OnnxNode& node) {
  need(!node.inputs.empty(), "reads nothing");
  if (node.inputs.size() == 1) return identity(node);
  std::vector<Value> read;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) read.push_back(readable(i));
  const auto axis = read[0].arranged.find_axis(node.number("axis", 0));
  need(axis.has_value(), "has an axis that its input has not");
  std::vector<std::uint32_t> tensors;
  std::uint64_t sum = 0;
  std::optional<Arrangement> alike;
  for (const Value& one : read) {
    const auto owner = static_cast<std::uint32_t>(shape(one.tensor).extents.size() - 1);
    need(
        one.arranged.count_axes() > *axis && !shape(one.tensor).extents.empty() && one.arranged.is_extent(*axis, owner),
        "joins tensors in another extent than the last, or an image's channels");
    const Arrangement base = one.arranged.with_extent(*axis, owner, 1);
    need(!alike || *alike == base, "joins tensors whose extents lie in different orders");
    alike = base;
    tensors.push_back(one.tensor);
    sum += shape(one.tensor).extents.back();
  }
  const auto owner = static_cast<std::uint32_t>(shape(tensors[0]).extents.size() - 1);
  const std::uint32_t joined = add_layer(own_name(), Concat{}, tensors);
  give_tensor(joined, alike->with_extent(*axis, owner, size_of(static_cast<std::int64_t>(sum))));
}

void Importer::shape_numbers(const OnnxNode& node) {
  const std::vector<OnnxExtent> extents = arrangeable().arranged.extents();
  const auto count = static_cast<std::int64_t>(extents.size());
  const auto at = [&](std::int64_t to) { return std::clamp<std::int64_t>(to < 0 ? to + count : to, 0, count); };
  const std::int64_t first = at(node.number("start", 0)), end = at(node.number("end", count));
  OnnxNumbers made;
  made.whole = true;
  for (std::int64_t i = first; i < end; ++i) {
    made.integers.push_back(extents[static_cast<std::size_t>(i)].count);
    made.of_rows.push_back(extents[static_cast<std::size_t>(i)].of_rows);
  }
  made.dims = {static_cast<std::int64_t>(made.integers.size())};
  if (std::ranges::find(made.of_rows, true) == made.of_rows.end()) made.of_rows.clear();
  constants_[output()] = std::move(made);
}

void Importer::identity(const OnnxNode&) { give(input().form == Form::softmax ? input() : arrangeable()); }

/// Among floats, or among whole numbers, every type is alike here.
void Importer::cast(const OnnxNode& node) {
  if (input().form == Form::known) return give_next(input(), Form::known_number);
  if (input().form == Form::shares || input().form == Form::softmax) return give(input());
  const Value read = arrangeable();
  need(model_.has_tokens(read.tensor) == is_whole(node.number("to", 1)),
       "makes tokens of numbers, or numbers of tokens");
  give(read);
}

}  // namespace troupe::detail
