// How a GPU's stream measures itself: on the host alone, and with a device.

#include <gtest/gtest.h>
#include <sched.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "devices/cuda/kernels/times.hpp"
#include "devices/cuda/stream_timer.hpp"
#include "tests/contracts/device_world.hpp"
#include "tests/support/gpu.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using cuda::GpuClock;
using cuda::StreamTimer;
using cuda::TimedWork;
using cuda::WorkBorders;
using Role = TimedWork::Role;

Clock::time_point on_host(std::chrono::nanoseconds at) { return Clock::time_point{at}; }

TEST(GpuClock, TakesTheClosestBoundsOfAllThatItSaw) {
  GpuClock clock;
  // The host's clock is 1000 ns ahead; launches are noted up to 50 ns late, and read up to 400 ns later.
  clock.saw(5000ns, on_host(5950ns), on_host(6400ns));
  EXPECT_EQ(clock.uncertainty(), 225ns);
  clock.saw(5100ns, on_host(5700ns), on_host(6110ns));
  clock.saw(5200ns, on_host(6195ns), on_host(6900ns));
  EXPECT_LE(clock.uncertainty(), 8ns);
  EXPECT_NEAR(static_cast<double>((clock.host_time(7000ns) - on_host(8000ns)).count()), 0, 8);
}

TEST(GpuClock, FollowsAClockThatDrifts) {
  GpuClock clock;
  for (std::chrono::nanoseconds at = 1s; at < 100s; at += 100ms) {
    const auto ahead = at / 50000;  // by 20 ppm
    clock.saw(at, on_host(at + ahead - 5us), on_host(at + ahead + 40us));
    const auto wrong = clock.host_time(at) - on_host(at + ahead);
    EXPECT_LE(std::chrono::abs(wrong), 40us);
  }
}

TEST(GpuClock, BeginsAnewWhereAClockWasSet) {
  GpuClock clock;
  clock.saw(1000ns, on_host(1990ns), on_host(2010ns));
  clock.saw(2000ns, on_host(8990ns), on_host(9010ns));
  EXPECT_EQ(clock.host_time(2000ns), on_host(9000ns));
}

TimedWork work(WorkKind kind, const char* phase, WorkLabel label = {}) {
  return {.role = Role::work, .kind = kind, .phase = phase, .label = label};
}

TEST(WorkBorders, AsksForATimeOnlyWhereWorkOfAnotherKindBegins) {
  WorkBorders borders;
  EXPECT_EQ(borders.begin(work(WorkKind::compute, "forward"))->role, Role::gap);
  EXPECT_FALSE(borders.begin(work(WorkKind::compute, "forward")));
  EXPECT_FALSE(borders.begin(work(WorkKind::compute, "backward")));
  EXPECT_EQ(borders.begin(work(WorkKind::update, "update"))->kind, WorkKind::compute);
  EXPECT_EQ(borders.end_at_signal({}).kind, WorkKind::update);
  EXPECT_FALSE(borders.begin(work(WorkKind::compute, "forward"))) << "the signal has noted the time";
  EXPECT_EQ(borders.end_at_wait().kind, WorkKind::compute);
  EXPECT_EQ(borders.end_at_wait().role, Role::between);
}

TEST(WorkBorders, AskForATraceAlsoBetweenPhasesStepsAndBuckets) {
  WorkBorders borders;
  borders.see_all();
  EXPECT_TRUE(borders.begin(work(WorkKind::compute, "forward", {.step = 1})));
  EXPECT_FALSE(borders.begin(work(WorkKind::compute, "forward", {.step = 1})));
  EXPECT_TRUE(borders.begin(work(WorkKind::compute, "backward", {.step = 1})));
  EXPECT_TRUE(borders.begin(work(WorkKind::compute, "backward", {.step = 1, .bucket = 3})));
  EXPECT_TRUE(borders.begin(work(WorkKind::compute, "backward", {.step = 2, .bucket = 3})));
}

TEST(WorkBorders, EndAGapWhereWorkBeginsAgain) {
  WorkBorders borders;
  (void)borders.begin(work(WorkKind::compute, "forward"));
  EXPECT_EQ(borders.end_open()->kind, WorkKind::compute);
  borders.rest();
  EXPECT_EQ(borders.end_at_wait().role, Role::gap);
  borders.rest();
  EXPECT_EQ(borders.begin(work(WorkKind::copy, "copy"))->role, Role::gap);
  EXPECT_FALSE(borders.rests());
}

/// A timer whose times are written by hand, as kernels write them.
class TimerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const auto driver = cuda::Driver::load(why);
    ASSERT_TRUE(driver) << why;
    ASSERT_EQ(driver->init(0), cuda::Result::success);
    gpu_ = std::make_shared<const cuda::Gpu>(*driver, 0);
    timer_.emplace(gpu_);
  }
  void write(std::uint32_t number, std::uint64_t at_ns) {
    const std::uint64_t lap = 1 + number / cuda::kTimesKept;
    timer_->ring()[number % cuda::kTimesKept] = lap << cuda::kTimeBits | (at_ns & cuda::kTimeMask);
  }

  std::shared_ptr<const cuda::Gpu> gpu_;
  std::optional<StreamTimer> timer_;
};

TEST_F(TimerTest, AddsUpWhatEachTimeEnds) {
  TimedWork batch = work(WorkKind::compute, "forward");
  batch.begins_batch = true;
  const std::vector<TimedWork> works{{.role = Role::gap},
                                     {.role = Role::gap},
                                     {.role = Role::wait},
                                     batch,
                                     work(WorkKind::update, "update"),
                                     {.role = Role::wait},
                                     work(WorkKind::exchange, "reduce")};
  timer_->expect(works);
  std::uint64_t at = 1000;
  for (std::uint32_t n = 0; n < works.size(); ++n) write(n, at += 100 * n);
  const StreamTimes times = timer_->times();
  EXPECT_EQ(times.load, 300ns) << "the queue was empty for 100 ns, and the batch was waited for";
  EXPECT_EQ(times.compute, 300ns);
  EXPECT_EQ(times.update, 400ns);
  EXPECT_EQ(times.exchange, 1100ns);
  EXPECT_EQ(times.total(), 2100ns) << "the time before the first work is not counted";
}

TEST_F(TimerTest, TakesATimeOnceItIsThere) {
  timer_->expect(std::vector{work(WorkKind::copy, "copy"), work(WorkKind::copy, "copy")});
  write(0, 5000);
  EXPECT_EQ(timer_->times().copy, 0ns);
  write(1, 5700);
  EXPECT_EQ(timer_->times().copy, 700ns);
}

TEST_F(TimerTest, CountsNothingAcrossTimesThatWereOverwritten) {
  const std::uint32_t lost = 3;
  const std::vector<TimedWork> works(cuda::kTimesKept + lost, work(WorkKind::update, "update"));
  timer_->expect(works);
  for (std::uint32_t n = 0; n < works.size(); ++n) write(n, 1000 + 10 * n);
  // Of those that are left, the first only begins.
  EXPECT_EQ(timer_->times().update, 10ns * (cuda::kTimesKept - 1));
}

TEST_F(TimerTest, GoesOnWhereTheBitsOfATimeBeginAnew) {
  timer_->expect(std::vector(2, work(WorkKind::compute, "forward")));
  write(0, cuda::kTimeMask - 99);
  write(1, cuda::kTimeMask + 201);
  EXPECT_EQ(timer_->times().compute, 300ns);
}

struct NoExchange final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

class CudaTimes : public contracts::DeviceWorld {
 protected:
  static constexpr std::chrono::milliseconds kAWhile{2};

  static Graph graph() {
    return {"net", Shape{{12}}, DType::f32, {{"a", Dense{9}}, {"b", Dense{3}}, {"loss", SoftmaxCrossEntropy{}}}};
  }
  /// Advances the clock.
  static void pass(std::chrono::nanoseconds span) {
    for (const auto deadline = Deadline::after(span); !deadline.passed();) sched_yield();
  }
  /// Steps of a small network on a stream, each of which first waits for the gate.
  void prepare(Stream& stream) {
    stream_ = &stream;
    const Layout layout{graph()};
    memory_ = {put(std::vector<float>(layout.count_elements())), {}, put(std::vector<float>(layout.count_elements()))};
    batch_ = arena()->allocate(rows_.size_bytes());
    sums_ = put_sums({});
    replica_ = device().compile(graph(), layout, rows_, make_buckets(GroupId{}, graph(), layout, 0), memory_);
    stripe_ = {.stripe = {GroupId{}, Rank{}, 0, layout.count_elements()}, .parameters = memory_.parameters, .half = {}};
  }
  Point enqueue_step(std::uint64_t step) {
    Point done;
    stream_->enqueue(programs_, [&] {
      stream_->about({.step = step});
      stream_->wait({gate_.id(), step});
      replica_->step(*stream_, batch_, 5, sums_, sink_);
      stream_->update(rule_step({.kind = RuleKind::sgd, .rate = 0.5}, step), step, stripe_,
                      std::span{&memory_.gradients, 1}, sums_);
      done = stream_->mark();
    });
    return done;
  }
  void do_step(std::uint64_t step, std::chrono::nanoseconds late = 0ns) {
    const Point done = enqueue_step(step);
    pass(late);
    gate_.line().signal(step);
    EXPECT_TRUE(reach(done).ok());
  }

  const PrivateTimeline gate_{space()};
  const BatchLayout rows_{5, graph().fields()};
  ReplicaMemory memory_;
  Memory batch_, sums_;
  StripeMemory stripe_;
  std::unique_ptr<Replica> replica_;
  NoExchange sink_;
  Programs programs_;
  Stream* stream_ = nullptr;
};

TEST_P(CudaTimes, OfStepsTellThePartsApartAlsoWhereTheyAreReplayed) {
  const auto stream = device().stream();
  prepare(*stream);
  do_step(1);
  do_step(2);
  const std::uint64_t replayed = programs_.replayed();
  const StreamTimes before = stream->times();
  StreamTimes spent;
  std::uint64_t step = 2;
  // What passes before the GPU comes to its wait is an empty queue or an earlier step's work: on a busy machine that
  // may be nearly all.
  for (int attempt = 0; attempt < 20 && spent.load < kAWhile; ++attempt) {
    do_step(++step, kAWhile);
    spent = stream->times() - before;
  }
  EXPECT_GE(spent.load, kAWhile);
  EXPECT_GT(spent.compute, 0ns);
  EXPECT_GT(spent.update, 0ns);
  EXPECT_EQ(spent.evaluate, 0ns);
  EXPECT_GT(programs_.replayed(), replayed);
}

TEST_P(CudaTimes, OfAWaitForOthersAreExchange) {
  const auto stream = device().stream();
  const Memory memory = put({1.0F, 2.0F}), to = put({0.0F, 0.0F});
  std::uint64_t opened = 0;
  for (int attempt = 0; attempt < 20 && stream->times().exchange < kAWhile; ++attempt) {
    stream->wait({gate_.id(), ++opened});
    stream->reduce(to, {&memory, 1});
    const Point end = stream->mark();
    pass(kAWhile);
    gate_.line().signal(opened);
    EXPECT_TRUE(reach(end).ok());
  }
  EXPECT_GE(stream->times().exchange, kAWhile);
  EXPECT_EQ(stream->times().load, 0ns);
}

TEST_P(CudaTimes, OfAnEvaluationAreItsOwn) {
  const auto stream = device().stream();
  prepare(*stream);
  finish(*stream);
  stream->wait({gate_.id(), 1});
  gate_.line().signal(1);
  replica_->evaluate(*stream, batch_, 5, sums_);
  finish(*stream);
  EXPECT_GT(stream->times().evaluate, 0ns);
  EXPECT_EQ(stream->times().compute, 0ns);
  EXPECT_EQ(stream->times().load, 0ns);
}

double microseconds(std::chrono::nanoseconds span) { return std::chrono::duration<double, std::micro>(span).count(); }

TEST_P(CudaTimes, AreSpansOfATraceWithinTheRunByTheHostsClock) {
  Trace trace;
  const Clock::time_point begin = Clock::now();
  {
    const auto stream = device().stream();
    stream->trace(trace.row("compute stream"));
    prepare(*stream);
    for (std::uint64_t step = 1; step <= 6; ++step) do_step(step);
    EXPECT_GT(programs_.replayed(), 0U);
  }
  const Clock::time_point end = Clock::now();
  std::ostringstream out;
  trace.write(out, 0, "rank 0");
  const double shift_us =
      microseconds(std::chrono::system_clock::now().time_since_epoch()) - microseconds(Clock::now().time_since_epoch());
  constexpr double kRead = 1000;  // the two clocks are read one after the other
  std::vector<std::string> names;
  double last = 0;
  for (const auto& event : nlohmann::json::parse(out.str())) {
    if (event.at("ph") != "X") continue;
    names.push_back(event.at("name"));
    const double from = event.at("ts").get<double>() - shift_us, to = from + event.at("dur").get<double>();
    EXPECT_GE(from, microseconds(begin.time_since_epoch()) - kRead);
    EXPECT_LE(to, microseconds(end.time_since_epoch()) + kRead);
    EXPECT_GE(from + 1, last) << names.back() << " begins before the span before it ends";  // doubles of microseconds
    last = to;
  }
  for (const char* const phase : {"forward", "backward", "update"})
    for (int step = 1; step <= 6; ++step)
      EXPECT_EQ(std::count(names.begin(), names.end(), text(phase, ", step ", step)), 1) << phase << step;
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaTimes,
                         ::testing::Values(contracts::DeviceCase{
                             "Gpu",
                             [](AddressSpace& space, std::chrono::milliseconds deadline) {
                               return make_cuda_device(
                                   space, {.wait_deadline = deadline, .products = "own", .convolutions = "own"});
                             }}),
                         contracts::case_name);

}  // namespace
}  // namespace troupe
