#include "actors/remote/wire.hpp"

#include <cstring>

namespace troupe::wire {

void append_to_batch(std::vector<std::byte>& frame, std::span<const std::byte> head) {
  const auto size = static_cast<std::uint32_t>(head.size());
  const auto* const bytes = reinterpret_cast<const std::byte*>(&size);
  frame.insert(frame.end(), bytes, bytes + sizeof size);
  frame.insert(frame.end(), head.begin(), head.end());
}

std::span<const std::byte> next_in_batch(std::span<const std::byte>& rest) noexcept {
  std::uint32_t size = 0;
  if (rest.size() < sizeof size) return {};
  std::memcpy(&size, rest.data(), sizeof size);
  if (size == 0 || size > rest.size() - sizeof size) return {};
  const auto head = rest.subspan(sizeof size, size);
  rest = rest.subspan(sizeof size + size);
  return head;
}

std::vector<TensorRecord> load_records(std::span<const std::byte> head, std::size_t count) {
  if (head.size() < kHeaderBytes + count * sizeof(TensorRecord)) return {};
  std::vector<TensorRecord> records(count);
  if (count > 0)
    std::memcpy(records.data(), head.data() + head.size() - count * sizeof(TensorRecord), count * sizeof(TensorRecord));
  return records;
}

std::optional<TensorRecord> load_record(std::span<const std::byte> head) {
  TensorRecord record;
  if (head.size() < kHeaderBytes + sizeof record) return {};
  std::memcpy(&record, head.last(sizeof record).data(), sizeof record);
  return record;
}

}  // namespace troupe::wire
