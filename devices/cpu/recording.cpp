#include "devices/cpu/recording.hpp"

#include <algorithm>

namespace troupe::cpu {
RecordedWork::RecordedWork(const Form& form, std::size_t words) : form_(form) {
  for (Operation& operation : form_.operations) {
    Operands* const parts = std::visit([](auto& one) { return operands_of(one); }, operation);
    if (parts == nullptr || parts->data == nullptr) continue;  // operands that are sums are values, not form
    operands_.emplace_back(parts->data, parts->data + parts->count);
    parts->data = operands_.back().data();
  }
  for (Block& block : blocks_) block.words.resize(words);
}

bool RecordedWork::busy() const noexcept {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [](const Block& block) { return block.busy.load(std::memory_order_acquire); });
}

RecordedWork::Block* RecordedWork::free_block() noexcept {
  for (Block& block : blocks_)
    if (!block.busy.load(std::memory_order_acquire)) return &block;
  return nullptr;
}

std::span<const void*> Capture::take_operands(std::size_t count, Operands& taken) {
  if (operands_.empty()) operands_.resize(OperationRing::kOperands);
  if (count > operands_.size() - used_) return {};
  const std::span<const void*> room(operands_.data() + used_, count);
  used_ += count;
  taken = {room.data(), static_cast<std::uint32_t>(count)};
  return room;
}

const Form& Capture::split(std::vector<std::uint64_t>& words) {
  words.clear();
  form_.operations.assign(operations_.begin(), operations_.end());
  form_.buckets.clear();
  for (const WorkLabel& label : labels_) form_.buckets.push_back(label.bucket);
  for (Operation& operation : form_.operations)
    std::visit([&](auto& one) { for_values(one, TakeValues{words}); }, operation);
  return form_;
}

}  // namespace troupe::cpu
