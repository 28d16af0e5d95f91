#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "tests/support/cuda_host/entry.hpp"
#include "tests/support/cuda_host/nccl/clique.hpp"

namespace troupe::nccl::host {

using cuda::host::Clock;
using cuda::host::Entry;
using cuda::host::Moment;
using cuda::host::OperationPtr;
using cuda::host::PlacePtr;
using cuda::host::Run;
using cuda::host::StreamThread;

/// One call within a group.
struct Call {
  enum class Kind { all_reduce, reduce, broadcast, all_gather, send, recv };
  Kind kind;
  const char* name;
  std::uintptr_t from = 0;
  std::uintptr_t to = 0;
  std::uint64_t count = 0;
  Type type = Type::f32;
  int root = -1;  // or the peer
  PlacePtr place;

  bool is_collective() const noexcept { return kind != Kind::send && kind != Kind::recv; }
  std::uint64_t size_bytes() const noexcept { return count * (type == Type::f32 ? 4 : type == Type::u64 ? 8 : 1); }
};

/// A rank's communicator. Guarded by Process::mutex, but for what lies in the clique.
struct CommState {
  CommState() = default;
  ~CommState() { close_clique(open); }
  CommState(const CommState&) = delete;
  CommState& operator=(const CommState&) = delete;

  int rank = 0;
  int ranks = 0;
  OpenClique open;
  int device = 0;
  bool blocking = true;
  PlacePtr made;
  bool aborted = false;
  Result error = Result::success;  // that happened in the background
  int running = 0;                 // operations on streams
  std::uint64_t groups = 0;
  std::uint64_t collectives = 0;
  std::vector<std::uint64_t> sent, received;  // messages, by peer
  PlacePtr last_place;                        // of the group before; null: none has run
  Moment last;

  /// A group that may not have come to its stream yet: the caller asks until it has.
  struct Unsettled {
    std::shared_ptr<StreamThread> stream;
    OperationPtr operation;
    const void* capture = nullptr;
    std::uint64_t submitted = 0;  // what the stream had then
    int asks = 0;                 // until it comes to the stream
    bool there = false;
  };
  std::optional<Unsettled> unsettled;
  std::vector<std::weak_ptr<const cuda::host::Operation>> recorded;  // in graphs

  Clique& clique() const noexcept { return *open.clique; }
  bool is_connected() const noexcept { return clique().seated.load() == ranks; }
};

/// The group as one operation of a stream.
void run_group(Run& run, CommState& comm, const std::vector<Call>& calls, const PlacePtr& place);

}  // namespace troupe::nccl::host
