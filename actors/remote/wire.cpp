#include "actors/remote/wire.hpp"

#include <bit>
#include <cstring>

namespace troupe::wire {
namespace {

static_assert(std::endian::native == std::endian::little,
              "Cap'n Proto's words are little-endian; so must be the host's");

/// A struct pointer to what follows, with five data words and no pointers.
constexpr std::uint64_t kRoot = std::uint64_t{5} << 32;

}  // namespace

void store(const Header& header, std::span<std::byte, kHeaderBytes> to) noexcept {
  std::memcpy(to.data(), &kRoot, sizeof kRoot);
  std::memcpy(to.data() + sizeof kRoot, &header, sizeof header);
}

std::optional<Header> load(std::span<const std::byte> head) noexcept {
  if (head.size() < kHeaderBytes || std::memcmp(head.data(), &kRoot, sizeof kRoot) != 0) return {};
  Header header;
  std::memcpy(&header, head.data() + sizeof kRoot, sizeof header);
  const bool known = header.kind >= Kind::message && header.kind <= Kind::payload_piece;
  if (header.version != kVersion || !known) return {};
  return header;
}

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
