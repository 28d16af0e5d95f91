#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/message_id.hpp>

#include "runtime/base/clock.hpp"
#include "runtime/lanes/transport.hpp"

namespace troupe::remote {

struct OpenRequest;

/// A request's place in a list; without meaning while it is in none.
struct RequestLink {
  OpenRequest* next = nullptr;
  OpenRequest** before = nullptr;  // what points at it: the list, or the request before it
};

/// A request to an actor of another process that has no answer yet. It does not move while it is in lists.
struct OpenRequest {
  caf::actor_id requester = 0;
  caf::message_id id;
  Peer peer;
  Peer passed_by;  // from which `peer` gets it; `peer` itself if nobody passed it on
  caf::actor_id target = 0;
  Clock::time_point sent;  // for requests that are timed
  RequestLink of_requester, of_target;
};

/// The open requests of one requester, or to one target: when it ends, they are found without a look at all others. The
/// last one comes first. It owns nothing, and must not move while it has requests.
template <RequestLink OpenRequest::*place>
class RequestList {
 public:
  OpenRequest* first() const noexcept { return first_; }
  void add(OpenRequest& request) noexcept {
    if (first_ != nullptr) (first_->*place).before = &(request.*place).next;
    request.*place = {first_, &first_};
    first_ = &request;
  }
  static void remove(const OpenRequest& request) noexcept {
    const RequestLink link = request.*place;
    *link.before = link.next;
    if (link.next != nullptr) (link.next->*place).before = link.before;
  }

 private:
  OpenRequest* first_ = nullptr;
};

using RequestsOf = RequestList<&OpenRequest::of_requester>;
using RequestsTo = RequestList<&OpenRequest::of_target>;

}  // namespace troupe::remote
