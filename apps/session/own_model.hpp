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

/// A batch for an app; valid until its step is over.
class BatchView {
 public:
  /// The first `rows` rows of the batch at `first`; both arguments outlive it.
  BatchView(const BatchLayout& layout, const std::byte* first, std::uint32_t rows) noexcept
      : layout_(&layout), first_(first), rows_(rows) {}
  std::uint32_t rows() const noexcept { return rows_; }
  const std::vector<BatchLayout::Entry>& fields() const noexcept { return layout_->entries(); }
  /// The field called `name`, [rows, its shape] row-major: float for f32, std::uint16_t for bf16 (the numbers' bits),
  /// std::int32_t for labels; a label below 0 marks a row that does not count. Throws Error{invalid} if there is no
  /// such field, or if it has another type.
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

/// One trainable tensor of a session, row-major. The parameters are those of the last committed step, and change only
/// within step(), exchange() and run(). The gradients are this rank's, for exchange(); they are sums over samples, not
/// means. Valid as long as the session. If the device computes in its own memory both are empty; then
/// Session::parameters() has a copy.
struct SessionTensor {
  std::string name;
  std::vector<std::uint64_t> extents;
  std::span<const float> parameters;
  std::span<float> gradients;
};

/// The app's own computation on a batch. It may throw anything; that ends the run.
using OwnStep = std::function<StepSums(const BatchView&, const std::vector<SessionTensor>&)>;

/// A model that the app brings instead of a registered one: always f32, in host memory, computed on the thread that is
/// in run() or step(). It is the same at all ranks.
struct OwnModel {
  std::string name;
  /// In the order of the session's tensors; the names appear in weights files. `layer` is not used.
  std::vector<Parameter> parameters;
  /// Overwrites every tensor's gradients with their sums over the batch's rows that count. Returns these rows' loss
  /// (also a sum), the number of correct ones, and the number of rows. Empty: the app calls exchange() itself.
  OwnStep step{};
  /// The same for test samples, without gradients. Empty: there are no evaluations.
  OwnStep evaluate{};
};

}  // namespace troupe
