#pragma once

#include <bit>
#include <cstdint>

namespace troupe {

static_assert(std::endian::native == std::endian::little, "the frame is stored as it lies in memory");

/// Precedes the user's head in the header of every active message.
struct Frame {
  static constexpr std::uint32_t kWhole = 1;  // the message's payload is this active message's
  static constexpr std::uint32_t kChunk = 2;  // a ChunkPlace follows
  std::uint32_t source;                       // the sender's peer number
  std::uint32_t kind;
};
static_assert(sizeof(Frame) == 8);

/// Where the payload of an active message belongs in that of the whole message. The user's head is in every chunk,
/// since any chunk may arrive first.
struct ChunkPlace {
  std::uint64_t message;  // the sender's number, per lane
  std::uint64_t size_bytes;
  std::uint64_t offset;
};
static_assert(sizeof(ChunkPlace) == 24);

constexpr std::size_t kMaxFrameBytes = sizeof(Frame) + sizeof(ChunkPlace);

}  // namespace troupe
