#include "actors/balancer_actor.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include <caf/typed_event_based_actor.hpp>

#include "tests/support/actor_world.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// The balancers of a job, each with a loader that records what it gets, and devices that take the times that the test
/// sets.
struct World {
  World(std::vector<std::chrono::nanoseconds> compute_a_sample, bool adapts) : a_sample(std::move(compute_a_sample)) {
    const auto ranks = static_cast<std::uint32_t>(a_sample.size());
    schedule = {.train_samples = 100000, .rows = 100, .ranks = ranks, .steps = 100000};
    const LoadBalancerOptions options{.adapts = adapts, .range = {0.05, 4}, .ahead = 6};
    const SampleLedger known =
        adapts ? SampleLedger{schedule, options.range, {horizon_steps(options.ahead)}} : SampleLedger{schedule};
    spent.resize(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ledgers.push_back(known);
      BalancerParts parts{schedule, {rank}, options, known, [this, rank] { return spent[rank]; }, {}};
      if (rank == 0) parts.windows = [this](const ShareWindow& window) { windows.push_back(window); };
      balancers.push_back(spawn_balancer(actors.system(), std::move(parts)));
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      auto loader = actors.listener<LedgerReceiver, LedgerUpdate>([this, rank](const LedgerUpdate& ledger_update) {
        ledgers[rank].append({{ledger_update.first}, ledger_update.rows}, {ledger_update.until});
        ++heard;
      });
      loaders.push_back(loader);
      actors.send(balancers[rank], BalancerReceivers{rank == 0 ? BalancerPeer{} : BalancerPeer{balancers[0]}, loader});
    }
    actors.run();
    for (const auto& balancer : balancers) actors.send(balancer, Begin{{1}});
    actors.run();
  }
  ~World() {
    for (const auto& balancer : balancers) caf::anon_send_exit(balancer, caf::exit_reason::kill);
    for (const auto& loader : loaders) caf::anon_send_exit(loader, caf::exit_reason::kill);
    actors.run();
  }
  void run(std::uint64_t steps) {
    for (const std::uint64_t end = step + steps; step < end; ++step) {
      for (std::uint32_t rank = 0; rank < balancers.size(); ++rank) {
        spent[rank].compute += a_sample[rank] * ledgers[rank].rows({step})[rank];
        actors.send(balancers[rank], Committed{{1}, {step}, {}});
      }
      actors.run();
    }
  }

  std::vector<std::chrono::nanoseconds> a_sample;
  Schedule schedule;
  std::vector<StreamTimes> spent;
  std::vector<SampleLedger> ledgers;
  std::vector<ShareWindow> windows;
  std::size_t heard = 0;
  std::uint64_t step = 0;
  test::ActorWorld actors;
  std::vector<BalancerActor> balancers;
  std::vector<LedgerReceiver> loaders;
};

TEST(BalancerActor, TellsEveryLoaderOfNewSharesBeforeItNeedsThem) {
  World w{{1ms, 1ms, 6ms}, true};
  w.run(200);  // a rank that ran out of ledger would have thrown
  ASSERT_FALSE(w.windows.empty());
  for (const SampleLedger& ledger : w.ledgers) {
    EXPECT_EQ(ledger.rows({199}), w.ledgers[0].rows({199}));
    EXPECT_EQ(ledger.horizon(), w.ledgers[0].horizon());
  }
  EXPECT_LT(w.ledgers[2].rows({199})[2], 32u);
}

TEST(BalancerActor, SendsNothingToLoadersWhereTheSplitIsEqual) {
  World w{{1ms, 1ms, 6ms}, false};
  w.run(200);
  EXPECT_EQ(w.heard, 0u);
  EXPECT_FALSE(w.windows.empty());
}

}  // namespace
}  // namespace troupe
