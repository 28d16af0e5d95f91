#include "tools/bench/group/talk.hpp"

#include <algorithm>
#include <caf/actor_cast.hpp>
#include <map>
#include <unordered_map>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/group/promise.hpp"

namespace troupe::bench {
namespace {

/// When each partner was heard last.
class Gaps {
 public:
  explicit Gaps(std::shared_ptr<Heard> heard) : heard_(std::move(heard)) {}
  void note(const caf::strong_actor_ptr& from) {
    heard_->messages.fetch_add(1, std::memory_order_relaxed);
    const auto now = Clock::now();
    const auto [entry, fresh] = last_.try_emplace(from, now);
    if (fresh) return;
    const std::int64_t gap = std::chrono::duration_cast<std::chrono::nanoseconds>(now - entry->second).count();
    entry->second = now;
    if (gap > heard_->longest_gap_ns.load(std::memory_order_relaxed)) heard_->longest_gap_ns = gap;
  }

 private:
  const std::shared_ptr<Heard> heard_;
  std::unordered_map<caf::strong_actor_ptr, Clock::time_point> last_;
};

}  // namespace

caf::behavior talker(caf::event_based_actor* self, Load load, const std::shared_ptr<Heard>& heard) {
  const auto gaps = std::make_shared<Gaps>(heard);
  const auto hushed = std::make_shared<bool>(false);
  const auto send_back = [=](auto what) {
    gaps->note(self->current_sender());
    if (!*hushed) self->send(caf::actor_cast<caf::actor>(self->current_sender()), std::move(what));
  };
  return {[=](TalkWith, const std::vector<caf::actor>& partners) {
            for (const caf::actor& partner : partners) {
              for (std::uint64_t i = 0; i < load.numbers; ++i) self->send(partner, i);
              for (std::uint32_t i = 0; i < load.blocks; ++i)
                self->send(partner, std::vector<char>(Load::kBlockBytes, static_cast<char>(i)));
            }
          },
          [=](Hush) { *hushed = true; }, [=](std::uint64_t number) { send_back(number); },
          [=](std::vector<char>& block) { send_back(std::move(block)); }};
}

caf::behavior listener(caf::event_based_actor* self) {
  struct State {
    std::uint64_t newest = 0;
    std::multimap<std::uint64_t, Promise<std::uint64_t>> waiting;
  };
  const auto state = std::make_shared<State>();
  return {[=](News, std::uint64_t number) {
            state->newest = std::max(state->newest, number);
            const auto heard = state->waiting.upper_bound(state->newest);
            for (auto each = state->waiting.begin(); each != heard; ++each) each->second.deliver(each->first);
            state->waiting.erase(state->waiting.begin(), heard);
          },
          [=](Answer, std::uint64_t number) {
            Promise<std::uint64_t> promise(self);
            if (number <= state->newest) {
              promise.deliver(number);
            } else {
              state->waiting.emplace(number, promise);
            }
            return promise.later();
          }};
}

caf::behavior watcher(caf::event_based_actor* self, const caf::actor& other, const Ended& ended) {
  self->set_down_handler([ended](const caf::down_msg& down) {
    const auto now = Clock::now();
    ended(now, from_caf(down.reason));
  });
  self->monitor(other);
  return {[](News) {}};  // it lives until it is told to end
}

}  // namespace troupe::bench
