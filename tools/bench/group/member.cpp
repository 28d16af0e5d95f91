#include "tools/bench/group/member.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <caf/actor_cast.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/group/promise.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/measured_process.hpp"

namespace troupe::bench {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

using TalkWith = caf::atom_constant<caf::atom("talk with")>;
using Hush = caf::atom_constant<caf::atom("hush")>;
using News = caf::atom_constant<caf::atom("news")>;
using Answer = caf::atom_constant<caf::atom("answer")>;

constexpr std::size_t kBlockBytes = 1u << 20;

/// What a process's talker has received.
struct Heard {
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::int64_t> longest_gap_ns{0};                        // between two messages of one partner
  std::unordered_map<caf::strong_actor_ptr, Clock::time_point> last;  // of each partner; used by the talker
  bool hushed = false;                                                // used by the talker

  void note(const caf::strong_actor_ptr& from) {
    messages.fetch_add(1, std::memory_order_relaxed);
    const auto now = Clock::now();
    const auto [entry, fresh] = last.try_emplace(from, now);
    const std::int64_t gap = nanoseconds_of(now) - nanoseconds_of(std::exchange(entry->second, now));
    if (!fresh && gap > longest_gap_ns.load(std::memory_order_relaxed)) longest_gap_ns = gap;
  }
};

/// Sends back every message. (TalkWith{}, partners) makes it start with these; after (Hush{}) it keeps what arrives.
caf::behavior talker(caf::event_based_actor* self, const MemberCase& what, const std::shared_ptr<Heard>& heard) {
  const auto send_back = [=](auto message) {
    heard->note(self->current_sender());
    if (!heard->hushed) self->send(caf::actor_cast<caf::actor>(self->current_sender()), std::move(message));
  };
  return {[=](TalkWith, const std::vector<caf::actor>& partners) {
            for (const caf::actor& partner : partners) {
              for (std::uint64_t i = 0; i < what.numbers; ++i) self->send(partner, i);
              for (std::uint32_t i = 0; i < what.blocks; ++i)
                self->send(partner, std::vector<char>(kBlockBytes, static_cast<char>(i)));
            }
          },
          [=](Hush) { heard->hushed = true; }, [=](std::uint64_t number) { send_back(number); },
          [=](std::vector<char>& block) { send_back(std::move(block)); }};
}

/// Receives (News{}, n); answers (Answer{}, n) with n after it has received that News.
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

/// A thread that computes until it is ended.
class Computation {
 public:
  Computation() : thread_(start_thread("compute", [this] { run(); })) {}
  ~Computation() {
    over_ = true;
    thread_.join();
  }

 private:
  void run() {
    std::array<float, 4096> values{};
    for (float step = 1; !over_.load(std::memory_order_relaxed); step = step * 0.5f + 1)
      for (float& value : values) value = value * 0.99f + step;
    result_ = values.front();  // so that the compiler does not omit the computation
  }
  std::atomic<bool> over_{false};
  std::atomic<float> result_{0};
  std::thread thread_;
};

GroupOptions options_of(const MemberCase& what, const Line& line) {
  GroupOptions options;
  options.deadline = Deadline::after(seconds(what.patience_s));
  options.remote.heartbeats = FailureDetectorOptions::with_dead(milliseconds(what.dead_ms));
  options.remote.suspected = [&line](Peer peer, bool suspected) {
    line.say({{"say", suspected ? "suspected" : "recovered"}, {"peer", peer.value}});
  };
  options.remote.dropped = [&line](std::string_view dropped) { line.say({{"say", "dropped"}, {"what", dropped}}); };
  options.lost = [&line](Peer peer, const Status& why) {
    line.say({{"say", "lost"}, {"peer", peer.value}, {"at", nanoseconds_of(Clock::now())}, {"why", why.text()}});
  };
  return options;
}

class Member {
 public:
  Member(Blocking& blocking, const MemberCase& what, Line& line)
      : blocking_(blocking),
        what_(what),
        line_(line),
        process_(blocking, {what.transport, what.device, what.workers}, options_of(what, line),
                 [](caf::actor_system_config&) {}) {
    adopt("talker", what.inlined ? process_.remote().spawn_inline(talker, what, heard_)
                                 : process_.system().spawn(talker, what, heard_));
    adopt("listener", process_.system().spawn(listener));
    line_.say({{"say", "joined"}});
  }

  void obey() {
    // Waits without a deadline: the measuring process has one, and this process ends with it.
    while (const auto order = line_.hear()) {
      const std::string word = order->at("do");
      json answer = (this->*orders().at(word))(*order);
      line_.say(answer);
      if (word == "stop") return;
    }
  }

 private:
  using Order = json (Member::*)(const json& order);
  static const std::map<std::string, Order>& orders() {
    static const std::map<std::string, Order> all{{"watch", &Member::watch},         {"talk", &Member::talk},
                                                  {"hush", &Member::hush},           {"compute", &Member::compute},
                                                  {"count", &Member::count},         {"stop", &Member::stop},
                                                  {"broadcast", &Member::broadcast}, {"ballast", &Member::ballast}};
    return all;
  }

  json watch(const json& order) {
    const std::uint32_t peer = order.at("peer");
    const caf::actor other = find(peer);
    adopt("", process_.system().spawn([this, peer, other](caf::event_based_actor* self) -> caf::behavior {
      self->set_down_handler([this, peer](const caf::down_msg& down) {
        const auto now = nanoseconds_of(Clock::now());
        const Status why = from_caf(down.reason);
        line_.say({{"say", "down"}, {"peer", peer}, {"at", now}, {"code", name_of(why.code())}, {"why", why.text()}});
      });
      self->monitor(other);
      return {[](News) {}};  // it lives until it is told to end
    }));
    return {{"say", "watching"}};
  }

  json talk(const json& order) {
    std::vector<caf::actor> partners;
    for (const std::uint32_t peer : order.at("with")) partners.push_back(find(peer));
    caf::anon_send(actors_.front()->get(), TalkWith::value, std::move(partners));
    return {{"say", "talking"}};
  }

  json hush(const json&) {
    caf::anon_send(actors_.front()->get(), Hush::value);
    return {{"say", "hushed"}};
  }

  json compute(const json&) {
    if (!computation_) computation_ = std::make_unique<Computation>();
    return {{"say", "computing"}};
  }

  json ballast(const json& order) {
    ballast_.assign(order.at("mb").get<std::size_t>() << 20, 1);
    return {{"say", "heavier"}};
  }

  json count(const json&) {
    const auto gap = static_cast<double>(heard_->longest_gap_ns.load()) / 1e6;
    return {{"say", "count"}, {"messages", heard_->messages.load()}, {"longest_gap_ms", gap}};
  }

  json broadcast(const json& order) {
    const std::uint64_t number = order.at("number");
    const auto begin = Clock::now();
    const Mesh all = process_.group().lookup_all(blocking_, "listener", patience());
    const auto found = Clock::now();
    all.broadcast(caf::make_message(News::value, number));
    const auto answers = all.gather<std::uint64_t>(blocking_, caf::make_message(Answer::value, number), patience());
    const double took = milliseconds_since(found);
    const bool right = answers == std::vector<std::uint64_t>(process_.group().size(), number);
    TROUPE_CHECK(right, Code::corrupt, "not everyone answered with what was broadcast");
    return {{"say", "heard"}, {"lookup_ms", milliseconds_since(begin, nanoseconds_of(found))}, {"ms", took}};
  }

  json stop(const json& order) {
    const milliseconds within{order.at("within_ms").get<std::uint32_t>()};
    const StopReport report = process_.group().stop(blocking_, Deadline::after(within));
    return {{"say", "stopped"}, {"clean", report.clean()}, {"text", report.text()}};
  }

  caf::actor find(std::uint32_t peer) { return process_.group().lookup(blocking_, Peer{peer}, "talker", patience()); }
  Deadline patience() const { return Deadline::after(seconds(what_.patience_s)); }
  void adopt(const std::string& name, caf::actor actor) {
    if (!name.empty()) process_.group().publish(name, actor);
    actors_.push_back(std::make_unique<Ending>(std::move(actor)));
  }

  Blocking& blocking_;
  const MemberCase what_;
  Line& line_;
  const std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  std::unique_ptr<Computation> computation_;
  std::vector<char> ballast_;
  MeasuredProcess process_;
  std::vector<std::unique_ptr<Ending>> actors_;  // the talker first
};

}  // namespace

void run_member(Blocking& blocking, const MemberCase& what, Line& line) { Member(blocking, what, line).obey(); }

}  // namespace troupe::bench
