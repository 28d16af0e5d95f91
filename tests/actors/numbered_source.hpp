#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/data/source.hpp"
#include "runtime/memory/arena.hpp"
#include "tests/support/batches.hpp"

namespace troupe::test {

inline std::vector<Field> numbered_fields() {
  return {{std::string{kImage}, {{1}}, DType::f32}, {std::string{kLabel}, {}, DType::i32, 2}};
}

/// Samples whose first feature is their number; rows without a sample have the label -1.
class Numbers final : public Source {
 public:
  explicit Numbers(std::uint64_t count) : count_(count) {}
  std::uint64_t count_samples() const noexcept override { return count_; }
  const std::vector<Field>& fields() const noexcept override { return fields_; }
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
    auto* labels = testing::labels_in(*batch, slot);
    for (std::uint32_t row = 0; row < batch->rows(); ++row) {
      inputs[row] = row < indices.size() ? static_cast<float>(indices[row].index) : 0.0f;
      labels[row] = row < indices.size() ? 0 : -1;
    }
  }

 private:
  std::uint64_t count_;
  std::vector<Field> fields_ = numbered_fields();
};

/// The numbers of the samples in a batch that Numbers made.
inline std::vector<float> numbers_in(const AddressSpace& space, const BatchLayout& batch, const BatchLease& lease) {
  const auto* inputs = space.address_of<float>(lease.lease.memory());
  const auto* labels = testing::labels_in(batch, space.address(lease.lease.memory()));
  std::vector<float> numbers;
  for (std::uint32_t row = 0; row < batch.rows(); ++row)
    if (labels[row] >= 0) numbers.push_back(inputs[row]);
  return numbers;
}

}  // namespace troupe::test
