#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/model/graph.hpp"

namespace troupe::detail {

/// An extent of an array of a file: a number, or that many times the number of rows of a batch.
struct OnnxExtent {
  std::int64_t count = 1;
  bool of_rows = false;
  friend bool operator==(const OnnxExtent&, const OnnxExtent&) = default;
};

/// How an array of a file lies in a tensor of a graph: an image with its channels first, heads of a sequence, all in
/// one extent. Reshape, Transpose, Split and their like change only this, and cost nothing.
///
/// A tensor's elements are cut into atoms: an atom is a factor of one extent of the tensor, in the tensor's order from
/// the outermost to the innermost. Each axis of the array is a list of atoms, outermost first; an axis of none has the
/// extent 1. An atom that no axis has was taken at one index.
///
/// The rows of a batch are an atom of their own. Files with exactly one row cannot tell them from other extents of 1:
/// there no axis has them, and an axis of none stands in their place.
class Arrangement {
 public:
  /// The tensor as it is, behind its rows: `rows` of them, 0 for any number.
  Arrangement(const Shape& shape, std::uint64_t rows);
  /// Its channels first.
  static Arrangement channels_first(const Shape& image, std::uint64_t rows);

  std::size_t count_axes() const noexcept { return axes_.size(); }
  /// An axis that may be counted from the end; nothing if there is no such axis.
  std::optional<std::size_t> find_axis(std::int64_t axis) const noexcept;
  OnnxExtent extent(std::size_t axis) const;
  std::vector<OnnxExtent> extents() const;

  // What nodes do. False: this class cannot say it, and the arrangement is to be thrown away.

  /// One extent may be -1: what is left.
  [[nodiscard]] bool reshape(std::vector<OnnxExtent> to);
  [[nodiscard]] bool permute(std::span<const std::int64_t> order);
  [[nodiscard]] bool squeeze(std::vector<std::int64_t> axes);  // none: all of extent 1
  [[nodiscard]] bool unsqueeze(std::vector<std::int64_t> axes);
  /// Elements `first` to `first` + `count` - 1 of the axis, which must be one of equal parts.
  [[nodiscard]] bool take(std::size_t axis, std::int64_t first, std::int64_t count);

  // What layers need.

  /// Whether nothing was taken out of the tensor.
  bool is_whole() const;
  /// Whether the array is the tensor itself, but for extents of 1 and rows that are told elsewhere.
  bool is_plain() const;
  /// The same, with as many axes.
  bool is_exactly_plain(const Shape& shape) const;
  /// Whether the axis has all of the tensor's extent `owner`, and nothing else.
  bool is_extent(std::size_t axis, std::uint32_t owner) const;
  /// Whether the axis has all elements of a row, in whatever order, and the first one the rows.
  bool is_flat(std::size_t axis) const;
  /// Of each element of a flat axis: where it lies in the tensor.
  std::vector<std::size_t> places() const;
  /// With another number of elements in the tensor's last extent, `owner`, which is that axis.
  Arrangement with_extent(std::size_t axis, std::uint32_t owner, std::uint32_t count) const;
  /// With a further extent of the tensor, `owner`, and as the last axis.
  Arrangement with_last(std::uint32_t owner, std::uint32_t count) const;

  /// Layers that make the array of the tensor: a transposition, and then a flattening.
  struct Layers {
    std::vector<std::uint32_t> order;  // empty: none
    bool flatten = false;
  };
  /// Nothing: no layers can do it.
  std::optional<Layers> layers(const Shape& shape) const;

  /// What an attention reads: [.., length, width / heads] of a tensor [length, width], or, with `part`, of the part of
  /// that number of [length, 3 width].
  struct Heads {
    std::uint32_t heads = 1, width = 0;
    std::optional<std::uint32_t> part;
    std::vector<std::vector<bool>> lead;  // of the axes before the last two: their atoms; true: rows
  };
  std::optional<Heads> heads(bool transposed) const;
  /// Of a tensor [length, width] whose heads lie so.
  static Arrangement of_heads(std::uint32_t length, const Heads& heads, std::uint64_t rows);

  friend bool operator==(const Arrangement&, const Arrangement&) = default;

 private:
  static constexpr std::size_t kRows = static_cast<std::size_t>(-1);
  struct Atom {
    std::uint64_t extent = 1;
    std::uint32_t owner = 0;  // the tensor's extent
    std::optional<std::uint64_t> taken{};
    friend bool operator==(const Atom&, const Atom&) = default;
  };
  using Axis = std::vector<std::size_t>;  // indices of atoms, and kRows

  void split(std::size_t atom, std::uint64_t outer);
  void join_neighbours();
  bool can_join(std::size_t atom) const;
  bool is_owner(const Axis& axis, std::uint32_t owner) const;
  bool has_rows_first() const;
  std::vector<std::size_t> in_file_order() const;

  std::uint64_t rows_;
  std::vector<Atom> atoms_;
  std::vector<Axis> axes_;
};

}  // namespace troupe::detail
