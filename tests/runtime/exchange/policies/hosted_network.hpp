#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "runtime/exchange/policies/hosted_worker.hpp"
#include "runtime/exchange/policies/update_log.hpp"

// Workers and shards of a hosted policy on a simulated network: every message takes its own time, messages of one pair
// stay in order, some are delivered twice, the copy at any later time. Parameters are real f32.
namespace troupe::test {

/// One shard: the policy under test, and its effect on this shard's part of the parameters.
struct SimulatedShard {
  std::unique_ptr<HostedPolicy> policy;
  std::vector<float> parameters;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<float>> arrived;  // by worker and sequence
  UpdateLog log;
};

struct SimulationOptions {
  std::uint64_t seed = 0;
  std::uint32_t workers = 3;
  std::uint32_t shards = 2;
  std::uint64_t clocks = 12;          // contributions of each worker
  std::uint32_t leaver = 0xffffffff;  // leaves after half of them
  std::uint64_t meet_every = 0;       // clocks; 0: never
  bool elastic = false;               // answers are the center; workers pull themselves toward it
  float alpha = 0;
  std::function<std::unique_ptr<HostedPolicy>()> policy;
  std::vector<UpdateLog> replay{};  // by shard, of an earlier run; empty: as messages come
};

inline constexpr std::size_t kPartElements = 3;
inline constexpr float kRate = 0.05F;

using Parts = std::vector<std::vector<float>>;  // by shard

/// What a worker contributes at a clock: a pull toward a target that differs by worker and clock, and a little of what
/// the other shards hold, so that a part that was read at another version shows everywhere.
inline Parts simulated_gradients(std::uint32_t worker, std::uint64_t clock, const Parts& parameters) {
  float others = 0;
  for (const auto& part : parameters) others += part[0];
  Parts gradients = parameters;
  for (std::size_t s = 0; s < parameters.size(); ++s) {
    for (std::size_t i = 0; i < kPartElements; ++i) {
      const float target =
          static_cast<float>((worker * 7 + clock * 3 + (s * kPartElements + i) * 5) % 11) * 0.37F - 1.5F;
      gradients[s][i] = (parameters[s][i] - target) * 1.3F + 0.01F * others;
    }
  }
  return gradients;
}

/// The arithmetic of one update on one shard's part: contributions in the order given, as one sum.
inline void simulated_update(std::vector<float>& parameters,
                             const std::vector<const std::vector<float>*>& contributions, double rate_scale,
                             const SimulationOptions& options) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    float sum = (*contributions[0])[i];
    for (std::size_t c = 1; c < contributions.size(); ++c) sum += (*contributions[c])[i];
    if (options.elastic) {
      parameters[i] += options.alpha * (sum - parameters[i]);
    } else {
      parameters[i] -= static_cast<float>(kRate * rate_scale) * (sum / static_cast<float>(contributions.size()));
    }
  }
}

/// A worker takes over what it has read for this clock.
inline void simulated_pull(Parts& mine, const Parts& read, std::uint64_t clock, const SimulationOptions& options) {
  for (std::size_t s = 0; s < mine.size(); ++s) {
    for (std::size_t i = 0; i < kPartElements; ++i) {
      if (!options.elastic)
        mine[s][i] = read[s][i];
      else if (clock > 0)
        mine[s][i] -= options.alpha * (mine[s][i] - read[s][i]);
    }
  }
}

/// What it then pushes: gradients, or with elastic averaging the parameters after a local step.
inline Parts simulated_contribution(Parts& mine, std::uint32_t worker, std::uint64_t clock,
                                    const SimulationOptions& options) {
  Parts gradients = simulated_gradients(worker, clock, mine);
  if (!options.elastic) return gradients;
  for (std::size_t s = 0; s < mine.size(); ++s)
    for (std::size_t i = 0; i < kPartElements; ++i) mine[s][i] -= kRate * gradients[s][i];
  return mine;
}

inline std::vector<float> simulated_start(std::uint32_t shard) {
  std::vector<float> parameters(kPartElements);
  for (std::size_t i = 0; i < kPartElements; ++i)
    parameters[i] = static_cast<float>((shard * kPartElements + i) % 5) - 2;
  return parameters;
}

class HostedSimulation {
 public:
  explicit HostedSimulation(SimulationOptions options) : options_(std::move(options)), random_(options_.seed) {
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      auto policy = with_barriers(options_.policy(), host_of(s));
      if (!options_.replay.empty())
        policy = with_replay(std::move(policy), std::make_shared<UpdateReplay>(options_.replay[s]));
      shards.push_back({std::move(policy), simulated_start(s), {}, {}});
      for (std::uint32_t w = 0; w < options_.workers; ++w) shards[s].policy->joined(Rank{w});
    }
    for (std::uint32_t w = 0; w < options_.workers; ++w) {
      workers_.push_back({HostedWorker{Rank{w}, options_.shards}, {}, {}, {}});
      for (std::uint32_t s = 0; s < options_.shards; ++s) workers_[w].parts.push_back(simulated_start(s));
    }
  }

  /// The worker in whose process the shard is.
  Rank host_of(std::uint32_t shard) const { return Rank{shard % options_.workers}; }

  std::uint64_t contributions_of(std::uint32_t worker) const {
    return worker == options_.leaver ? options_.clocks / 2 : options_.clocks;
  }

  /// Runs until no message is in flight. False: a worker waits for ever.
  bool run() {
    for (std::uint32_t w = 0; w < options_.workers; ++w) {
      const HostedRead read = workers_[w].machine.begin();
      for (std::uint32_t s = 0; s < options_.shards; ++s) post_read(s, read);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.deliver();
    }
    return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.done; });
  }

  /// Called for every read that a shard answers, when it answers it.
  std::function<void(std::uint32_t shard, const AnswerRead&)> on_answer = [](std::uint32_t, const AnswerRead&) {};
  std::vector<SimulatedShard> shards;
  std::uint64_t mixed_pulls = 0;
  std::vector<std::vector<Parts>> met;    // by barrier: what each of those who came has read
  std::uint64_t moved_after_meeting = 0;  // shards that had changed when their host had read

 private:
  struct Worker {
    HostedWorker machine;
    Parts parts;   // its parameters
    Parts landed;  // what this round's answers brought
    std::vector<std::pair<std::uint64_t, std::uint64_t>>
        landed_at;  // by shard: that answer's clock, from 1, and barrier
    bool done = false;
    bool is_barrier = false;  // what it waits for is a barrier
    std::uint64_t meetings = 0;
  };
  struct Event {
    std::uint64_t at;
    std::uint64_t number;  // of equal times the first posted is first
    std::function<void()> deliver;
    bool operator<(const Event& other) const { return at == other.at ? number > other.number : at > other.at; }
  };

  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  /// A message on the way `pair`: after all before it, and perhaps a second time later, out of order.
  void post(std::uint64_t pair, std::function<void()> deliver) {
    std::uint64_t& last = last_of_pair_[pair];
    last = std::max(last, now_ + 1 + (draw(8) == 0 ? draw(200) : draw(20)));
    if (draw(6) == 0) events_.push({last + draw(120), ++posted_, deliver});
    events_.push({last, ++posted_, std::move(deliver)});
  }
  std::uint64_t way(std::uint32_t worker, std::uint32_t shard, bool back) const {
    return (std::uint64_t{worker} * options_.shards + shard) * 2 + (back ? 1 : 0);
  }
  void post_read(std::uint32_t s, const HostedRead& read) {
    post(way(read.worker.value, s, false), [=, this] { perform(s, shards[s].policy->read(read)); });
  }
  void post_push(std::uint32_t s, const HostedPush& push, std::vector<float> data) {
    post(way(push.worker.value, s, false), [=, this, data = std::move(data)] {
      const HostedActions actions = shards[s].policy->pushed(push);
      // The data of a push is kept before its update is made, which may be in the same actions.
      if (actions.refused == Refusal::none) shards[s].arrived[{push.worker.value, push.sequence}] = data;
      perform(s, actions);
    });
  }

  void perform(std::uint32_t s, const HostedActions& actions) {
    SimulatedShard& shard = shards[s];
    for (const auto& action : actions.orders) {
      if (const auto* update = std::get_if<ApplyUpdate>(&action)) {
        std::vector<const std::vector<float>*> contributions;
        for (const HostedPush& push : update->contributions) {
          contributions.push_back(&shard.arrived.at({push.worker.value, push.sequence}));
          shard.log.push_back({static_cast<std::uint32_t>(update->version), static_cast<std::uint32_t>(push.clock),
                               static_cast<std::uint32_t>(push.base_version), static_cast<std::uint16_t>(s),
                               static_cast<std::uint16_t>(push.worker.value)});
        }
        simulated_update(shard.parameters, contributions, update->rate_scale, options_);
      } else {
        const AnswerRead& answer = std::get<AnswerRead>(action);
        on_answer(s, answer);
        post(way(answer.worker.value, s, true), [=, this, data = shard.parameters] { take(s, answer, data); });
      }
    }
  }

  void take(std::uint32_t s, const AnswerRead& answer, const std::vector<float>& data) {
    Worker& w = workers_[answer.worker.value];
    w.landed.resize(options_.shards);
    w.landed_at.resize(options_.shards);
    if (w.landed_at[s] != std::pair{answer.clock + 1, answer.barrier} && answer.clock == w.machine.clock() &&
        answer.barrier == (w.is_barrier ? w.meetings + 1 : 0)) {
      w.landed[s] = data;
      w.landed_at[s] = {answer.clock + 1, answer.barrier};
    }
    if (w.machine.answered(s, answer)) step(answer.worker.value);
  }

  /// All of a round's answers are there: take them over, compute, contribute; or leave.
  void step(std::uint32_t worker) {
    Worker& w = workers_[worker];
    const std::uint64_t clock = w.machine.clock();
    if (!w.machine.pulled().one_version) ++mixed_pulls;
    const bool met_now = std::exchange(w.is_barrier, false);
    if (met_now) note_meeting(worker);
    if (!met_now || !options_.elastic) simulated_pull(w.parts, w.landed, clock, options_);
    if (options_.elastic && !met_now && is_meeting(clock)) {
      w.is_barrier = true;
      const HostedRead read = w.machine.read_at_barrier();
      for (std::uint32_t s = 0; s < options_.shards; ++s) post_read(s, read);
      return;
    }
    if (clock == contributions_of(worker)) {
      w.done = true;
      if (worker == options_.leaver)
        for (std::uint32_t s = 0; s < options_.shards; ++s)
          post(way(worker, s, false), [=, this] { perform(s, shards[s].policy->left(Rank{worker})); });
      return;
    }
    w.is_barrier = !options_.elastic && is_meeting(clock + 1);
    const HostedWorker::Round round = w.machine.contribute(w.is_barrier);
    const Parts sent = simulated_contribution(w.parts, worker, clock, options_);
    for (std::uint32_t s = 0; s < options_.shards; ++s) {
      post_push(s, round.pushes[s], sent[s]);
      if (!options_.elastic) post_read(s, round.read);  // an elastic push is answered by itself
    }
  }

  bool is_meeting(std::uint64_t clock) const noexcept {
    return options_.meet_every > 0 && clock > 0 && clock % options_.meet_every == 0;
  }
  void note_meeting(std::uint32_t worker) {
    Worker& w = workers_[worker];
    if (met.size() <= w.meetings) met.resize(w.meetings + 1);
    met[w.meetings++].push_back(w.landed);
    for (std::uint32_t s = 0; s < options_.shards; ++s)
      if (host_of(s).value == worker && shards[s].parameters != w.landed[s]) ++moved_after_meeting;
  }

  SimulationOptions options_;
  std::mt19937_64 random_;
  std::vector<Worker> workers_;
  std::priority_queue<Event> events_;
  std::map<std::uint64_t, std::uint64_t> last_of_pair_;
  std::uint64_t now_ = 0;
  std::uint64_t posted_ = 0;
};

}  // namespace troupe::test
