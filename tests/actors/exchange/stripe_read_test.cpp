#include "actors/exchange/stripe_read.hpp"

#include <gmock/gmock.h>

#include <caf/scoped_actor.hpp>
#include <future>

#include "devices/reference/reference_device.hpp"
#include "runtime/exchange/policies/hosted.hpp"
#include "tests/actors/remote/asking.hpp"
#include "tests/support/child_process.hpp"

// Reads of a few elements from a shard of this process and of another one.
namespace troupe::test {
namespace {

using ::testing::HasSubstr;
using troupe::testing::eventually;

constexpr std::uint64_t kElements = 600;

struct Found {
  Status status;
  std::uint64_t version = 0;
  std::vector<float> values;
};

class Read final : public StripeRead {
 public:
  using StripeRead::StripeRead;
  Found wait() {
    auto found = found_.get_future();
    EXPECT_EQ(found.wait_for(kLong), std::future_status::ready);
    return found.get();
  }

 private:
  void read(const Status& status, std::uint64_t version, std::span<const float> values) noexcept override {
    found_.set_value({status, version, {values.begin(), values.end()}});
  }
  std::promise<Found> found_;
};

/// The shard is in `there`; it is inline or not, the reader there or here.
class StripeReads : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  StripeReads() {
    HostedParts parts{.stream = *stream, .space = there().space, .arena = *there().own, .shard = 3};
    parts.rule = {.kind = RuleKind::sgd, .rate = 1};
    parts.stripe.stripe = {GroupId{}, Rank{}, 0, kElements};
    parts.stripe.parameters = there().fresh(kElements * sizeof(float), false);
    float* const at = there().space.address_of<float>(parts.stripe.parameters);
    for (std::uint64_t i = 0; i < kElements; ++i) at[i] = static_cast<float>(i);
    shard = spawn_hosted_shard(there().system, std::move(parts), there().remote.get(), std::get<0>(GetParam()));
    known = std::get<1>(GetParam())
                ? shard
                : caf::actor_cast<HostedShard>(at_other_end(there(), *world.here, caf::actor_cast<caf::actor>(shard)));
  }
  ~StripeReads() override {
    caf::scoped_actor self(there().system);
    self->send_exit(shard, caf::exit_reason::user_shutdown);
    self->wait_for(shard);
  }

  RemoteEnd& there() { return *world.there; }
  void host() {
    caf::anon_send(shard, StartHosting{.policy = make_plain_hosted_policy({.kind = PolicyKind::async}, 2)});
    home->request(shard, kLong, JoinHosting{0}).receive([](const HostingJoined&) {}, [](const caf::error&) { FAIL(); });
  }
  PushRequest ones() {
    PushRequest push{.sequence = 1};
    push.sums.samples = 1;
    const Memory memory = there().fresh(kElements * sizeof(float), false);
    std::fill_n(there().space.address_of<float>(memory), kElements, 1.0F);
    push.values = Tensor{memory, {kElements}, DType::f32, {}, nullptr};
    push.next = {.clock = 1};
    return push;
  }
  Found read(std::uint64_t first, std::uint64_t count) {
    RemoteEnd& end = std::get<1>(GetParam()) ? there() : *world.here;
    Read reads(*end.remote, known);
    reads.start(first, count);
    return reads.wait();
  }

  LoopbackWorld world{{}, {}, {.inline_limit = kLong}};
  std::unique_ptr<Device> device = make_reference_device(there().space);
  std::unique_ptr<Stream> stream = device->stream();
  HostedShard shard, known;
  caf::scoped_actor home{there().system};  // in whose name the worker joins
};

TEST_P(StripeReads, GiveElementsAndTheVersionTheyAreOf) {
  host();
  caf::scoped_actor self(there().system);
  for (const std::uint64_t count : {1, 2, 255, 256}) {
    const Found before = read(kElements - count, count);
    ASSERT_TRUE(before.status.ok()) << before.status.text();
    EXPECT_EQ(before.version, 0u);
    ASSERT_EQ(before.values.size(), count);
    for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(before.values[i], static_cast<float>(kElements - count + i));
  }
  self->request(shard, kLong, ones()).receive([](const PullReply&) {}, [](const caf::error&) { FAIL(); });
  const Found after = read(10, 2);
  EXPECT_EQ(after.version, 1u);
  EXPECT_EQ(after.values, (std::vector<float>{9, 10}));
}

TEST_P(StripeReads, WaitForAnUpdateInProgress) {
  host();
  const TimelineId gate = there().space.make_private_timeline();
  PushRequest push = ones();
  push.values = Tensor(push.values.memory(), {kElements}, DType::f32, Point{gate, 1}, nullptr);
  caf::scoped_actor self(there().system);
  auto pushed = self->request(shard, kLong, push);
  caf::scoped_actor other(there().system);
  EXPECT_TRUE(eventually([&] {
    std::uint64_t version = 0;
    other->request(shard, kLong, AskHosting{})
        .receive([&](const HostingReport& report) { version = report.version; }, [](const caf::error&) {});
    return version == 1;
  }));
  RemoteEnd& end = std::get<1>(GetParam()) ? there() : *world.here;
  std::vector<std::unique_ptr<Read>> reads;
  for (std::uint64_t i = 0; i < 40; ++i) {
    reads.push_back(std::make_unique<Read>(*end.remote, known));
    reads[i]->start(i, 3);
  }
  there().space.timeline(gate).signal(1);
  for (std::uint64_t i = 0; i < reads.size(); ++i) {
    const Found found = reads[i]->wait();
    EXPECT_EQ(found.version, 1u);
    const auto first = static_cast<float>(i) - 1;
    EXPECT_EQ(found.values, (std::vector<float>{first, first + 1, first + 2}));
  }
  pushed.receive([](const PullReply&) {}, [](const caf::error&) { FAIL(); });
}

TEST_P(StripeReads, FailWhileTheStripeIsLent) {
  host();
  ASSERT_TRUE(read(0, 1).status.ok());
  const TimelineId line = there().space.make_private_timeline();
  caf::anon_send(shard, PauseHosting{line, 1, {}});
  Blocking blocking = Blocking::on_thread("test");
  const Status rests = there().space.timeline(line).wait(blocking, 1, Deadline::after(kLong), "the shard's rest");
  ASSERT_TRUE(rests.ok()) << rests.text();
  const Found lent = read(0, 1);
  EXPECT_EQ(lent.status.code(), Code::invalid);
  EXPECT_THAT(std::string{lent.status.text()}, HasSubstr("the devices update its stripe"));
  caf::anon_send(shard, StartHosting{.policy = make_plain_hosted_policy({.kind = PolicyKind::async}, 2)});
  EXPECT_TRUE(eventually([&] { return read(0, 1).status.ok(); }));
}

TEST_P(StripeReads, FailOutsideOfTheStripeAndWhereNothingIsHosted) {
  const Found early = read(0, 1);
  EXPECT_EQ(early.status.code(), Code::invalid);
  EXPECT_THAT(std::string{early.status.text()}, HasSubstr("shard 3 hosts nothing yet"));
  host();
  const Found outside = read(kElements - 1, 2);
  EXPECT_EQ(outside.status.code(), Code::invalid);
  EXPECT_THAT(std::string{outside.status.text()}, HasSubstr("2 elements from 599 of a stripe of 600"));
  EXPECT_THROW(read(0, 0), Error);
  EXPECT_THROW(read(0, kMostReadElements + 1), Error);
}

INSTANTIATE_TEST_SUITE_P(Shards, StripeReads, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Inline" : "Scheduled") +
                                  (std::get<1>(info.param) ? "OfItsProcess" : "OfAnotherProcess");
                         });

}  // namespace
}  // namespace troupe::test
