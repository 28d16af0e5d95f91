#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/source.hpp"

namespace troupe {

/// The bytes of a text as samples: window w has `length` bytes, "tokens" [length] i32, and the byte after each of them,
/// "label" [length] i32. Windows are consecutive. In each epoch all windows of a training set begin later by a number
/// of bytes below `length` that depends on (seed, epoch), so that epochs cut the text differently.
class TextWindows final : public Source {
 public:
  /// `part`: a part of `text`, which is kept. Throws Error{invalid} if `part` has no room for one window.
  TextWindows(std::shared_ptr<const std::vector<std::uint8_t>> text, std::span<const std::uint8_t> part,
              std::uint32_t length, bool training);

  std::uint64_t count_samples() const noexcept override { return count_; }
  const std::vector<Field>& fields() const noexcept override { return fields_; }
  void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const override;
  std::uint64_t size_bytes() const noexcept override { return part_.size(); }

 private:
  void fill_batch(const FillRequest& request) const;

  const std::shared_ptr<const std::vector<std::uint8_t>> text_;
  const std::span<const std::uint8_t> part_;
  const std::uint32_t length_;
  const bool training_;
  const std::uint64_t count_;
  const std::vector<Field> fields_;
};

}  // namespace troupe
