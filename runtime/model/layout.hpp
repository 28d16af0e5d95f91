#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.hpp"
#include "runtime/model/graph.hpp"

namespace troupe {

/// The positions of a model's parameters in one flat f32 buffer: group after group, within a group in the graph's
/// order, each at a multiple of 16 elements (64 bytes); gaps are zero. Gradients, optimizer state and the copy in half
/// precision of the weights have the same element numbers.
class Layout {
 public:
  static constexpr std::uint64_t kAlignElements = 16;
  struct Entry {
    std::uint64_t first = 0;  // element
    std::uint64_t count = 0;  // elements, without the gap
  };
  /// All parameters in one group.
  explicit Layout(const Graph& graph) : Layout(graph, {}) {}
  /// Parameter i is in group groups[i]; empty: all in group 0. Throws Error{invalid} for a group without parameters.
  Layout(const Graph& graph, std::span<const GroupId> groups);
  /// entries()[i] belongs to graph.parameters()[i].
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// The group of a parameter.
  GroupId group_of(std::size_t parameter) const { return group_of_.at(parameter); }
  /// The elements of each group, including gaps.
  const std::vector<Entry>& groups() const noexcept { return groups_; }
  /// Including gaps; a multiple of 16.
  std::uint64_t count_elements() const noexcept { return count_elements_; }

 private:
  std::vector<Entry> entries_;
  std::vector<GroupId> group_of_;  // by parameter
  std::vector<Entry> groups_;
  std::uint64_t count_elements_ = 0;
};

/// The indices of graph.parameters() whose names match `pattern` (as in a shell: `*.bias`), ascending. Throws
/// Error{invalid} for a pattern that matches none.
std::vector<std::size_t> parameters_matching(const Graph& graph, const std::string& pattern);

/// The entries of a group's parameters whose names match one of `patterns`, ascending, as elements of the group. Throws
/// like parameters_matching. `with_vectors`: also those with fewer than two extents, such as biases.
std::vector<Layout::Entry> entries_matching(const Graph& graph, const Layout& layout,
                                            std::span<const std::string> patterns, GroupId group = {},
                                            bool with_vectors = false);
/// The entries of those parameters of a group that have two or more extents, likewise.
std::vector<Layout::Entry> entries_of_tensors(const Graph& graph, const Layout& layout, GroupId group = {});

/// Fills `parameters` [layout.count_elements()] with the graph's initial weights. Element i of parameter p depends only
/// on (seed, p, i), so every rank, and every part of the buffer, can be filled separately with the same result.
void fill_initial(const Graph& graph, const Layout& layout, std::uint64_t seed, std::span<float> parameters);

/// Converts f32 to bf16, rounding to nearest even; NaN stays NaN.
std::uint16_t to_bf16(float value) noexcept;
float from_bf16(std::uint16_t value) noexcept;
/// Converts `count` elements, or copies them if the types are the same.
void convert_elements(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                      std::uint64_t count) noexcept;
/// Like Stream::convert with a residual.
void convert_elements_with_residual(std::byte* to, DType to_type, const float* from, float* residual,
                                    std::uint64_t count) noexcept;
/// Like Stream::convert that adds.
void add_converted_elements(float* to, const std::byte* from, DType from_type, std::uint64_t count) noexcept;

/// The layout of one batch in a slot of a pool: field after field, each [rows, its shape] row-major, beginning at a
/// multiple of 64 bytes. A step or an evaluation may use only the first rows.
class BatchLayout {
 public:
  struct Entry {
    Field field;
    std::uint64_t offset = 0;  // bytes from the slot's start
    std::uint64_t row_elements() const noexcept { return field.shape.count_elements(); }
    std::uint64_t row_bytes() const noexcept { return row_elements() * troupe::size_bytes(field.dtype); }
  };
  BatchLayout(std::uint32_t rows, const std::vector<Field>& fields);
  std::uint32_t rows() const noexcept { return rows_; }
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// The field called `name`. Throws Error{invalid}, which lists the fields, if there is none.
  const Entry& entry(std::string_view name) const;
  /// A multiple of 64, at least 64.
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// Throws Error{invalid} if these are not the fields that `graph` reads, or if there are no rows.
  void check_fits(const Graph& graph) const;

 private:
  std::string fields_text() const;
  std::uint32_t rows_;
  std::vector<Entry> entries_;
  std::uint64_t size_bytes_ = 0;
};

/// "image [28, 28, 1] f32, label [] i32", for messages.
std::string list_fields(const std::vector<Field>& fields);

/// A part of a parameter group with one owner. Boundaries are multiples of kAlignElements (the last one ends
/// with the group).
struct Stripe {
  GroupId group;
  Rank owner;
  std::uint64_t first = 0;  // element
  std::uint64_t count = 0;
  friend bool operator==(const Stripe&, const Stripe&) = default;
};

/// Cuts `count_elements` into one stripe per rank, in rank order, of sizes as equal as whole blocks of 1,024 elements
/// (4 KiB of f32) allow; the last ranks may get no elements.
std::vector<Stripe> equal_stripes(GroupId group, std::uint64_t count_elements, std::uint32_t ranks);

/// Gradients that are exchanged together: a range of a group. In each group buckets are numbered in the order in which
/// a backward pass completes them.
struct Bucket {
  GroupId group;
  std::uint32_t index = 0;
  std::uint64_t first = 0;  // element of the group; a parameter begins there
  std::uint64_t count = 0;
  std::uint64_t base = 0;  // the group's first element in the layout
  /// Its first element in the layout, whose numbering replicas use.
  constexpr std::uint64_t first_in_layout() const noexcept { return base + first; }
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// If `target_bytes` is 0, one bucket for the whole group; otherwise layers are collected from the last to the first
/// until a bucket has at least `target_bytes` of f32.
std::vector<Bucket> make_buckets(GroupId group, const Graph& graph, const Layout& layout, std::uint64_t target_bytes);

/// The first layer with a parameter in `bucket`: a backward pass has completed the bucket when it has passed this
/// layer. Throws Error{invalid} for a bucket without parameters.
std::uint32_t first_layer(const Graph& graph, const Layout& layout, const Bucket& bucket);

/// The buckets of all groups in the order in which a backward pass completes them; replicas take them in this order.
std::vector<Bucket> in_backward_order(const Graph& graph, const Layout& layout, std::vector<Bucket> buckets);

}  // namespace troupe
