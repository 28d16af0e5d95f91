#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/base/ids.hpp"

namespace troupe::wire {

// The frames of runtime/wire/header.capnp as plain structs. A hot path stores and loads them with one copy each; the
// bytes are those of Cap'n Proto's builder, and its reader reads them.

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
  refused
};

inline constexpr std::uint8_t kVersion = 2;
inline constexpr std::uint8_t kHasStages = 1;
inline constexpr std::uint8_t kBodyInPayload = 2;
inline constexpr std::uint8_t kVoid = 4;
inline constexpr std::uint8_t kPlain = 8;
inline constexpr std::uint8_t kFree = 16;
inline constexpr std::uint8_t kLone = 32;
inline constexpr std::uint8_t kFailed = 64;
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
/// What a message takes up at the receiver: a unit of charge, and the memory of any message beside its bytes. In a
/// mailbox a body is about twice as large as on the wire.
inline constexpr std::uint64_t kChargeBytes = 64;
inline constexpr std::uint64_t kMessageBytes = 320;
constexpr std::uint64_t cost_of(std::uint64_t body_bytes, std::uint64_t copied_bytes) noexcept {
  return kMessageBytes + 2 * body_bytes + copied_bytes;
}
/// As it stands in a header: 11 bits of a number of units, and by how many bits to shift it; rounded up.
constexpr std::uint16_t charge_of(std::uint64_t body_bytes, std::uint64_t copied_bytes) noexcept {
  std::uint64_t units = (cost_of(body_bytes, copied_bytes) + kChargeBytes - 1) / kChargeBytes;
  std::uint16_t shift = 0;
  for (; units >= (1u << 11); ++shift) units = (units + 1) / 2;
  return static_cast<std::uint16_t>(shift << 11 | units);
}
/// Units.
constexpr std::uint64_t charge_in(std::uint16_t charge) noexcept {
  return std::uint64_t{charge & 0x7ffu} << (charge >> 11);
}

/// Writes the root pointer and the header.
void store(const Header& header, std::span<std::byte, kHeaderBytes> to) noexcept;
/// Reads them; nothing when `head` is too short, of another version or layout, or not of a known kind.
std::optional<Header> load(std::span<const std::byte> head) noexcept;

/// The body of a message whose bytes went ahead in pieces, on the same lane.
struct Pieces {
  std::uint64_t number = 0;  // of the body, counted by its sender
  std::uint64_t size_bytes = 0;
};
static_assert(sizeof(Pieces) == 16 && std::is_trivially_copyable_v<Pieces>);
/// Larger bodies go in pieces of this size.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
/// Larger ones are refused at the sender.
inline constexpr std::uint64_t kLargestBody = std::uint64_t{2} << 30;

/// A credit frame's body is a list of these: what of the messages to one actor has been dealt with since the start.
struct EdgeCredit {
  std::uint64_t actor = 0;
  std::uint64_t messages = 0;
  std::uint64_t charge = 0;
};
static_assert(sizeof(EdgeCredit) == 24 && std::is_trivially_copyable_v<EdgeCredit>);

/// Appends one head to a batch frame's body, behind its length.
void append_to_batch(std::vector<std::byte>& frame, std::span<const std::byte> head);
inline constexpr std::size_t kBatchedBytes = sizeof(std::uint32_t);  // more than the head itself
/// Takes the next head off a batch frame's body; empty at its end, and where it is damaged, which `rest` then tells.
std::span<const std::byte> next_in_batch(std::span<const std::byte>& rest) noexcept;

/// Where one tensor of a message is. By reference: `memory` in an arena that both processes have mapped, kept by the
/// sender until it gets `token` back. Otherwise: `memory.offset` in the payload, and `token` is the key of the sink
/// that it shall land in, or 0.
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

/// The `count` records at the end of a head; fewer when the head is too short to hold them.
std::vector<TensorRecord> load_records(std::span<const std::byte> head, std::size_t count);
/// The last one.
std::optional<TensorRecord> load_record(std::span<const std::byte> head);

/// More in one message are refused at the sender: the records share the head with the body.
inline constexpr std::size_t kMaxTensors = 64;
/// Tensors start at multiples of this in a payload.
inline constexpr std::uint64_t kTensorAlignment = 64;
constexpr std::uint64_t align_up(std::uint64_t offset) noexcept {
  return (offset + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

}  // namespace troupe::wire
