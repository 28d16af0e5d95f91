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

/// Where a model's parameters lie in one flat f32 buffer: one group after the other, in each in the graph's order, each
/// at a multiple of 16 elements (64 bytes), gaps zero. Gradients, optimizer state and the bf16 image of the weights use
/// the same element numbers.
class Layout {
 public:
  static constexpr std::uint64_t kAlignElements = 16;
  struct Entry {
    std::uint64_t first = 0;  // element
    std::uint64_t count = 0;  // elements, without the gap
  };
  /// All parameters in one group.
  explicit Layout(const Graph& graph) : Layout(graph, {}) {}
  /// Parameter i in group groups[i]; none: all in group 0. Throws Error{invalid} for a group without parameters.
  Layout(const Graph& graph, std::span<const GroupId> groups);
  /// Entry i belongs to graph.parameters()[i].
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// Of parameter i.
  GroupId group_of(std::size_t parameter) const { return group_of_.at(parameter); }
  /// The elements of each group, gaps included.
  const std::vector<Entry>& groups() const noexcept { return groups_; }
  /// With gaps; a multiple of 16.
  std::uint64_t count_elements() const noexcept { return count_elements_; }

 private:
  std::vector<Entry> entries_;
  std::vector<GroupId> group_of_;  // by parameter
  std::vector<Entry> groups_;
  std::uint64_t count_elements_ = 0;
};

/// Which of graph.parameters() have names that match `pattern` (of a shell: `*.bias`), growing. Throws Error{invalid}
/// for one that matches none.
std::vector<std::size_t> parameters_matching(const Graph& graph, const std::string& pattern);

/// The entries of a group's parameters whose names match one of `patterns`, growing, as elements of the group. Throws
/// as parameters_matching. `with_vectors`: and those with fewer than two extents, such as biases.
std::vector<Layout::Entry> entries_matching(const Graph& graph, const Layout& layout,
                                            std::span<const std::string> patterns, GroupId group = {},
                                            bool with_vectors = false);
/// Those of a group's parameters that have two extents or more, likewise.
std::vector<Layout::Entry> entries_of_tensors(const Graph& graph, const Layout& layout, GroupId group = {});

/// Fills `parameters` [layout.count_elements()] with the graph's starting weights. Element i of parameter p depends on
/// (seed, p, i) only, so every rank, and every part of the buffer, can be filled by itself with equal result.
void fill_initial(const Graph& graph, const Layout& layout, std::uint64_t seed, std::span<float> parameters);

/// f32 to bf16, round to nearest even; NaN stays NaN.
std::uint16_t to_bf16(float value) noexcept;
float from_bf16(std::uint16_t value) noexcept;
/// The same, or as they are, for `count` elements one after the other.
void convert_elements(std::byte* to, DType to_type, const std::byte* from, DType from_type,
                      std::uint64_t count) noexcept;
/// As Stream::convert_with_residual.
void convert_elements_with_residual(std::byte* to, DType to_type, const float* from, float* residual,
                                    std::uint64_t count) noexcept;
/// As Stream::add_converted.
void add_converted_elements(float* to, const std::byte* from, DType from_type, std::uint64_t count) noexcept;

/// How one batch lies in a slot of a pool: field after field, each [rows, its shape] row-major from a multiple of 64
/// bytes on. A step or an evaluation may use fewer rows than there is room for: the first ones.
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
  /// The field called `name`. Throws Error{invalid} listing the fields when there is none.
  const Entry& entry(std::string_view name) const;
  /// A multiple of 64, and at least that.
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// Throws Error{invalid} when these are not the fields that `graph` reads, or there are no rows.
  void check_fits(const Graph& graph) const;

 private:
  std::string fields_text() const;
  std::uint32_t rows_;
  std::vector<Entry> entries_;
  std::uint64_t size_bytes_ = 0;
};

/// "image [28, 28, 1] f32, label [] i32", for messages.
std::string list_fields(const std::vector<Field>& fields);

/// The part of a parameter group that has one tenant. Boundaries are multiples of kAlignElements (the last ends with
/// the group).
struct Stripe {
  GroupId group;
  Rank tenant;
  std::uint64_t first = 0;  // element
  std::uint64_t count = 0;
  friend bool operator==(const Stripe&, const Stripe&) = default;
};

/// Cuts `count_elements` into one stripe a rank, in rank order, sizes as equal as whole blocks of 1,024 elements (4 KiB
/// of f32) allow; later ranks may get nothing.
std::vector<Stripe> equal_stripes(GroupId group, std::uint64_t count_elements, std::uint32_t ranks);

/// Gradients that are exchanged together: a range of a group. Numbered in each group in the order in which a backward
/// pass finishes them.
struct Bucket {
  GroupId group;
  std::uint32_t index = 0;
  std::uint64_t first = 0;  // element of the group, where a parameter starts
  std::uint64_t count = 0;
  std::uint64_t base = 0;  // element of the layout that is the group's first
  /// Its first element in the layout, as replicas count.
  constexpr std::uint64_t first_in_layout() const noexcept { return base + first; }
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// One bucket for the whole group when `target_bytes` is 0; otherwise layers are gathered from the last to the first
/// until a bucket holds at least `target_bytes` of f32.
std::vector<Bucket> make_buckets(GroupId group, const Graph& graph, const Layout& layout, std::uint64_t target_bytes);

/// The first layer that has a parameter in `bucket`: when a backward pass has come there, the bucket is finished.
/// Throws Error{invalid} for a bucket without parameters.
std::uint32_t first_layer(const Graph& graph, const Layout& layout, const Bucket& bucket);

/// The buckets of all groups in the order in which a backward pass finishes them: as replicas take them.
std::vector<Bucket> in_backward_order(const Graph& graph, const Layout& layout, std::vector<Bucket> buckets);

}  // namespace troupe
