#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/arena.hpp"
#include "runtime/data/source.hpp"

namespace troupe::test {

/// Samples whose first feature is their number; rows without a sample have the label -1.
class Numbers final : public Source {
 public:
  explicit Numbers(std::uint64_t count) : count_(count) {}
  std::uint64_t count_samples() const noexcept override { return count_; }
  const Shape& shape() const noexcept override { return shape_; }
  std::uint32_t count_classes() const noexcept override { return 2; }
  std::uint64_t size_bytes() const noexcept override { return 0; }
  void fill(const FillRequest& request, IoThreads& threads, std::shared_ptr<FillDone> done) const override {
    threads.post([request, done = std::move(done)](Blocking&) {
      write(request);
      done->filled({});
    });
  }
  static void write(const FillRequest& request) {
    const auto& [indices, seed, batch, slot] = request;
    auto* inputs = reinterpret_cast<float*>(slot);
    auto* labels = reinterpret_cast<std::int32_t*>(slot + batch.labels_offset());
    for (std::uint32_t row = 0; row < batch.rows; ++row) {
      inputs[row] = row < indices.size() ? static_cast<float>(indices[row].index) : 0.0f;
      labels[row] = row < indices.size() ? 0 : -1;
    }
  }

 private:
  std::uint64_t count_;
  Shape shape_{{1}};
};

/// The numbers of the samples in a batch that Numbers made.
inline std::vector<float> numbers_in(const AddressSpace& space, const BatchLayout& batch, const BatchLease& lease) {
  const auto* inputs = space.address_of<float>(lease.lease.memory());
  const auto* labels =
      reinterpret_cast<const std::int32_t*>(space.address(lease.lease.memory()) + batch.labels_offset());
  std::vector<float> numbers;
  for (std::uint32_t row = 0; row < batch.rows; ++row)
    if (labels[row] >= 0) numbers.push_back(inputs[row]);
  return numbers;
}

}  // namespace troupe::test
