#include "devices/fake/fake_device.hpp"

#include <gtest/gtest.h>

#include <array>

#include "tests/contracts/timeline_contract.hpp"

namespace troupe::testing {
namespace {

class FakeLineHome final : public TimelineHome {
 public:
  Timeline& line() override { return line_; }

 private:
  FakeTimeline line_{TimelineId{ArenaId{0}, 1}};
};
INSTANTIATE_TEST_SUITE_P(Fake, TimelineContract,
                         ::testing::Values(TimelineCase{"Alone", [] { return std::make_unique<FakeLineHome>(); }}),
                         TimelineCase::name_of);

class FakeDeviceTest : public ::testing::Test {
 protected:
  FakeDeviceTest() { space_.map(arena_); }
  std::string order_of(FakeOptions options) {
    FakeDevice device{space_, options};
    std::string order;
    const auto a = device.fake_stream();
    const auto b = device.fake_stream();
    const auto c = device.fake_stream();
    for (int i = 0; i < 8; ++i) {
      a->call([&] { order += 'a'; });
      b->call([&] { order += 'b'; });
      c->call([&] { order += 'c'; });
    }
    device.run_until_idle();
    return order;
  }
  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 1 << 20);
};

TEST_F(FakeDeviceTest, DoesNothingUntilItIsRun) {
  FakeDevice device{space_};
  const auto stream = device.fake_stream();
  int done = 0;
  for (int i = 0; i < 3; ++i) stream->call([&] { ++done; });
  EXPECT_EQ(done, 0);
  EXPECT_EQ(stream->count_queued(), 3u);
  EXPECT_TRUE(device.run_one());
  EXPECT_EQ(done, 1);
  EXPECT_EQ(device.run_until_idle(), 2u);
  EXPECT_EQ(done, 3);
  EXPECT_FALSE(device.run_one());
  EXPECT_EQ(device.count_done(), 3u);
}

TEST_F(FakeDeviceTest, OrdersStreamsByTheSeed) {
  EXPECT_EQ(order_of({.seed = 1}), order_of({.seed = 1}));
  EXPECT_NE(order_of({.seed = 1}), order_of({.seed = 2}));
  EXPECT_EQ(order_of({.seed = 3, .delay_one_in = 3}), order_of({.seed = 3, .delay_one_in = 3}));
}

TEST_F(FakeDeviceTest, DoesEverythingHoweverStreamsAreDelayed) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) EXPECT_EQ(order_of({.seed = seed, .delay_one_in = 2}).size(), 24u);
}

TEST_F(FakeDeviceTest, StopsAtAWaitUntilItsPointIsReached) {
  FakeDevice device{space_};
  const auto stream = device.fake_stream();
  Timeline& gate = space_.timeline(arena_->make_timeline());
  bool done = false;
  stream->wait({gate.id(), 3});
  stream->call([&] { done = true; });
  EXPECT_EQ(device.run_until_idle(), 0u);
  gate.signal(3);
  EXPECT_EQ(device.run_until_idle(), 2u);
  EXPECT_TRUE(done);
}

TEST_F(FakeDeviceTest, EndsAStreamThatWaitsForOneThatIsGone) {
  FakeDevice device{space_};
  auto gone = device.fake_stream();
  const auto waiting = device.fake_stream();
  gone->call([] {});
  waiting->wait(gone->mark());
  gone.reset();
  EXPECT_EQ(device.run_until_idle(), 1u);
  EXPECT_EQ(waiting->status().code(), Code::aborted) << waiting->status().text();
}

TEST_F(FakeDeviceTest, FailsTheWorkOfAGivenNumberAndDropsTheRest) {
  FakeDevice device{space_, {.fail_at = 1}};
  const auto stream = device.fake_stream();
  int done = 0;
  for (int i = 0; i < 3; ++i) stream->call([&] { ++done; });
  const Point behind = stream->mark();
  device.run_until_idle();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(stream->status().code(), Code::device_fault);
  EXPECT_EQ(space_.timeline(behind.line).status().code(), Code::device_fault);
  EXPECT_EQ(stream->count_queued(), 0u);
}

TEST_F(FakeDeviceTest, FailsByChanceAtTheSamePlaceForTheSameSeed) {
  const auto failed_after = [&](std::uint64_t seed) {
    FakeDevice device{space_, {.seed = seed, .fail_one_in = 20}};
    const auto stream = device.fake_stream();
    for (int i = 0; i < 1000; ++i) stream->call([] {});
    device.run_until_idle();
    EXPECT_FALSE(stream->status().ok());
    return device.count_done();
  };
  EXPECT_EQ(failed_after(1), failed_after(1));
  EXPECT_NE(failed_after(1), failed_after(2));
}

TEST_F(FakeDeviceTest, AStreamThatDiesInAnUpdateSaysNothing) {
  FakeDevice device{space_};
  const auto stream = device.fake_stream();
  StripeMemory stripe;
  stripe.stripe.count = 3000;
  stripe.parameters = arena_->allocate(3000 * sizeof(float));
  const Memory gradients = arena_->allocate(3000 * sizeof(float));
  const Memory total = arena_->allocate(sizeof(StepSums));
  space_.address_of<StepSums>(total)->samples = 1;
  std::fill_n(space_.address_of<float>(gradients), 3000, 1.0f);
  stream->die_in_update(PassMoment::half_of_block_computed, 1);
  stream->update(rule_step({.kind = RuleKind::sgd, .rate = 1}, 1), 1, stripe, std::array{gradients}, total);
  const Point behind = stream->mark();
  device.run_until_idle();
  const auto* parameters = space_.address_of<const float>(stripe.parameters);
  EXPECT_EQ(parameters[1024 + 511], -1.0f);
  EXPECT_EQ(parameters[1024 + 512], 0.0f);
  EXPECT_EQ(space_.timeline(behind.line).value(), 0u);
  EXPECT_TRUE(stream->status().ok());
  EXPECT_EQ(stream->count_queued(), 0u);
}

TEST_F(FakeDeviceTest, WaitingForAStreamsPointMakesTimePass) {
  FakeDevice device{space_};
  const auto stream = device.fake_stream();
  bool done = false;
  stream->call([&] { done = true; });
  const Point behind = stream->mark();
  Blocking blocking = Blocking::on_thread("test");
  EXPECT_TRUE(
      space_.timeline(behind.line).wait(blocking, behind.value, Deadline::after(std::chrono::seconds{10}), "it").ok());
  EXPECT_TRUE(done);
}

/// What every suite that runs on simulated device memory relies on.
TEST(FarMemoryDeathTest, EndsAProcessWhoseHostLooksAtAGradientAndSaysWhere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  AddressSpace space;
  FakeDevice device{space, {.simulated_memory = true}};
  const Memory gradients = device.allocate(arena_id(Peer{0}, 7), MemoryKind::device, 4096);
  const volatile float* at = space.address_of<const float>(gradients);
  EXPECT_DEATH((void)at[3], "the host has touched device memory: byte 4108 of arena 65543, from");
}

TEST(FarMemoryDeathTest, EndsAProcessWhoseHostWritesToAnImportedOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  AddressSpace space, elsewhere;
  FakeDevice device{space, {.simulated_memory = true}}, other{elsewhere, {.simulated_memory = true}};
  (void)other.allocate(arena_id(Peer{1}, 7), MemoryKind::device, 4096);
  const Memory theirs = device.import(other.ticket(arena_id(Peer{1}, 7)));
  volatile float* at = space.address_of<float>(theirs);
  EXPECT_DEATH(at[0] = 1, "the host has touched device memory: byte 4096 of arena 131079, from");
}

}  // namespace
}  // namespace troupe::testing
