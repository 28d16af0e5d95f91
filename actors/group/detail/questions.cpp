#include "actors/group/detail/questions.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <future>
#include <memory>
#include <utility>

#include "actors/caf_error.hpp"

namespace troupe::group {
namespace {

/// Additional time in which CAF's threads may handle answers that have passed their deadline.
constexpr std::chrono::seconds kBusyThreads{5};

class Questioner final : public caf::event_based_actor {
 public:
  using Done = std::function<void(std::vector<Reply>)>;
  Questioner(caf::actor_config& config, Questions questions, Done done)
      : event_based_actor(config),
        questions_(std::move(questions)),
        done_(std::move(done)),
        replies_(questions_.whom.size()),
        open_(replies_.size()) {}
  const char* name() const override { return "questioner"; }
  void on_exit() override { finish(); }

 private:
  caf::behavior make_behavior() override {
    const auto within = std::max(std::chrono::ceil<std::chrono::milliseconds>(questions_.within),
                                 std::chrono::milliseconds(1));  // for CAF, 0 means no time limit
    for (std::size_t i = 0; i < replies_.size(); ++i) {
      const auto request = this->request(questions_.whom[i], within, questions_.question);
      // This handler only takes errors. CAF passes any other answer to it as the context of an error.
      add_multiplexed_response_handler(
          request.id(), {[this, i](caf::error& error) {
            const bool answered_so = current_mailbox_element()->content().match_elements<caf::error>();
            replied(i, answered_so ? Reply{{}, from_caf(error)} : Reply{std::move(error.context()), {}});
          }});
    }
    if (replies_.empty()) quit();
    return {};
  }

  void replied(std::size_t i, Reply reply) {
    replies_[i] = std::move(reply);
    if (--open_ == 0 || (questions_.first_answer_ends && replies_[i].status.ok())) quit();
  }

  void finish() {
    if (auto done = std::exchange(done_, nullptr)) done(std::move(replies_));
  }

  const Questions questions_;
  Done done_;
  std::vector<Reply> replies_;
  std::size_t open_;
};

}  // namespace

void ask_all(caf::actor_system& system, Questions questions, std::function<void(std::vector<Reply>)> done) {
  system.spawn<Questioner, caf::hidden>(std::move(questions), std::move(done));
}

std::vector<Reply> ask_all(Blocking& blocking, caf::actor_system& system, Questions questions) {
  const auto replies = std::make_shared<std::promise<std::vector<Reply>>>();
  auto ready = replies->get_future();
  const auto last = Clock::now() + questions.within + kBusyThreads;
  ask_all(system, std::move(questions), [replies](std::vector<Reply> all) { replies->set_value(std::move(all)); });
  TROUPE_CHECK(ready.wait_until(last) == std::future_status::ready, Code::timeout,
               "the threads of the actor system are all busy: no answer could be taken in (thread ", blocking.thread(),
               "); a handler blocks");
  return ready.get();
}

}  // namespace troupe::group
