#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transports/nccl/nccl_api.hpp"

namespace troupe::nccl::host {

inline constexpr int kMostRanks = 16;
inline constexpr std::uint64_t kWireBytes = std::uint64_t{1} << 16U;
inline constexpr std::uint64_t kLogged = 64;

/// Bytes from one rank to another: written by one thread, read by one.
struct Wire {
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  std::byte bytes[kWireBytes];
};

/// A collective that a rank has called.
struct Record {
  char name[32];
  std::uint64_t count;
  std::uint32_t type;
  std::int32_t root;  // -1: it has none
  char place[192];
};

struct Seat {
  std::atomic<std::uint32_t> taken;
  std::atomic<std::int32_t> device;
  std::atomic<std::int64_t> process;
  std::atomic<std::uint64_t> calls;  // collectives that it has begun
  Record log[kLogged];               // the last of them
};

/// What the ranks of a communicator share, be they threads or processes: an anonymous file, of which an id says where
/// it is. Zero bytes are a new one.
struct Clique {
  std::atomic<std::int32_t> ranks;
  std::atomic<std::int32_t> seated;
  std::atomic<std::uint32_t> broken;  // the ranks disagree, and were told
  Seat seats[kMostRanks];
  Wire lane_resources[kMostRanks][kMostRanks];  // from, to
};

/// An open clique.
struct OpenClique {
  Clique* clique = nullptr;  // null: it cannot be opened
  std::uint64_t number = 0;  // the same in all processes
};

bool make_clique(UniqueId& id);
OpenClique open_clique(const UniqueId& id);
/// When no operation looks at it any more. Nobody can open it then by the id, if this process made that.
void close_clique(const OpenClique& open);

}  // namespace troupe::nccl::host
