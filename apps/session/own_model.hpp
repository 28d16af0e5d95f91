#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/model/graph.hpp"
#include "runtime/model/layout.hpp"

namespace troupe {

/// A batch as an app sees it; valid until its step is over.
class BatchView {
 public:
  /// The first `rows` rows of what lies at `first`; both outlive it.
  BatchView(const BatchLayout& layout, const std::byte* first, std::uint32_t rows) noexcept
      : layout_(&layout), first_(first), rows_(rows) {}
  std::uint32_t rows() const noexcept { return rows_; }
  const std::vector<BatchLayout::Entry>& fields() const noexcept { return layout_->entries(); }
  /// The field called `name`, [rows, its shape] row-major: float for f32, std::uint16_t for bf16 (the numbers' bits),
  /// std::int32_t for labels, of which those below 0 mark rows that do not count. Throws Error{invalid} when there is
  /// no such field, or it is of another type.
  template <class T>
  std::span<const T> values(std::string_view name) const {
    const BatchLayout::Entry& entry = layout_->entry(name);
    constexpr DType kType = std::is_same_v<T, float>          ? DType::f32
                            : std::is_same_v<T, std::int32_t> ? DType::i32
                                                              : DType::bf16;
    static_assert(kType != DType::bf16 || std::is_same_v<T, std::uint16_t>);
    TROUPE_CHECK(entry.field.dtype == kType, Code::invalid, "field ", entry.field.to_string(),
                 " of a batch was read as ", name_of(kType));
    return {reinterpret_cast<const T*>(bytes(entry)), rows_ * entry.row_elements()};
  }
  const std::byte* bytes(const BatchLayout::Entry& entry) const noexcept { return first_ + entry.offset; }

 private:
  const BatchLayout* layout_;
  const std::byte* first_;
  std::uint32_t rows_;
};

/// One trainable tensor of a session, row-major. The parameters are those of the last committed step and change only
/// inside of step(), exchange() and run(); the gradients are this rank's, for exchange(), and sums over samples, not
/// means. Valid as long as the session. Where a device works in memory of its own both are empty: Session::parameters()
/// has a copy.
struct SessionTensor {
  std::string name;
  std::vector<std::uint64_t> extents;
  std::span<const float> parameters;
  std::span<float> gradients;
};

/// Arithmetic of the app's own on a batch; throws what it likes, which ends the run.
using OwnStep = std::function<StepSums(const BatchView&, const std::vector<SessionTensor>&)>;

/// A model that the app brings instead of a registered one: always f32, on host memory, computed on the thread that is
/// in run() or step(). All ranks have the same.
struct OwnModel {
  std::string name;
  /// In the order in which the session lists its tensors; the names appear in weights files. `layer` is not used.
  std::vector<Parameter> parameters;
  /// Overwrites every tensor's gradients with their sums over the batch's rows that count; returns these rows' loss (a
  /// sum too), how many were right, and how many there are. Empty: the app calls exchange() itself.
  OwnStep step;
  /// The same without gradients, over test samples. Empty: nothing is evaluated.
  OwnStep evaluate;
};

}  // namespace troupe
