#include "actors/remote/detail/open_requests.hpp"

#include <caf/scheduled_actor.hpp>
#include <caf/system_messages.hpp>
#include <chrono>
#include <functional>
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
/// messages, when it looks at the content: that of a timeout which is over, so nothing else happens. One that ends
/// before names none.
class ExpiryQuestion final : public caf::mailbox_element {
 public:
  using Answer = std::function<void(Ids expired)>;
  ExpiryQuestion(const caf::scheduled_actor& requester, Ids requests, Answer answer)
      : requester_(requester), requests_(std::move(requests)), answer_(std::move(answer)) {}
  ~ExpiryQuestion() override { answer_(std::move(expired_)); }
  caf::type_erased_tuple& content() override {
    // CAF calls this more than once.
    if (!requests_.empty()) expired_ = Awaiting::not_awaited(requester_, std::exchange(requests_, {}));
    return timeout_.vals().unshared();
  }
  const caf::type_erased_tuple& content() const override { return *timeout_.vals(); }
  caf::message move_content_to_message() override { return timeout_; }
  caf::message copy_content_to_message() const override { return timeout_; }

 private:
  const caf::scheduled_actor& requester_;  // it has this in its mailbox
  Ids requests_;
  Ids expired_;
  const Answer answer_;
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
  for (auto& [id, known] : actors.all()) {
    if (known.is_asked || known.requests.first() == nullptr) continue;
    const auto* const requester = dynamic_cast<const caf::scheduled_actor*>(known.actor->get());
    if (requester == nullptr) continue;
    Ids requests;
    for (const OpenRequest* of = known.requests.first(); of != nullptr; of = of->of_requester.next)
      requests.push_back(of->id);
    auto answer = [this, &actors, lane_access, id = id](Ids expired) {
      lane_access->run([this, &actors, id, expired = std::move(expired)] { forget(actors, id, expired); });
    };
    known.is_asked = true;  // until then no other question: an actor in a long handler would collect them
    known.actor->enqueue(
        caf::mailbox_element_ptr{new ExpiryQuestion(*requester, std::move(requests), std::move(answer))}, nullptr);
  }
}

void OpenRequests::forget(KnownActors& actors, caf::actor_id requester, const std::vector<caf::message_id>& expired) {
  if (KnownActor* const asked = actors.find_known(requester)) asked->is_asked = false;
  for (const caf::message_id request : expired) close(requester, request);
  look_from_ = 2 * open_.size();
}

}  // namespace troupe::remote
