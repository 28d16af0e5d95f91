#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/base/ids.hpp"

namespace troupe::wire {

// The frames of runtime/wire/header.capnp as plain structs, which frequent code stores and loads with one copy each.
// The bytes are the same as those of Cap'n Proto's builder, and its reader reads them.

enum class Kind : std::uint8_t {
  message = 1,
  monitor,
  down,
  release,
  credit,
  heartbeat,
  batch,
  call,
  answer,
  link,
  unlink,
  window,
  piece,
  refused,
  payload_piece,
  passed
};

inline constexpr std::uint8_t kVersion = 4;
inline constexpr std::uint8_t kHasStages = 1;
inline constexpr std::uint8_t kBodyInPayload = 2;
inline constexpr std::uint8_t kVoid = 4;
inline constexpr std::uint8_t kPlain = 8;
inline constexpr std::uint8_t kFree = 16;
inline constexpr std::uint8_t kLone = 32;
inline constexpr std::uint8_t kFailed = 64;           // of an answer, and of a payload's piece
inline constexpr std::uint8_t kPayloadInPieces = 64;  // of a message
inline constexpr std::uint8_t kBodyInPieces = 128;

struct Header {
  std::uint8_t version = kVersion;
  Kind kind = Kind::message;
  std::uint8_t flags = 0;
  std::uint8_t tensors = 0;
  std::uint16_t source_peer = 0;
  std::uint16_t charge = 0;
  std::uint32_t sequence = 0;
  std::uint32_t order = 0;
  std::uint64_t message_id = 0;
  std::uint64_t source = 0;
  std::uint64_t target = 0;
};
static_assert(sizeof(Header) == 40 && std::is_trivially_copyable_v<Header>);

inline constexpr std::size_t kHeaderBytes = 48;
/// What a message costs at the receiver: the unit of charge, and the memory of any message in addition to its bytes. In
/// a mailbox a body is about twice as large as on the wire.
inline constexpr std::uint64_t kChargeBytes = 64;
inline constexpr std::uint64_t kMessageBytes = 320;
constexpr std::uint64_t cost_of(std::uint64_t body_bytes, std::uint64_t copied_bytes) noexcept {
  return kMessageBytes + 2 * body_bytes + copied_bytes;
}
/// The form in a header: 11 bits for a number of units, and the number of bits by which to shift it; rounded up.
constexpr std::uint16_t charge_of(std::uint64_t body_bytes, std::uint64_t copied_bytes) noexcept {
  std::uint64_t units = (cost_of(body_bytes, copied_bytes) + kChargeBytes - 1) / kChargeBytes;
  std::uint64_t shift = 0;
  for (; units >= (1u << 11); ++shift) units = (units + 1) / 2;
  return static_cast<std::uint16_t>(shift << 11 | units);
}
/// The number of units.
constexpr std::uint64_t charge_in(std::uint16_t charge) noexcept {
  return std::uint64_t{charge & 0x7ffu} << (charge >> 11);
}

static_assert(std::endian::native == std::endian::little,
              "Cap'n Proto's words are little-endian; so must be the host's");
/// A struct pointer to what follows, with five data words and no pointers.
inline constexpr std::uint64_t kRoot = std::uint64_t{5} << 32;

/// Writes the root pointer and the header.
inline void store(const Header& header, std::span<std::byte, kHeaderBytes> to) noexcept {
  std::memcpy(to.data(), &kRoot, sizeof kRoot);
  std::memcpy(to.data() + sizeof kRoot, &header, sizeof header);
}
/// Reads them; nothing if `head` is too short, has another version or layout, or an unknown kind.
inline std::optional<Header> load(std::span<const std::byte> head) noexcept {
  if (head.size() < kHeaderBytes || std::memcmp(head.data(), &kRoot, sizeof kRoot) != 0) return {};
  Header header;
  std::memcpy(&header, head.data() + sizeof kRoot, sizeof header);
  const bool known = header.kind >= Kind::message && header.kind <= Kind::passed;
  if (header.version != kVersion || !known) return {};
  return header;
}

/// The body of a message that was sent before it in pieces, on the same lane.
struct Pieces {
  std::uint64_t number = 0;  // of the body, counted by its sender
  std::uint64_t size_bytes = 0;
};
static_assert(sizeof(Pieces) == 16 && std::is_trivially_copyable_v<Pieces>);
/// Larger bodies are sent in pieces of this size.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
/// Larger bodies are refused at the sender.
inline constexpr std::uint64_t kLargestBody = std::uint64_t{2} << 30;

/// The body of a credit frame is a list of these: what has been handled of the messages to one actor since the start.
struct EdgeCredit {
  std::uint64_t actor = 0;
  std::uint64_t messages = 0;
  std::uint64_t charge = 0;
};
static_assert(sizeof(EdgeCredit) == 24 && std::is_trivially_copyable_v<EdgeCredit>);

/// Appends one head to the body of a batch frame, after its length.
void append_to_batch(std::vector<std::byte>& frame, std::span<const std::byte> head);
inline constexpr std::size_t kBatchedBytes = sizeof(std::uint32_t);  // in addition to the head itself
/// Removes and returns the next head of a batch frame's body; empty at the end, and if it is damaged, in which case
/// `rest` is not empty.
std::span<const std::byte> next_in_batch(std::span<const std::byte>& rest) noexcept;

/// Where one tensor of a message is. By reference: `memory` in an arena that both processes have mapped, kept by the
/// sender until it gets `token` back. Otherwise: `memory.offset` in the payload, which may have been sent in pieces,
/// and `token` is the key of the sink for it, or 0.
struct TensorRecord {
  std::uint32_t by_reference = 0;
  ArenaId arena;
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t token = 0;
  TimelineId line;
  std::uint64_t point = 0;
};
static_assert(sizeof(TensorRecord) == 48 && std::is_trivially_copyable_v<TensorRecord>);

/// The `count` records at the end of a head; fewer if the head is too short for them.
std::vector<TensorRecord> load_records(std::span<const std::byte> head, std::size_t count);
/// The last record.
std::optional<TensorRecord> load_record(std::span<const std::byte> head);

/// A message with more is refused at the sender: the records share the head with the body.
inline constexpr std::size_t kMaxTensors = 64;
/// Tensors start at multiples of this in a payload.
inline constexpr std::uint64_t kTensorAlignment = 64;
constexpr std::uint64_t align_up(std::uint64_t offset) noexcept {
  return (offset + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

}  // namespace troupe::wire
