#include "runtime/onnx/detail/arrangement.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::detail {

Arrangement::Arrangement(const Shape& shape, std::uint64_t rows) : rows_(rows), axes_(1) {
  if (rows != 1) axes_.front().push_back(kRows);
  for (std::uint32_t owner = 0; owner < shape.extents.size(); ++owner) {
    axes_.emplace_back();
    if (shape.extents[owner] == 1) continue;
    axes_.back().push_back(atoms_.size());
    atoms_.push_back({shape.extents[owner], owner});
  }
}

Arrangement Arrangement::channels_first(const Shape& image, std::uint64_t rows) {
  Arrangement made{image, rows};
  std::rotate(made.axes_.begin() + 1, made.axes_.begin() + 3, made.axes_.end());
  return made;
}

std::optional<std::size_t> Arrangement::find_axis(std::int64_t axis) const noexcept {
  const auto count = static_cast<std::int64_t>(axes_.size());
  if (axis < -count || axis >= count) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

OnnxExtent Arrangement::extent(std::size_t axis) const {
  OnnxExtent found;
  for (const std::size_t atom : axes_[axis]) {
    if (atom == kRows && rows_ == 0) found.of_rows = true;
    found.count *= static_cast<std::int64_t>(atom != kRows ? atoms_[atom].extent : std::max<std::uint64_t>(rows_, 1));
  }
  return found;
}
std::vector<OnnxExtent> Arrangement::extents() const {
  std::vector<OnnxExtent> found;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) found.push_back(extent(axis));
  return found;
}

/// Cuts an atom into `outer` times what is left; axes then have both.
void Arrangement::split(std::size_t atom, std::uint64_t outer) {
  Atom inner = atoms_[atom];
  inner.extent /= outer;
  atoms_[atom].extent = outer;
  atoms_.insert(atoms_.begin() + static_cast<std::ptrdiff_t>(atom) + 1, inner);
  for (Axis& axis : axes_) {
    for (std::size_t& one : axis) one += one != kRows && one > atom ? 1 : 0;
    if (const auto at = std::ranges::find(axis, atom); at != axis.end()) axis.insert(at + 1, atom + 1);
  }
}

/// Whether an atom and the next one are side by side in an axis, as in the tensor's extent.
bool Arrangement::can_join(std::size_t atom) const {
  if (atoms_[atom].owner != atoms_[atom + 1].owner) return false;
  return std::ranges::any_of(axes_, [&](const Axis& axis) {
    const auto at = std::ranges::find(axis, atom);
    return at != axis.end() && at + 1 != axis.end() && *(at + 1) == atom + 1;
  });
}

/// So that equal arrangements have equal atoms.
void Arrangement::join_neighbours() {
  for (std::size_t atom = 0; atom + 1 < atoms_.size();) {
    if (!can_join(atom)) {
      ++atom;
      continue;
    }
    atoms_[atom].extent *= atoms_[atom + 1].extent;
    atoms_.erase(atoms_.begin() + static_cast<std::ptrdiff_t>(atom) + 1);
    for (Axis& axis : axes_) {
      std::erase(axis, atom + 1);
      for (std::size_t& one : axis) one -= one != kRows && one > atom ? 1 : 0;
    }
  }
}

bool Arrangement::reshape(std::vector<OnnxExtent> to) {
  // Everything is put into one axis, from which the new ones are cut off.
  OnnxExtent left;
  for (const OnnxExtent& one : extents()) {
    left.count *= one.count;
    left.of_rows = left.of_rows || one.of_rows;
  }
  const auto rest = std::ranges::find(to, -1, &OnnxExtent::count);
  for (auto one = to.begin(); one != to.end(); ++one) {
    if (one == rest) continue;
    if (one->count <= 0 || left.count % one->count != 0 || (one->of_rows && !left.of_rows)) return false;
    left.count /= one->count;
    left.of_rows = left.of_rows && !one->of_rows;
  }
  if (rest == to.end() && left != OnnxExtent{}) return false;
  if (rest != to.end()) *rest = left;

  Axis all;
  for (const Axis& axis : axes_) all.insert(all.end(), axis.begin(), axis.end());
  axes_ = {all};
  std::vector<Axis> made;
  for (const OnnxExtent& one : to) {
    Axis& axis = made.emplace_back();
    auto need = static_cast<std::uint64_t>(one.count);
    bool need_rows = one.of_rows;
    while (need > 1 || need_rows) {
      Axis& source = axes_.front();
      if (source.empty()) return false;
      const std::size_t atom = source.front();
      if (atom == kRows) {
        if (rows_ == 0 ? !need_rows : need % rows_ != 0) return false;
        rows_ == 0 ? void(need_rows = false) : void(need /= rows_);
      } else {
        const std::uint64_t extent = atoms_[atom].extent;
        if (need % extent != 0) {
          if (need <= 1 || extent % need != 0) return false;
          for (Axis& done : made)
            for (std::size_t& other : done) other += other != kRows && other > atom ? 1 : 0;
          split(atom, need);
        }
        need /= atoms_[atom].extent;
      }
      axis.push_back(atom);
      axes_.front().erase(axes_.front().begin());
    }
  }
  if (!axes_.front().empty()) return false;
  axes_ = std::move(made);
  join_neighbours();
  return true;
}

bool Arrangement::permute(std::span<const std::int64_t> order) {
  if (order.size() != axes_.size()) return false;
  std::vector<Axis> made;
  std::vector<bool> seen(axes_.size());
  for (const std::int64_t one : order) {
    const auto axis = find_axis(one);
    if (!axis || seen[*axis]) return false;
    seen[*axis] = true;
    made.push_back(axes_[*axis]);
  }
  axes_ = std::move(made);
  return true;
}

bool Arrangement::squeeze(std::vector<std::int64_t> axes) {
  std::vector<bool> removed(axes_.size());
  for (const std::int64_t one : axes) {
    const auto axis = find_axis(one);
    if (!axis || !axes_[*axis].empty()) return false;
    removed[*axis] = true;
  }
  std::vector<Axis> made;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis)
    if (axes.empty() ? !axes_[axis].empty() : !removed[axis]) made.push_back(axes_[axis]);
  axes_ = std::move(made);
  return true;
}

bool Arrangement::unsqueeze(std::vector<std::int64_t> axes) {
  const auto count = static_cast<std::int64_t>(axes_.size() + axes.size());
  for (std::int64_t& axis : axes) {
    if (axis < -count || axis >= count) return false;
    axis += axis < 0 ? count : 0;
  }
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) {
    if (axis > static_cast<std::int64_t>(axes_.size())) return false;
    axes_.insert(axes_.begin() + axis, Axis{});
  }
  return true;
}

bool Arrangement::take(std::size_t axis, std::int64_t first, std::int64_t count) {
  const OnnxExtent whole = extent(axis);
  if (whole.of_rows || first < 0 || count <= 0 || whole.count % count != 0 || first % count != 0) return false;
  if (first > whole.count - count) return false;
  if (count == whole.count) return true;
  const auto parts = static_cast<std::uint64_t>(whole.count / count);
  const std::size_t atom = axes_[axis].front();
  if (atom == kRows || atoms_[atom].extent % parts != 0) return false;
  if (atoms_[atom].extent != parts) split(atom, parts);
  atoms_[atom].taken = static_cast<std::uint64_t>(first / count);
  axes_[axis].erase(axes_[axis].begin());
  return true;
}

bool Arrangement::has_rows_first() const {
  if (rows_ == 1) return true;
  return !axes_.empty() && axes_.front() == Axis{kRows};
}

std::vector<std::size_t> Arrangement::in_file_order() const {
  std::vector<std::size_t> all;
  for (const Axis& axis : axes_)
    for (const std::size_t atom : axis)
      if (atom != kRows) all.push_back(atom);
  return all;
}

bool Arrangement::is_owner(const Axis& axis, std::uint32_t owner) const {
  Axis wanted;
  for (std::size_t atom = 0; atom < atoms_.size(); ++atom)
    if (atoms_[atom].owner == owner) wanted.push_back(atom);
  return axis == wanted;
}
bool Arrangement::is_extent(std::size_t axis, std::uint32_t owner) const { return is_owner(axes_[axis], owner); }

bool Arrangement::is_whole() const {
  return std::ranges::none_of(atoms_, [](const Atom& atom) { return atom.taken.has_value(); });
}

bool Arrangement::is_plain() const {
  if (!has_rows_first()) return false;
  std::size_t atom = 0;
  for (std::size_t axis = rows_ == 1 ? 0 : 1; axis < axes_.size(); ++axis) {
    if (axes_[axis].empty()) continue;
    if (axes_[axis] != Axis{atom} || atoms_[atom].taken) return false;
    ++atom;
  }
  return atom == atoms_.size();
}
bool Arrangement::is_exactly_plain(const Shape& shape) const {
  return axes_.size() == shape.extents.size() + 1 && *this == Arrangement{shape, rows_};
}

bool Arrangement::is_flat(std::size_t axis) const {
  if (!has_rows_first() || axes_[axis].size() != atoms_.size() || (rows_ != 1 && axis == 0)) return false;
  for (std::size_t other = rows_ == 1 ? 0 : 1; other < axes_.size(); ++other)
    if (other != axis && !axes_[other].empty()) return false;
  return std::ranges::find(axes_[axis], kRows) == axes_[axis].end();
}

std::vector<std::size_t> Arrangement::places() const {
  std::vector<std::size_t> strides(atoms_.size(), 1);
  for (std::size_t atom = atoms_.size(); atom-- > 1;) strides[atom - 1] = strides[atom] * atoms_[atom].extent;
  std::vector<std::size_t> places{0};
  for (const std::size_t atom : in_file_order()) {
    std::vector<std::size_t> next;
    next.reserve(places.size() * atoms_[atom].extent);
    for (const std::size_t place : places)
      for (std::uint64_t i = 0; i < atoms_[atom].extent; ++i) next.push_back(place + i * strides[atom]);
    places = std::move(next);
  }
  return places;
}

Arrangement Arrangement::with_extent(std::size_t axis, std::uint32_t owner, std::uint32_t count) const {
  Arrangement made = *this;
  made.atoms_.resize(made.atoms_.size() - axes_[axis].size());  // the innermost ones
  made.axes_[axis].clear();
  if (count == 1) return made;
  made.axes_[axis].push_back(made.atoms_.size());
  made.atoms_.push_back({count, owner});
  return made;
}

Arrangement Arrangement::with_last(std::uint32_t owner, std::uint32_t count) const {
  Arrangement made = *this;
  made.axes_.emplace_back();
  return made.with_extent(made.axes_.size() - 1, owner, count);
}

std::optional<Arrangement::Layers> Arrangement::layers(const Shape& shape) const {
  if (!has_rows_first() || !is_whole()) return std::nullopt;
  const auto extents = static_cast<std::uint32_t>(shape.extents.size());
  const bool flat = extents > 1 &&
                    std::ranges::any_of(axes_,
                                        [&](const Axis& axis) {
                                          return is_flat(static_cast<std::size_t>(&axis - axes_.data())) &&
                                                 axis.size() == atoms_.size();
                                        }) &&
                    axes_.size() <= 2;
  std::vector<bool> placed(extents);
  std::vector<std::uint32_t> order;
  const auto place = [&](std::uint32_t owner) {
    placed[owner] = true;
    order.push_back(owner);
  };
  const auto place_unit = [&] {
    for (std::uint32_t owner = 0; owner < extents; ++owner)
      if (shape.extents[owner] == 1 && !placed[owner]) return place(owner);
  };
  if (flat) {
    for (const std::size_t atom : in_file_order()) {
      if (!order.empty() && order.back() == atoms_[atom].owner) continue;
      if (placed[atoms_[atom].owner]) return std::nullopt;
      place(atoms_[atom].owner);
    }
    const std::vector<std::size_t> atoms = in_file_order();
    for (std::size_t i = 1; i < atoms.size(); ++i)
      if (atoms_[atoms[i]].owner == atoms_[atoms[i - 1]].owner && atoms[i] < atoms[i - 1]) return std::nullopt;
  } else {
    const bool names_rows = rows_ != 1 || axes_.size() > extents;
    for (std::size_t axis = names_rows ? 1 : 0; axis < axes_.size(); ++axis) {
      if (axes_[axis].empty()) {
        place_unit();
        continue;
      }
      const std::uint32_t owner = axes_[axis].front() == kRows ? extents : atoms_[axes_[axis].front()].owner;
      if (owner == extents || !is_owner(axes_[axis], owner)) return std::nullopt;
      place(owner);
    }
  }
  while (order.size() < extents) {
    const std::size_t before = order.size();
    place_unit();
    if (order.size() == before) return std::nullopt;
  }
  if (flat && std::ranges::count_if(shape.extents, [](std::uint32_t one) { return one != 1; }) <= 1) order.clear();
  if (std::ranges::is_sorted(order)) order.clear();
  return Layers{std::move(order), flat};
}

std::optional<Arrangement::Heads> Arrangement::heads(bool transposed) const {
  if (axes_.size() < 3) return std::nullopt;
  const std::size_t last = axes_.size() - 1;
  const Axis& length = axes_[transposed ? last : last - 1];
  const Axis& each = axes_[transposed ? last - 1 : last];
  if (!is_owner(length, 0)) return std::nullopt;
  Heads found;
  std::size_t next = 0;  // the atom that must come next, in the tensor's order
  while (next < atoms_.size() && atoms_[next].owner == 0) ++next;
  if (next < atoms_.size() && atoms_[next].taken) {
    if (atoms_[next].extent != 3) return std::nullopt;
    found.part = static_cast<std::uint32_t>(*atoms_[next++].taken);
  }
  bool has_rows = rows_ == 1;
  for (std::size_t axis = 0; axis + 2 < axes_.size(); ++axis) {
    std::vector<bool>& lead = found.lead.emplace_back();
    for (const std::size_t atom : axes_[axis]) {
      lead.push_back(atom == kRows);
      if (atom == kRows) {
        has_rows = true;
      } else {
        if (atom != next++ || atoms_[atom].owner != 1 || found.heads != 1) return std::nullopt;
        found.heads = static_cast<std::uint32_t>(atoms_[atom].extent);
      }
    }
  }
  found.width = found.heads;
  for (const std::size_t atom : each) {
    if (atom == kRows || atom != next++ || atoms_[atom].owner != 1) return std::nullopt;
    found.width *= static_cast<std::uint32_t>(atoms_[atom].extent);
  }
  if (!has_rows || next != atoms_.size()) return std::nullopt;
  return found;
}

Arrangement Arrangement::of_heads(std::uint32_t length, const Heads& heads, std::uint64_t rows) {
  Arrangement made{Shape{{length, heads.heads, heads.width / heads.heads}}, rows};
  for (Atom& atom : made.atoms_) atom.owner = std::min(atom.owner, 1U);
  const Axis head = made.axes_[2];
  std::vector<Axis> axes;
  for (const std::vector<bool>& lead : heads.lead) {
    Axis& axis = axes.emplace_back();
    for (const bool is_rows : lead)
      is_rows ? axis.push_back(kRows) : void(axis.insert(axis.end(), head.begin(), head.end()));
  }
  axes.push_back(made.axes_[1]);
  axes.push_back(made.axes_[3]);
  made.axes_ = std::move(axes);
  return made;
}

}  // namespace troupe::detail
