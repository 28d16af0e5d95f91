// Asynchronous runs through actors and streams whose order a seed decides, replayed from the shards' logs bit by bit.

#include <gtest/gtest.h>

#include <set>

#include "tests/actors/exchange/hosted_world.hpp"
#include "tests/contracts/exchange_contract.hpp"

namespace troupe::test {
namespace {

using contracts::GroupSpec;
using contracts::SerialRun;
using contracts::WorkingGroup;
using FakeWorld = HostedWorld<ActorWorld>;

constexpr std::uint64_t kSteps = 6;

struct Cells {  // f32 of a range of elements, with the rule's state
  std::vector<float> p, s0, s1;
};

Cells start_of(const GroupSpec& spec, const Stripe& stripe) {
  const std::vector<float> all = SerialRun{spec}.parameters;
  Cells cells;
  cells.p.assign(all.begin() + static_cast<std::ptrdiff_t>(stripe.first),
                 all.begin() + static_cast<std::ptrdiff_t>(stripe.first + stripe.count));
  cells.s0.resize(stripe.count);
  cells.s1.resize(stripe.count);
  return cells;
}

void update(Cells& cells, const RuleStep& rule, const std::vector<float>& sums, std::uint64_t samples) {
  if (samples == 0) return;
  const auto scale = static_cast<float>(1.0 / static_cast<double>(samples));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (rule.kind == RuleKind::sgd)
      update_element<RuleKind::sgd>(rule, scale, sums[i], cells.p[i], cells.s0[i], cells.s1[i]);
    else
      update_element<RuleKind::adam>(rule, scale, sums[i], cells.p[i], cells.s0[i], cells.s1[i]);
  }
}

std::vector<float> gradients_of(const GroupSpec& spec, std::uint32_t rank, std::uint64_t step, const Stripe& stripe) {
  const std::vector<float> all = SerialRun::gradients(spec, rank, step);
  return {all.begin() + static_cast<std::ptrdiff_t>(stripe.first),
          all.begin() + static_cast<std::ptrdiff_t>(stripe.first + stripe.count)};
}

/// Applies a shard's log to gradients: every record is an update.
Cells replay_gradients(const GroupSpec& spec, const PolicySettings& settings, const UpdateLog& log,
                       const Stripe& stripe) {
  Cells cells = start_of(spec, stripe);
  for (const AppliedRecord& r : log) {
    Rule rule = spec.rule;
    if (settings.kind == PolicyKind::async)
      rule.rate *=
          std::min(1.0, settings.ramp_from + settings.ramp_by * static_cast<double>(r.clock / settings.ramp_every));
    if (settings.divide_by_staleness) rule.rate /= static_cast<double>(r.sequence - r.base);
    update(cells, rule_step(rule, r.sequence), gradients_of(spec, r.worker, r.clock, stripe),
           SerialRun::sums(spec, r.worker, r.clock).samples);
  }
  return cells;
}

/// Applies it to ranks under elastic averaging: each takes its steps, then both sides are pulled together.
Cells replay_elastic(const GroupSpec& spec, const PolicySettings& settings, const UpdateLog& log,
                     const Stripe& stripe) {
  Cells center = start_of(spec, stripe);
  std::vector<Cells> ranks(spec.ranks, center);
  const RuleStep pull = elastic_pull(0.9 / spec.ranks);
  for (const AppliedRecord& r : log) {
    Cells& own = ranks[r.worker];
    for (std::uint64_t step = r.clock * settings.every_steps; step < (r.clock + 1) * settings.every_steps; ++step)
      update(own, rule_step(spec.rule, step + 1), gradients_of(spec, r.worker, step, stripe),
             SerialRun::sums(spec, r.worker, step).samples);
    const Cells before = center;
    update(center, pull, own.p, 1);
    update(own, pull, before.p, 1);
  }
  return center;
}

void run(const PolicySettings& settings, std::uint64_t seed, std::uint64_t& stalest) {
  GroupSpec spec = contracts::random_group(3, seed);
  spec.half = false;
  HostedOptions options{.settings = settings};
  FakeWorld* world = nullptr;
  contracts::ExchangeCase how{
      {"",
       [&](const GroupSpec& given) {
         auto made = std::make_unique<FakeWorld>(
             given, [seed](AddressSpace& space, std::uint32_t rank) { return fake_device_of(seed, space, rank); });
         world = made.get();
         return made;
       }},
      [&, ranks = std::uint32_t{0}](const GroupSpec&, const contracts::RankView&, std::uint64_t) mutable {
        if (ranks == 0) world->host(options);
        return world->exchange(ranks++, options);
      }};
  contracts::ExchangingGroup group{spec, how};
  world->start();
  for (std::uint64_t step = 0; step < kSteps; ++step)
    for (std::uint32_t r = 0; r < spec.ranks; ++r) group.enqueue_step(r, step);
  ASSERT_TRUE(group.group.finish());
  const std::uint64_t rounds = settings.kind == PolicyKind::easgd ? kSteps / settings.every_steps : kSteps;
  for (std::size_t s = 0; s < world->shards().size(); ++s) {
    const UpdateLog& log = world->log(s);
    const StripeMemory& mine = world->rank(world->owner(s)).mine;
    ASSERT_EQ(log.size(), spec.ranks * rounds);
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    for (const AppliedRecord& r : log) {
      ASSERT_TRUE(seen.emplace(r.worker, r.clock).second);
      stalest = std::max<std::uint64_t>(stalest, r.sequence - 1 - r.base);
    }
    const Cells replayed = settings.kind == PolicyKind::easgd ? replay_elastic(spec, settings, log, mine.stripe)
                                                              : replay_gradients(spec, settings, log, mine.stripe);
    ASSERT_EQ(WorkingGroup::get<float>(world->rank(0), mine.parameters), replayed.p) << "shard " << s;
  }
}

void run_seeds(const PolicySettings& settings) {
  std::uint64_t stalest = 0;
  for (std::uint64_t seed = 300; seed < 325 && !::testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(text("seed ", seed));
    run(settings, seed, stalest);
  }
  EXPECT_GT(stalest, 0u) << "nothing was ever stale";
}

TEST(HostedReplay, OfAsynchronousUpdatesWithARampGivesTheShardsBits) {
  run_seeds({.kind = PolicyKind::async, .ramp_from = 0.25, .ramp_by = 0.25, .ramp_every = 2});
}

TEST(HostedReplay, OfUpdatesDividedByTheirStalenessGivesTheShardsBits) {
  run_seeds({.kind = PolicyKind::async, .divide_by_staleness = true});
}

TEST(HostedReplay, OfBoundedStalenessGivesTheShardsBits) { run_seeds({.kind = PolicyKind::ssp, .staleness = 2}); }

TEST(HostedReplay, OfElasticAveragingGivesTheShardsBits) { run_seeds({.kind = PolicyKind::easgd, .every_steps = 2}); }

}  // namespace
}  // namespace troupe::test
