#pragma once

#include <caf/error.hpp>
#include <caf/mailbox_element.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/remote/detail/backlog.hpp"
#include "actors/remote/detail/context.hpp"
#include "actors/remote/detail/frame_sender.hpp"
#include "actors/remote/detail/known_actors.hpp"
#include "actors/remote/detail/open_requests.hpp"
#include "actors/remote/detail/staging.hpp"
#include "actors/remote/detail/tensor_loans.hpp"

namespace troupe::remote {

class Proxies;

/// Writes messages to the wire: makes one or several frames from CAF's element.
///
/// A message is numbered here, once for its actor (header.sequence) and once for its peer (header.order). Every number
/// must arrive: a message that cannot be sent after it was numbered is replaced by one that says so, or by an empty
/// one. Otherwise all later messages to that actor would wait at the receiver forever. Threads: the control lane's.
class Outbound {
 public:
  Outbound(Context& context, FrameSender& frames, Staging& staging, KnownActors& actors, OpenRequests& requests,
           TensorLoans& loans, Backlog& backlog, Proxies& proxies)
      : context_(context),
        frames_(frames),
        staging_(staging),
        actors_(actors),
        requests_(requests),
        loans_(loans),
        backlog_(backlog),
        proxies_(proxies) {}

  // For proxies. Any thread:
  Context& context() const noexcept { return context_; }
  // The control lane's:
  Proxies& proxies() const noexcept { return proxies_; }
  /// Sends the message, answers it with an error, or keeps it until the peer accepts more.
  void transmit(Proxy& proxy, caf::mailbox_element_ptr message);
  /// Reports messages that were refused and dropped.
  void note_refused_send(PeerState& peer);

  /// Sends the message without checking credit; it must be the next one to send.
  void send_now(Proxy& proxy, caf::mailbox_element& message);
  void send_down(PeerState& to, const Ended& ended);
  /// Forgets messages that wait for tensors: a lost peer's, or all.
  void forget_parked(Peer peer);
  void forget_all_parked() { parked_.clear(); }

 private:
  class PointsReached;
  using Frames = FrameSender::Frames;
  /// A message that waits until its tensors are valid, and then until those that are staged have been sent.
  struct Parked {
    Frames frames;
    std::optional<StagedPayload> payload;
  };

  void send_link(Proxy& proxy, const LinkChange& change);
  void report_passed(const Proxy& proxy, const caf::mailbox_element& message);
  void refuse(Proxy& proxy, caf::mailbox_element& message, const Status& why);
  Status encode(PeerState& to, caf::mailbox_element& message, wire::Header& header);
  std::uint64_t source_of(const caf::strong_actor_ptr& sender, wire::Header& header);
  void spend(Proxy& proxy, wire::Header& header, std::size_t body_bytes);
  void send_encoded(Proxy& proxy, wire::Header header);
  void cut_into_pieces(PeerState& to, std::shared_ptr<const Body> body, Frames& frames);
  bool needs_bulk(std::size_t body_bytes) const;
  StagedPayload take_payload(PeerState& to, std::uint32_t order);
  void park(Parked message);
  void go_on(Parked message);
  void unpark(std::uint64_t ticket, const Status& status);
  void replace_failed(const Frame& frame, const Status& why);

  Context& context_;
  FrameSender& frames_;
  Staging& staging_;
  KnownActors& actors_;
  OpenRequests& requests_;
  TensorLoans& loans_;
  Backlog& backlog_;
  Proxies& proxies_;
  std::vector<char> scratch_;  // the message that is being sent: space for the header, then the body
  TensorPlan tensors_;         // of that message
  std::unordered_map<std::uint64_t, Parked> parked_;  // by ticket
  std::uint64_t next_ticket_ = 1;
};

}  // namespace troupe::remote
