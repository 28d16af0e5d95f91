#include "actors/remote/detail/open_requests.hpp"

#include <caf/scheduled_actor.hpp>
#include <caf/system_messages.hpp>
#include <chrono>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::remote {
namespace {

/// Fewer open requests are not looked through for expired ones.
constexpr std::size_t kFew = 1024;
/// A thousand times what it takes to look at one actor, or for one request among those that it waits for.
constexpr std::chrono::microseconds kLookPerRequest{100};

using Ids = std::vector<caf::message_id>;

/// Reads what CAF keeps from others: the answers for which an actor waits.
class Awaiting final : public caf::scheduled_actor {
 public:
  static Ids not_awaited(const caf::scheduled_actor& by, const Ids& requests) {
    std::unordered_set<caf::message_id> answers;
    for (const auto& [answer, handler] : by.*(&Awaiting::multiplexed_responses_)) answers.insert(answer);
    for (const auto& [answer, handler] : by.*(&Awaiting::awaited_responses_)) answers.insert(answer);
    Ids expired = requests;
    std::erase_if(expired, [&](caf::message_id request) { return answers.contains(request.response_id()); });
    return expired;
  }
};

/// Asks an actor which of its requests it does not wait for any more. The actor answers on its own thread, between two
/// messages, when it looks at the content: that of a timeout which is over, so nothing else happens.
template <class Tell>
class ExpiryQuestion final : public caf::mailbox_element {
 public:
  ExpiryQuestion(const caf::scheduled_actor& requester, Ids requests, Tell tell)
      : requester_(requester), requests_(std::move(requests)), tell_(std::move(tell)) {}
  caf::type_erased_tuple& content() override {
    if (!requests_.empty()) {  // CAF calls this more than once
      const Ids expired = Awaiting::not_awaited(requester_, std::exchange(requests_, {}));
      if (!expired.empty()) tell_(expired);
    }
    return timeout_.vals().unshared();
  }
  const caf::type_erased_tuple& content() const override { return *timeout_.vals(); }
  caf::message move_content_to_message() override { return timeout_; }
  caf::message copy_content_to_message() const override { return timeout_; }

 private:
  const caf::scheduled_actor& requester_;  // it has this in its mailbox
  Ids requests_;
  const Tell tell_;
  caf::message timeout_ = caf::make_message(caf::timeout_msg{caf::receive_atom::value, 0});
};

}  // namespace

/// CAF tells nobody that a request has timed out. To ask costs time for each open request, so it is done when their
/// number has doubled, and from time to time, so rarely that it takes a thousandth of a thread's time.
void OpenRequests::forget_expired(KnownActors& actors, const std::shared_ptr<LaneAccess>& lane_access,
                                  Clock::time_point now) {
  if (open_.size() < kFew || (open_.size() < look_from_ && now < look_again_)) return;
  look_from_ = 2 * open_.size();
  look_again_ = now + (open_.size() + actors.all().size()) * kLookPerRequest;
  for (const auto& [id, known] : actors.all()) {
    if (known.requests.first() == nullptr) continue;
    const auto* const requester = dynamic_cast<const caf::scheduled_actor*>(known.actor->get());
    if (requester == nullptr) continue;
    Ids requests;
    for (const OpenRequest* of = known.requests.first(); of != nullptr; of = of->of_requester.next)
      requests.push_back(of->id);
    auto tell = [this, lane_access, id = id](const Ids& expired) {
      lane_access->run([this, id, expired] {
        for (const caf::message_id request : expired) close(id, request);
        look_from_ = 2 * open_.size();
      });
    };
    known.actor->enqueue(
        caf::mailbox_element_ptr{new ExpiryQuestion<decltype(tell)>(*requester, std::move(requests), std::move(tell))},
        nullptr);
  }
}

}  // namespace troupe::remote
