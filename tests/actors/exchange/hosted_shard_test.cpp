// A shard that hosts a stripe, from the point of view of its workers.

#include "actors/exchange/hosted_shard.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <caf/event_based_actor.hpp>
#include <optional>

#include "actors/caf_error.hpp"
#include "runtime/exchange/policies/hosted.hpp"
#include "tests/actors/exchange/hosted_world.hpp"
#include "tests/support/child_process.hpp"

namespace troupe::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::troupe::testing::eventually;

constexpr std::uint64_t kElements = 32;
constexpr auto kLong = std::chrono::seconds(20);

class HostedShards : public ::testing::Test {
 protected:
  HostedShards() {
    space.map(arena);
    stripe.stripe = {GroupId{}, Rank{}, 0, kElements};
    stripe.parameters = put(std::vector<float>(kElements, 1));
  }
  ~HostedShards() override {
    if (!shard) return;
    caf::scoped_actor self(actors.system());
    self->send_exit(shard, caf::exit_reason::user_shutdown);
    self->wait_for(shard);
  }

  void host(std::unique_ptr<HostedPolicy> policy, Rule rule = {.kind = RuleKind::sgd, .rate = 1},
            std::optional<RateSchedule> rate = {}) {
    HostedParts parts{.stream = *stream, .space = space, .arena = *arena, .shard = 7, .stripe = stripe, .rule = rule};
    parts.rate = rate;
    parts.log = [this](std::span<const AppliedRecord> records) {
      log.insert(log.end(), records.begin(), records.end());
    };
    shard = spawn_hosted_shard(actors.system(), std::move(parts));
    caf::anon_send(shard, StartHosting{.policy = std::move(policy)});
  }
  void host_async() { host(make_plain_hosted_policy({.kind = PolicyKind::async}, 2)); }
  void host_ssp(std::uint32_t s) { host(make_plain_hosted_policy({.kind = PolicyKind::ssp, .staleness = s}, 2)); }

  template <class Result, class Message>
  std::optional<Result> ask(Message message) {
    caf::scoped_actor self(actors.system());
    return ask_from<Result>(self, std::move(message));
  }
  template <class Result, class Message>
  std::optional<Result> ask_from(caf::scoped_actor& self, Message message) {
    std::optional<Result> found;
    why = {};
    self->request(shard, kLong, std::move(message))
        .receive([&](const Result& result) { found = result; }, [&](const caf::error& e) { why = from_caf(e); });
    return found;
  }
  void join(std::uint32_t workers) {
    for (std::uint32_t w = 0; w < workers; ++w) ASSERT_TRUE(ask_from<HostingJoined>(home, JoinHosting{w}));
  }

  Memory put(const std::vector<float>& values) {
    const Memory memory = arena->allocate(values.size() * sizeof(float));
    std::copy(values.begin(), values.end(), space.address_of<float>(memory));
    return memory;
  }
  Tensor tensor(const std::vector<float>& values) {
    const Memory memory = values.empty() ? Memory{} : put(values);
    return values.empty() ? Tensor{} : Tensor{memory, {values.size()}, DType::f32, {}, nullptr};
  }
  std::vector<float> values_of(const Tensor& tensor) {
    const Status status = tensor.valid_from().value == 0 ? Status{}
                                                         : space.timeline(tensor.valid_from().line)
                                                               .wait(blocking, tensor.valid_from().value,
                                                                     Deadline::after(kLong), "a part that was pulled");
    EXPECT_TRUE(status.ok()) << status.text();
    const float* at = space.address_of<float>(tensor.memory());
    return {at, at + tensor.memory().size_bytes / sizeof(float)};
  }
  PushRequest push_of(std::uint32_t worker, std::uint64_t clock, std::uint64_t base, float gradient) {
    PushRequest push{.worker = worker, .sequence = clock + 1, .clock = clock, .base_version = base};
    push.sums.samples = push.computed = 2;
    push.values = tensor(std::vector<float>(kElements, gradient));
    push.next = {.worker = worker, .clock = clock + 1};
    return push;
  }

  AddressSpace space;
  std::shared_ptr<Arena> arena = Arena::create(arena_id(Peer{0}, 1), 1 << 20);
  std::unique_ptr<Device> device = make_reference_device(space);
  std::unique_ptr<Stream> stream = device->stream();
  StripeMemory stripe;
  UpdateLog log;
  ThreadedActors actors;
  caf::scoped_actor home{actors.system()};  // in whose name workers join
  Blocking blocking = Blocking::on_thread("test");
  HostedShard shard;
  Status why;
};

TEST_F(HostedShards, ApplyAContributionAndAnswerWithWhatItMade) {
  host_async();
  join(1);
  const auto pulled = ask<PullReply>(push_of(0, 0, 0, 0.5F));
  ASSERT_TRUE(pulled) << why.text();
  EXPECT_EQ(values_of(pulled->values), std::vector<float>(kElements, 0.75F)) << "1 - 0.5 / 2 samples";
  EXPECT_EQ(pulled->version, 1u);
  EXPECT_EQ(pulled->clock, 1u);
  EXPECT_EQ(pulled->total.samples, 2u);
  EXPECT_THAT(log, ElementsAre(AppliedRecord{.sequence = 1, .clock = 0, .base = 0, .shard = 7, .worker = 0}));
}

TEST_F(HostedShards, ScaleTheRateWithTheSamplesOfAContributionAlsoWhereItsRankTakesNoneOfTheOrder) {
  host(make_plain_hosted_policy({.kind = PolicyKind::async}, 2), {.kind = RuleKind::sgd},
       RateSchedule{1, {.linear = true, .reference_batch = 4}, {}});
  join(1);
  const auto pulled = ask<PullReply>(push_of(0, 0, 0, 1));
  ASSERT_TRUE(pulled) << why.text();
  EXPECT_EQ(values_of(pulled->values), std::vector<float>(kElements, 0.75F)) << "1 - 2 / 4 * 1 / 2 samples";
}

TEST_F(HostedShards, DoNotCountAContributionOfAStepWithoutSamplesAsAnUpdateOfTheRule) {
  stripe.state = {put(std::vector<float>(kElements)), put(std::vector<float>(kElements))};
  host(make_plain_hosted_policy({.kind = PolicyKind::async}, 2), {.kind = RuleKind::adam, .rate = 0.5});
  join(2);
  for (const std::uint64_t clock : {0, 1}) {
    PushRequest idle = push_of(0, clock, clock, 0);
    idle.sums.samples = idle.computed = 0;
    ASSERT_TRUE(ask<PullReply>(std::move(idle))) << why.text();
  }
  const auto pulled = ask<PullReply>(push_of(1, 0, 2, 4));
  ASSERT_TRUE(pulled) << why.text();
  EXPECT_EQ(pulled->version, 3u);
  EXPECT_FLOAT_EQ(values_of(pulled->values)[0], 0.5F) << "Adam's first update moves a weight by the rate";
}

TEST_F(HostedShards, ApplyAContributionThatIsSentTwiceOnceAndAnswerBothTimes) {
  host_async();
  join(1);
  const PushRequest push = push_of(0, 0, 0, 0.5F);
  ASSERT_TRUE(ask<PullReply>(push));
  const auto again = ask<PullReply>(push);
  ASSERT_TRUE(again) << why.text();
  EXPECT_EQ(again->version, 1u);
  EXPECT_EQ(values_of(again->values), std::vector<float>(kElements, 0.75F));
}

TEST_F(HostedShards, KeepWhatAReaderHoldsAsItWas) {
  host_async();
  join(2);
  const auto before = ask<PullReply>(PullRequest{.worker = 1});
  ASSERT_TRUE(before);
  const auto after = ask<PullReply>(push_of(0, 0, 0, 0.5F));
  ASSERT_TRUE(after);
  EXPECT_EQ(values_of(after->values)[0], 0.75F);
  EXPECT_EQ(values_of(before->values), std::vector<float>(kElements, 1));
}

TEST_F(HostedShards, GiveReadersOfOneVersionOneCopy) {
  host_async();
  join(2);
  const auto one = ask<PullReply>(PullRequest{.worker = 0});
  const auto other = ask<PullReply>(PullRequest{.worker = 1});
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->values.memory(), other->values.memory());
  EXPECT_EQ(one->content, other->content);
}

TEST_F(HostedShards, RefuseWhatMakesNoSenseAndGoOn) {
  host_async();
  join(1);
  PushRequest small = push_of(0, 0, 0, 1);
  small.values = tensor(std::vector<float>(kElements - 1, 1));
  EXPECT_FALSE(ask<PullReply>(small));
  EXPECT_THAT(std::string(why.text()), HasSubstr("where 128 are needed"));
  EXPECT_FALSE(ask<PullReply>(push_of(0, 1, 0, 1)));
  EXPECT_THAT(std::string(why.text()), HasSubstr("out_of_order"));
  EXPECT_FALSE(ask<PullReply>(push_of(3, 0, 0, 1)));
  EXPECT_THAT(std::string(why.text()), HasSubstr("stranger"));
  EXPECT_TRUE(ask<PullReply>(push_of(0, 0, 0, 1))) << why.text();
}

TEST_F(HostedShards, DoNotWaitForAWorkerThatEndedWithoutAWord) {
  host_ssp(0);
  ASSERT_TRUE(ask_from<HostingJoined>(home, JoinHosting{0}));
  {
    caf::scoped_actor short_lived(actors.system());
    ASSERT_TRUE(ask_from<HostingJoined>(short_lived, JoinHosting{1}));
  }
  const auto pulled = ask<PullReply>(push_of(0, 0, 0, 1));
  ASSERT_TRUE(pulled) << why.text();
  EXPECT_EQ(pulled->version, 1u);
}

TEST_F(HostedShards, AnswerWhatWaitsWithTheReasonOfTheirEnd) {
  host_ssp(1);
  join(2);
  ASSERT_TRUE(ask<PullReply>(push_of(0, 0, 0, 1)));
  caf::scoped_actor waiting(actors.system());
  auto held = waiting->request(shard, kLong, push_of(0, 1, 1, 1));
  EXPECT_TRUE(eventually([&] { return ask<HostingReport>(AskHosting{})->version == 2; }));
  caf::anon_send(shard, EndHosting{{Code::aborted, "sync from here on"}});
  Status told;
  held.receive([](const PullReply&) {}, [&](const caf::error& e) { told = from_caf(e); });
  EXPECT_THAT(std::string(told.text()), HasSubstr("sync from here on"));
  EXPECT_FALSE(ask<PullReply>(PullRequest{.worker = 1}));
  EXPECT_THAT(std::string(why.text()), HasSubstr("sync from here on"));
}

TEST_F(HostedShards, EndWithTheirStreamsError) {
  host_async();
  join(1);
  const TimelineId gate = space.make_private_timeline();
  PushRequest push = push_of(0, 0, 0, 1);
  push.values = Tensor(push.values.memory(), {kElements}, DType::f32, Point{gate, 1}, nullptr);
  ASSERT_TRUE(ask<PullReply>(push));
  caf::scoped_actor watching(actors.system());
  watching->monitor(shard);
  space.timeline(gate).poison({Code::device_fault, "the worker's device is gone"});
  Status end;
  watching->receive([&](const caf::down_msg& down) { end = from_caf(down.reason); },
                    caf::after(kLong) >> [] { ADD_FAILURE() << "it goes on"; });
  EXPECT_EQ(end.code(), Code::device_fault);
  EXPECT_THAT(std::string(end.text()), HasSubstr("the worker's device is gone"));
}

}  // namespace
}  // namespace troupe::test
