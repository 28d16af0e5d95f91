#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/clock.hpp"
#include "runtime/lanes/transport.hpp"

namespace troupe {

struct PeerLink;
class UcxSends;
class UcxArrivals;

/// A message that is sent in chunks.
struct LargeSend {
  SendDone* done;
  Class priority;
  Channel channel;
  std::uint64_t number;
  std::uint64_t size_bytes;
  ucs_memory_type_t memory;  // of all pieces
  std::vector<std::byte> head;
  std::vector<ucp_dt_iov_t> pieces;
  std::size_t piece = 0;           // start of the next chunk: the piece,
  std::uint64_t piece_offset = 0;  // the offset in it,
  std::uint64_t offset = 0;        // and the offset in the message
  std::uint32_t chunks_in_flight = 0;
  bool queued = true;  // it is in the link's `waiting`
  Status result;
};

/// One active message that was passed to UCX, with everything that UCX reads until it has answered.
struct SendOp {
  UcxSends* sends = nullptr;
  PeerLink* link = nullptr;
  LargeSend* large = nullptr;  // null: not a chunk
  SendDone* done = nullptr;    // for a message that is not a chunk
  Class priority = Class::control;
  bool abandoned = false;  // its sender was told already; kept because UCX may still read it
  std::uint64_t bytes = 0;
  ucs_memory_type_t memory = UCS_MEMORY_TYPE_HOST;
  std::vector<std::byte> header;
  std::vector<ucp_dt_iov_t> pieces;
  SendOp* previous = nullptr;  // in the link's list
  SendOp* next = nullptr;
};

/// A message of which some parts have not arrived.
struct Arrival {
  /// A receive that was passed to UCX.
  struct Part {
    UcxArrivals* arrivals;
    Arrival* arrival;
    std::uint64_t bytes;
  };
  PeerLink* link;
  Receiver* receiver;
  std::uint64_t number;  // 0: not in chunks
  std::uint64_t size_bytes;
  std::vector<std::byte> head;
  Memory memory;
  std::byte* base = nullptr;     // null: the receiver gave no mapped memory
  std::uint64_t seen_bytes = 0;  // arrived, failed or dropped
  std::uint32_t parts_in_flight = 0;
  std::deque<Part> parts;  // UCX has pointers to its elements
  Status failed;
  std::list<Arrival>::iterator place;
};

/// The link to one peer on one lane. Made when it is first needed, lives as long as the lane.
struct PeerLink {
  struct Load {
    std::uint32_t messages = 0;
    std::uint64_t bytes = 0;
  };
  Peer peer;
  class DeferredWork* deferred = nullptr;
  ucp_ep_h endpoint = nullptr;
  bool silent = false;  // UCX does not watch the endpoint
  /// A message has passed the endpoint in either direction, so both of its ends know each other. Not used for a silent
  /// one.
  bool wired = false;
  // Cut: fenced by the owner or found dead. Nothing is sent or delivered any more.
  bool cut = false;
  bool report_lost = false;
  Status why;
  std::optional<Deadline> grace;  // time for UCX to return what it uses
  // For sending:
  std::array<Load, 3> load;  // by class
  SendOp* ops = nullptr;     // passed to UCX
  std::uint32_t chunks_in_flight = 0;
  bool pump_queued = false;
  std::list<LargeSend> large;
  std::array<std::deque<LargeSend*>, 3> waiting;  // those with chunks to send, by class
  // For receiving:
  std::list<Arrival> arrivals;

  /// UCX still uses something of this link.
  bool in_use() const { return ops != nullptr || !arrivals.empty(); }
};

/// Work that must not be done within UCX's callbacks. It is done at the end of the lane's progress().
class DeferredWork {
 public:
  struct Completion {
    SendDone* done;
    Status status;
  };
  void complete(SendDone& done, Status status) { completions.push_back({&done, std::move(status)}); }
  /// Takes the reports so far; valid until the next call. The two lists keep their memory, since every send uses them.
  std::vector<Completion>& take_completions() {
    taken_.clear();
    taken_.swap(completions);
    return taken_;
  }
  /// Cuts the link, at the first call for it.
  void cut(PeerLink& link, Status why, bool report_lost) {
    if (link.cut) return;
    link.cut = true;
    link.why = std::move(why);
    link.report_lost = report_lost;
    cuts.push_back(&link);
  }
  void pump(PeerLink& link) {
    if (!std::exchange(link.pump_queued, true)) pumps.push_back(&link);
  }
  bool empty() const noexcept { return completions.empty() && cuts.empty() && pumps.empty(); }

  std::vector<Completion> completions;
  std::vector<PeerLink*> cuts;
  std::vector<PeerLink*> pumps;

 private:
  std::vector<Completion> taken_;
};

/// UCX's status for a peer, as a Status.
Status peer_status(const PeerLink& link, ucs_status_t status);

}  // namespace troupe
