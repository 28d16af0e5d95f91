#include "runtime/exchange/exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::testing {
namespace {

using ::testing::HasSubstr;

/// A stream that does no work; it counts its marks.
class QuietStream : public Stream {
 public:
  void wait(Point) override {}
  Point mark() override { return {TimelineId{ArenaId{0}, 77}, ++marks_}; }
  void signal(Point) override {}
  void copy(Memory, Memory) override {}
  void sum_up(Memory, std::span<const Memory>) override {}
  void reduce(Memory, std::span<const Memory>, const NormCheck&) override {}
  void weighted_delta(Memory, Memory, Memory, Memory) override {}
  void clear(Memory) override {}
  void update(const RuleStep&, std::uint64_t, const StripeMemory&, std::span<const Memory>, Memory) override {}

 private:
  std::uint64_t marks_ = 0;
};

/// A stream that executes copies at once.
class CopyingStream final : public QuietStream {
 public:
  explicit CopyingStream(AddressSpace& space) : space_(space) {}
  void copy(Memory to, Memory from) override { std::memcpy(space_.address(to), space_.address(from), to.size_bytes); }

 private:
  AddressSpace& space_;
};

class NotedExchange final : public Exchange {
 public:
  void begin(Stream&, const StepFacts& told, Memory its_sums, Memory its_total) override {
    facts = told;
    sums = its_sums;
    totals.push_back(its_total);
  }
  bool has_round() const noexcept override { return round; }
  bool totals_are_common() const noexcept override { return true; }
  void contribute(Stream&, const Bucket& bucket) override {
    TROUPE_CHECK(refuse_bucket != bucket.index, Code::device_fault, "no room for bucket ", bucket.index);
    got.push_back(bucket);
  }
  void commit(Stream&) override { ++committed; }
  bool is_consistent() const noexcept override { return consistent; }
  void show_common(Stream&) override {}
  void show_own(Stream&) override {}
  const PolicySettings& policy() const noexcept override { return in_force; }
  void switch_at(Step, const PolicySettings& given) override { in_force = given; }
  std::uint64_t updates() const noexcept override { return 0; }
  std::vector<StripeMemory> retire(const Status&) noexcept override { return {}; }

  PolicySettings in_force;
  StepFacts facts;
  Memory sums;
  std::vector<Memory> totals;
  std::vector<Bucket> got;
  int committed = 0;
  bool round = true;
  bool consistent = true;
  std::uint32_t refuse_bucket = ~0u;
};

class StepExchangeTest : public ::testing::Test {
 protected:
  StepExchangeTest() { space_.map(arena_); }
  StepExchange make(std::size_t buckets) {
    return {ViewId{4}, space_, sums_, totals_, {&groups_[0], &groups_[1]}, buckets};
  }
  static Bucket bucket(std::uint32_t group, std::uint32_t index) { return {GroupId{group}, index, index * 10, 10}; }
  void take_step(StepExchange& exchange, std::uint64_t step) {
    exchange.begin(stream_, {.step = Step{step}}, {});
    exchange.ready(bucket(0, 0), stream_);
    exchange.commit(stream_);
  }

  static constexpr std::uint64_t kRingBytes = StepExchange::ring_bytes(2);
  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 1 << 16);
  Memory sums_ = arena_->allocate(kRingBytes);
  Memory totals_ = arena_->allocate(StepExchange::total_bytes(2));
  std::array<NotedExchange, 2> groups_;
  CopyingStream stream_{space_};
};

TEST_F(StepExchangeTest, BeginsWithEmptySumsThatCarryTheVoteToStop) {
  StepExchange exchange = make(1);
  for (std::uint64_t step = 0; step < 2 * StepExchange::kStepsKept; ++step) {
    const Memory sums = exchange.begin(stream_, {.step = Step{step}}, {.stop = step == 3});
    auto& slot = *space_.address_of<StepSums>(sums);
    EXPECT_EQ(slot.loss, 0);
    EXPECT_EQ(slot.samples, 0u);
    EXPECT_EQ(slot.stop_requests, step == 3 ? 1u : 0u);
    slot = {.loss = 1, .correct = 2, .samples = 3, .stop_requests = 4};
    exchange.ready(bucket(0, 0), stream_);
    exchange.commit(stream_);
  }
}

TEST_F(StepExchangeTest, RoutesEachBucketToItsGroupAndGivesEachGroupSumsOfItsOwn) {
  StepExchange exchange = make(3);
  const Memory sums = exchange.begin(stream_, {.step = Step{5}, .samples = 12}, {});
  exchange.ready(bucket(1, 0), stream_);
  exchange.ready(bucket(0, 0), stream_);
  exchange.ready(bucket(1, 1), stream_);
  const Point committed = exchange.commit(stream_);
  EXPECT_EQ(committed.value, 1u);
  EXPECT_EQ(groups_[0].got, (std::vector{bucket(0, 0)}));
  EXPECT_EQ(groups_[1].got, (std::vector{bucket(1, 0), bucket(1, 1)}));
  EXPECT_EQ(groups_[0].facts.step, Step{5});
  EXPECT_EQ(groups_[1].facts.samples, 12u);
  EXPECT_EQ(groups_[0].committed, 1);
  EXPECT_NE(groups_[0].sums, sums);
  EXPECT_NE(groups_[0].sums, groups_[1].sums);
  EXPECT_NE(groups_[0].totals[0], groups_[1].totals[0]);
}

TEST_F(StepExchangeTest, CarriesNoVoteInAStepWhoseSumsReachNobody) {
  StepExchange exchange = make(1);
  groups_[0].round = false;
  const Memory sums = exchange.begin(stream_, {.step = Step{0}}, {.stop = true, .saving = true});
  EXPECT_EQ(space_.address_of<StepSums>(sums)->stop_requests, 0u);
  EXPECT_EQ(space_.address_of<StepSums>(sums)->still_saving, 0u);
}

TEST_F(StepExchangeTest, IsConsistentWhenAllGroupsAre) {
  StepExchange exchange = make(1);
  EXPECT_TRUE(exchange.is_consistent());
  groups_[1].consistent = false;
  EXPECT_FALSE(exchange.is_consistent());
}

TEST_F(StepExchangeTest, CommitRefusesAStepInWhichABucketNeverBecameReady) {
  StepExchange exchange = make(2);
  exchange.begin(stream_, {.step = Step{0}}, {});
  exchange.ready(bucket(0, 0), stream_);
  EXPECT_THROW(exchange.commit(stream_), Error);
}

TEST_F(StepExchangeTest, CommitTellsWhyABucketCouldNotBeContributedAndLaterOnesAreLeftOut) {
  StepExchange exchange = make(3);
  groups_[0].refuse_bucket = 1;
  exchange.begin(stream_, {.step = Step{9}}, {});
  for (std::uint32_t b = 0; b < 3; ++b) exchange.ready(bucket(0, b), stream_);
  try {
    exchange.commit(stream_);
    ADD_FAILURE() << "the step was committed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device_fault);
    EXPECT_NE(std::string{error.what()}.find("step 9"), std::string::npos) << error.what();
    EXPECT_NE(std::string{error.what()}.find("no room for bucket 1"), std::string::npos) << error.what();
  }
  EXPECT_EQ(groups_[0].got.size(), 1u);
}

TEST_F(StepExchangeTest, RefusesABucketOfAGroupThatDoesNotExist) {
  StepExchange exchange = make(1);
  exchange.begin(stream_, {.step = Step{0}}, {});
  exchange.ready(bucket(2, 0), stream_);
  EXPECT_THROW(exchange.commit(stream_), Error);
}

TEST_F(StepExchangeTest, StartsAnywhereAndThenCountsByOne) {
  StepExchange exchange = make(1);
  take_step(exchange, 41);
  EXPECT_THROW(exchange.begin(stream_, {.step = Step{41}}, {}), Error);
  EXPECT_THROW(exchange.begin(stream_, {.step = Step{43}}, {}), Error);
  take_step(exchange, 42);
  exchange.begin(stream_, {.step = Step{43}}, {});
  EXPECT_THROW(exchange.begin(stream_, {.step = Step{44}}, {}), Error) << "43 is not committed";
}

TEST_F(StepExchangeTest, KeepsTheTotalsOfTheLastSteps) {
  StepExchange exchange = make(1);
  constexpr std::uint64_t kLast = 20;
  for (std::uint64_t step = 0; step <= kLast; ++step) {
    take_step(exchange, step);
    space_.address_of<StepSums>(groups_[0].totals.back())->samples = 1000 + step;
  }
  for (std::uint64_t step = kLast - StepExchange::kStepsKept + 1; step <= kLast; ++step) {
    EXPECT_EQ(exchange.total(Step{step}).samples, 1000 + step);
  }
  EXPECT_THROW(exchange.total(Step{kLast - StepExchange::kStepsKept}), Error);
  EXPECT_THROW(exchange.total(Step{kLast + 1}), Error);
}

TEST_F(StepExchangeTest, RefusesRingsThatAreTooSmall) {
  EXPECT_THROW((StepExchange{ViewId{0}, space_, slice(sums_, 0, 64), totals_, {&groups_[0]}}), Error);
  EXPECT_THROW((StepExchange{ViewId{0}, space_, sums_, slice(totals_, 0, 64), {&groups_[0]}}), Error);
  EXPECT_THROW((StepExchange{ViewId{0}, space_, sums_, totals_, {}}), Error);
}

StripeMemory make_stripe(std::uint64_t first, std::uint64_t count, RuleKind rule, std::size_t buckets) {
  constexpr ArenaId kArena{300};
  StripeMemory whole;
  whole.stripe = {GroupId{}, Rank{1}, first, count};
  whole.parameters = {kArena, 4096, count * 4};
  whole.half = {kArena, 1 << 24, count * 2};
  for (std::size_t s = 0; s < state_slots(rule); ++s) whole.state[s] = {kArena, (2 + s) << 24, count * 4};
  whole.journal = {kArena, 8 << 24, buckets * journal_bytes(state_slots(rule))};
  return whole;
}

TEST(CommonPart, CutsAStripeIntoWhatItsBucketsCover) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::uint64_t count = 1 + random_below(seed, 0, 100);
    const StripeMemory whole = make_stripe(random_below(seed, 1, 50), count, RuleKind::adam, 8);
    std::uint64_t next = whole.stripe.first;
    std::uint64_t first = 0;
    for (std::uint32_t index = 0; index < 8; ++index) {
      const Bucket bucket{GroupId{}, index, first, index < 7 ? 1 + random_below(seed, 2 + index, 40) : 1000};
      first += bucket.count;
      const StripeMemory part = common_part(whole, bucket, RuleKind::adam);
      EXPECT_EQ(part.stripe.owner, Rank{1});
      if (part.stripe.count == 0) continue;
      EXPECT_EQ(part.stripe.first, next);
      EXPECT_GE(part.stripe.first, bucket.first);
      EXPECT_LE(part.stripe.first + part.stripe.count, bucket.first + bucket.count);
      const std::uint64_t offset = part.stripe.first - whole.stripe.first;
      EXPECT_EQ(part.parameters, slice(whole.parameters, offset * 4, part.stripe.count * 4));
      EXPECT_EQ(part.half, slice(whole.half, offset * 2, part.stripe.count * 2));
      EXPECT_EQ(part.state[1], slice(whole.state[1], offset * 4, part.stripe.count * 4));
      next += part.stripe.count;
    }
    EXPECT_EQ(next, whole.stripe.first + count) << "seed " << seed;
  }
}

TEST(CommonPart, GivesEveryBucketAJournalOfItsOwn) {
  const StripeMemory whole = make_stripe(0, 100, RuleKind::momentum, 2);
  const Memory one = common_part(whole, Bucket{GroupId{}, 0, 50, 50}, RuleKind::momentum).journal;
  const Memory two = common_part(whole, Bucket{GroupId{}, 1, 0, 50}, RuleKind::momentum).journal;
  EXPECT_EQ(one.size_bytes, journal_bytes(1));
  EXPECT_EQ(two.offset, one.offset + one.size_bytes);
  EXPECT_EQ(two.offset % 64, 0u);
  EXPECT_THROW(common_part(whole, Bucket{GroupId{}, 2, 0, 50}, RuleKind::momentum), Error);
}

TEST(CommonPart, IsNothingInAnotherGroup) {
  const StripeMemory whole = make_stripe(0, 100, RuleKind::sgd, 1);
  EXPECT_EQ(common_part(whole, Bucket{GroupId{1}, 0, 0, 100}, RuleKind::sgd).stripe.count, 0u);
}

class NotedCommunicator final : public Communicator {
 public:
  CommunicatorTraits traits() const noexcept override { return {}; }
  Rank rank() const noexcept override { return {}; }
  std::uint32_t ranks() const noexcept override { return 1; }
  void reduce_scatter(Stream&, std::span<const OwnedPart>) override {}
  void all_gather(Stream&, std::span<const OwnedPart>) override {}
  void barrier(Stream&) override {}
  Point reduce_update_gather(Stream&, const BucketWork& w, const RuleStep& r) override {
    work = w;
    rule = r;
    mine = w.mine.front();
    calls += text('r', w.relieved.size());
    return {};
  }
  Point gather_gradients(Stream&, const BucketWork& w) override {
    calls += text('g', w.bucket.index);
    return {};
  }
  Point agree(Stream&, const BucketWork&) override {
    calls += "a";
    return {};
  }
  Point update_gather(Stream&, const BucketWork& w, const RuleStep&) override {
    calls += text('u', w.bucket.index);
    return {};
  }
  void barrier_with_relieved(Stream&) override { calls += "s"; }
  void abort(const Status&) noexcept override {}

  std::string calls;  // of a round in parts
  BucketWork work;
  RuleStep rule;
  StripeMemory mine;
};

class RoundExchangeTest : public ::testing::Test {
 protected:
  const Rule rule_{.kind = RuleKind::adam};
  const Bucket bucket_{GroupId{}, 1, 0, 48};
  const Memory gradients_{ArenaId{300}, 1 << 20, 400};
  const Memory sums_{ArenaId{300}, 64, 64};
  const Memory total_{ArenaId{300}, 128, 64};
  NotedCommunicator communicator_;
  QuietStream stream_;
  std::unique_ptr<Exchange> exchange_ =
      make_policy_exchange({.communicator = &communicator_,
                            .rule = rule_,
                            .policy = std::make_unique<PolicySequence>(std::vector<PolicyPhase>{{}}, 2),
                            .buckets = {bucket_},
                            .memory = {.gradients = gradients_, .mine = {make_stripe(32, 64, RuleKind::adam, 2)}},
                            .updates = 6});
};

TEST_F(RoundExchangeTest, GathersAllBucketsAndAgreesBeforeItUpdatesAny) {
  const Bucket last{GroupId{}, 0, 48, 32};
  const auto exchange =
      make_policy_exchange({.communicator = &communicator_,
                            .rule = {.kind = RuleKind::sgd, .clip_norm = 1},
                            .policy = std::make_unique<PolicySequence>(std::vector<PolicyPhase>{{}}, 2),
                            .buckets = {last, bucket_},
                            .memory = {.gradients = gradients_, .mine = {StripeMemory{}}}});
  for (std::uint64_t step = 0; step < 2; ++step) {
    exchange->begin(stream_, {.step = Step{step}}, sums_, total_);
    exchange->contribute(stream_, last);
    exchange->contribute(stream_, bucket_);
    exchange->commit(stream_);
  }
  EXPECT_EQ(communicator_.calls, "g0g1au0u1g0g1au0u1");
}

TEST_F(RoundExchangeTest, WaitsForRelievedRanksBeforeAStepWithoutARoundAndRelievesNobodyInTheLast) {
  ExchangeMemory memory{.gradients = gradients_, .mine = {make_stripe(32, 16, RuleKind::sgd, 2)}};
  memory.held = gradients_;
  memory.carry = total_;
  memory.stripes = {make_stripe(0, 32, RuleKind::sgd, 2), memory.mine[0]};
  memory.stripes[0].stripe.owner = {0};
  const auto exchange =
      make_policy_exchange({.communicator = &communicator_,
                            .rule = {.kind = RuleKind::sgd},
                            .policy = std::make_unique<PolicySequence>(
                                std::vector<PolicyPhase>{{}, {.from_step = 2, .policy = {.accumulate = 2}}}, 2),
                            .buckets = {bucket_},
                            .memory = memory});
  const std::vector<Rank> relieved{{0}};
  std::vector<std::string> calls;
  for (std::uint64_t step = 0; step < 8; ++step) {
    communicator_.calls.clear();
    exchange->begin(stream_, {.step = Step{step}, .last = step == 7, .relieved = relieved}, sums_, total_);
    exchange->contribute(stream_, bucket_);
    exchange->commit(stream_);
    calls.push_back(communicator_.calls);
  }
  EXPECT_EQ(calls, (std::vector<std::string>{"r1", "r1", "s", "r1", "s", "r1", "s", "r0"}));
}

/// Orders the same in each step.
class SameOrders final : public RoundPolicy {
 public:
  explicit SameOrders(const StepActions& actions) : actions_(actions) {}
  StepActions next(const StepFacts&) override { return actions_; }

 private:
  const StepActions actions_;
};

TEST_F(RoundExchangeTest, RefusesOrdersOfAnAppsOwnPolicyForWhichTheNamedOneHasNoMemory) {
  const auto refusal = [&](const StepActions& actions) -> std::string {
    const auto exchange =
        make_policy_exchange({.communicator = &communicator_,
                              .rule = {.kind = RuleKind::sgd},
                              .policy = std::make_unique<PolicySequence>(std::vector<PolicyPhase>{{}}, 2,
                                                                         [&](const PolicySettings&, std::uint32_t) {
                                                                           return std::make_unique<SameOrders>(actions);
                                                                         }),
                              .buckets = {bucket_},
                              .memory = {.gradients = gradients_, .mine = {StripeMemory{}}}});
    try {
      exchange->begin(stream_, {.step = Step{0}}, sums_, total_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid);
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal({.sent = Sent::gradient, .finish = true}), "");
  EXPECT_THAT(refusal({.keep = true}), HasSubstr("step 0: group 0's policy needs room for gradients that wait, which "
                                                 "sync does not have: let update.policy name one that does"));
  EXPECT_THAT(refusal({.local_update = true}), HasSubstr("weights of each rank's own"));
  EXPECT_THAT(refusal({.sent = Sent::delta, .finish = true}), HasSubstr("weights of each rank's own"));
  EXPECT_THAT(refusal({.hosted = true}), HasSubstr("orders shards"));
  EXPECT_THAT(refusal({.finish_previous = true}), HasSubstr("finishes a previous round, and none is in progress"));
}

TEST_F(RoundExchangeTest, TakesTheRateFromTheSamplesThatAllRanksHaveTaken) {
  const RateSettings halves{.shape = RateShape::step, .every = {.samples = 100}, .factor = 0.5};
  const auto exchange =
      make_policy_exchange({.communicator = &communicator_,
                            .rule = {.kind = RuleKind::sgd, .rate = 8},
                            .policy = std::make_unique<PolicySequence>(std::vector<PolicyPhase>{{}}, 2),
                            .buckets = {bucket_},
                            .memory = {.gradients = gradients_, .mine = {StripeMemory{}}},
                            .rate = RateSchedule{8, halves, {}}});
  for (const auto& [samples, rate] : {std::pair{0, 8.0F}, {99, 8.0F}, {100, 4.0F}, {350, 1.0F}}) {
    exchange->begin(stream_, {.step = Step{0}, .samples_before = static_cast<std::uint64_t>(samples), .samples = 50},
                    sums_, total_);
    exchange->contribute(stream_, bucket_);
    exchange->commit(stream_);
    EXPECT_EQ(communicator_.rule.rate, rate);
  }
}

TEST_F(RoundExchangeTest, ScalesTheRateWithTheSamplesOfAnUpdateWhichAccumulationMultiplies) {
  ExchangeMemory memory{.gradients = gradients_, .mine = {StripeMemory{}}};
  memory.held = gradients_;
  memory.carry = total_;
  const auto exchange = make_policy_exchange(
      {.communicator = &communicator_,
       .rule = {.kind = RuleKind::sgd, .rate = 8},
       .policy = std::make_unique<PolicySequence>(
           std::vector<PolicyPhase>{{}, {.from_step = 1, .policy = {.accumulate = 4}}, {.from_step = 5, .policy = {}}},
           2),
       .buckets = {bucket_},
       .memory = memory,
       .rate = RateSchedule{8, {.linear = true, .reference_batch = 50}, {}}});
  for (std::uint64_t step = 0; step < 6; ++step) {
    exchange->begin(stream_, {.step = Step{step}, .samples_before = step * 100, .samples = 100}, sums_, total_);
    exchange->contribute(stream_, bucket_);
    exchange->commit(stream_);
    if (!exchange->has_round()) continue;
    EXPECT_EQ(communicator_.rule.rate, step == 4 ? 64.0F : 16.0F) << "step " << step;
  }
}

TEST_F(RoundExchangeTest, ScalesTheRateWithSamplesThatFillUpAnEpochToo) {
  const auto exchange =
      make_policy_exchange({.communicator = &communicator_,
                            .rule = {.kind = RuleKind::sgd, .rate = 8},
                            .policy = std::make_unique<PolicySequence>(std::vector<PolicyPhase>{{}}, 2),
                            .buckets = {bucket_},
                            .memory = {.gradients = gradients_, .mine = {StripeMemory{}}},
                            .rate = RateSchedule{8, {.linear = true, .reference_batch = 50}, {}}});
  exchange->begin(stream_, {.step = Step{0}, .samples = 70, .repeated = 5}, sums_, total_);
  exchange->contribute(stream_, bucket_);
  exchange->commit(stream_);
  EXPECT_EQ(communicator_.rule.rate, 12.0F);
}

TEST_F(RoundExchangeTest, HandsItsPartOfTheBucketToTheCommunicatorWithTheRuleOfThisUpdate) {
  exchange_->begin(stream_, {.step = Step{6}}, sums_, total_);
  exchange_->contribute(stream_, bucket_);
  const BucketWork& work = communicator_.work;
  EXPECT_EQ(work.bucket, bucket_);
  EXPECT_EQ(work.step, Step{6});
  EXPECT_TRUE(work.first);
  EXPECT_EQ(work.gradients, slice(gradients_, 0, 48 * 4));
  EXPECT_EQ(work.sums, sums_);
  EXPECT_EQ(work.total, total_);
  EXPECT_EQ(communicator_.rule.rate, rule_step(rule_, 7).rate);
  EXPECT_EQ(communicator_.mine.stripe, (Stripe{GroupId{}, Rank{1}, 32, 16}));
}

TEST_F(RoundExchangeTest, RefusesABucketBeyondItsGradientsBeforeItsCommunicatorSeesIt) {
  exchange_->begin(stream_, {.step = Step{6}}, sums_, total_);
  EXPECT_THROW(exchange_->contribute(stream_, Bucket{GroupId{}, 0, 96, 16}), Error);
  EXPECT_EQ(communicator_.work.update, 0u);
}

}  // namespace
}  // namespace troupe::testing
