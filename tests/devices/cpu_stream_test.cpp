#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "devices/cpu/cpu_device.hpp"
#include "devices/cpu/onednn.hpp"
#include "devices/cpu/stream_meter.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/model/layer_list.hpp"

namespace {

/// Counts allocations of every thread but the one that says it is the test's own.
thread_local bool this_thread_is_watched = true;
std::atomic<bool> counting{false};
std::atomic<int> ours{0};
std::atomic<int> inside_onednn{0};

void* try_to_take(std::size_t size) noexcept {
  if (this_thread_is_watched && counting.load(std::memory_order_relaxed)) {
    (troupe::cpu::executing_primitive() ? inside_onednn : ours).fetch_add(1, std::memory_order_relaxed);
  }
  return std::malloc(size);
}

void* take(std::size_t size) {
  if (void* memory = try_to_take(size)) return memory;
  throw std::bad_alloc{};
}

}  // namespace

// All forms that delete below gives back: std::stable_sort takes its buffer by the one that does not throw.
[[gnu::noinline]] void* operator new(std::size_t size) { return take(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return take(size); }
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return try_to_take(size); }
[[gnu::noinline]] void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return try_to_take(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace troupe {
namespace {

using ::testing::HasSubstr;

/// Exchanges as an arena does: waits for the other rank's gradients, updates, signals.
struct UpdatingSink final : BucketSink {
  StripeMemory stripe;
  std::vector<Memory> gradients;
  Memory total, sums;
  Point await, tell;
  std::uint64_t update = 0;
  void ready(const Bucket&, Stream& stream) noexcept override {
    stream.sum_up(total, {&sums, 1});
    stream.wait(await);
    stream.update(rule_step({}, update), update, stripe, gradients, total);
    stream.signal(tell);
  }
};

class CpuStream : public ::testing::Test {
 protected:
  CpuStream() { space_.map(arena_); }
  Status reach(Point point) {
    Blocking blocking = Blocking::on_thread("test");
    return space_.timeline(point.line)
        .wait(blocking, point.value, Deadline::after(std::chrono::seconds{30}), "a test's point");
  }
  static Graph dense_layers(DType dtype) {
    return {
        "g", Shape{{50}}, dtype, {{"a", Dense{60}}, {"r", Relu{}}, {"b", Dense{10}}, {"loss", SoftmaxCrossEntropy{}}}};
  }
  /// Convolutions, pools and activations by themselves and fused.
  static Graph image_layers(DType dtype) {
    return {"g",
            Shape{{12, 12, 1}},
            dtype,
            {{"a", Conv2d{.filters = 20, .kernel = {3, 3}}},
             {"t", Tanh{}},
             {"p", MaxPool{}},
             {"b", Conv2d{.filters = 18, .kernel = {3, 3}, .padding = {1, 1}}},
             {"g", Gelu{}},
             {"q", AveragePool{}},
             {"f", Flatten{}},
             {"c", Dense{10}},
             {"loss", SoftmaxCrossEntropy{}}}};
  }
  /// Batch norms, sums and convolutions that gain by Winograd's algorithm.
  static Graph residual_layers(DType dtype) {
    LayerList net;
    const Conv2d conv{.filters = 32, .kernel = {3, 3}, .padding = {1, 1}};
    net.add(conv);
    const std::string stem = net.add(BatchNorm{});
    net.add(conv);
    net.add(BatchNorm{});
    net.add(Add{}, {stem, net.last()});
    net.add(Relu{});
    net.add(GlobalAveragePool{});
    net.add(Dense{10});
    return {"g", Shape{{16, 16, 3}}, dtype, net.finish()};
  }
  static Graph sequence_layers(DType dtype) {
    constexpr std::uint32_t kLength = 24, kTokens = 10;
    LayerList net;
    net.add(Embedding{.vocabulary = kTokens, .width = 36});
    net.add(Position{});
    net.add(LayerNorm{});
    net.add(Dense{.units = 3 * 36, .flatten = false});
    net.add(Attention{.heads = 3, .causal = true});
    net.add(Dense{.units = kTokens, .flatten = false});
    return {"g",
            {{"tokens", {{kLength}}, DType::i32, kTokens}, {std::string{kLabel}, {{kLength}}, DType::i32, kTokens}},
            dtype,
            net.finish()};
  }
  void expect_no_allocation(const Graph& graph) {
    const Layout layout{graph};
    const BatchLayout batch_layout{20, graph.fields()};
    const std::uint64_t count = layout.count_elements();
    const auto device = make_cpu_device(space_, {});
    ReplicaMemory memory{arena_->allocate(count * 4), {}, arena_->allocate(count * 4)};
    if (graph.dtype() == DType::bf16) memory.half = arena_->allocate(count * 2);
    const auto replica =
        device->compile(graph, layout, batch_layout, make_buckets(GroupId{}, graph, layout, 0), memory);
    const Memory batch = arena_->allocate(batch_layout.size_bytes());
    Timeline& others = space_.timeline(arena_->make_timeline());
    Timeline& own = space_.timeline(arena_->make_timeline());
    UpdatingSink sink;
    sink.stripe = {{GroupId{}, Rank{}, 0, count},
                   memory.parameters,
                   memory.half,
                   DType::bf16,
                   {arena_->allocate(count * 4), arena_->allocate(count * 4)},
                   arena_->allocate(journal_bytes(2))};
    sink.gradients = {memory.gradients, arena_->allocate(count * 4), arena_->allocate(count * 4)};
    sink.total = arena_->allocate(sizeof(StepSums));
    sink.sums = arena_->allocate(sizeof(StepSums));
    const auto stream = device->stream();
    this_thread_is_watched = false;
    ours = 0;
    inside_onednn = 0;
    for (std::uint64_t step = 1; step <= 20; ++step) {
      counting = step > 2;  // the first steps may set threads and libraries up
      sink.update = step;
      sink.await = {others.id(), step};
      sink.tell = {own.id(), step};
      replica->step(*stream, batch, batch_layout.rows(), sink.sums, sink);
      const Point end = stream->mark();
      others.signal(step);
      ASSERT_TRUE(reach(end).ok());
    }
    counting = false;
    this_thread_is_watched = true;
    EXPECT_EQ(own.value(), 20U);
    EXPECT_EQ(ours, 0);
    EXPECT_GT(inside_onednn, 0) << "the hook does not count";
  }
  AddressSpace space_;
  std::shared_ptr<Arena> arena_ = Arena::create(arena_id(Peer{0}, 1), 16 << 20);
};

TEST_F(CpuStream, AllocatesNothingOnItsThreadInAStep) {
  expect_no_allocation(dense_layers(DType::f32));
  expect_no_allocation(image_layers(DType::f32));
  expect_no_allocation(residual_layers(DType::f32));
  expect_no_allocation(sequence_layers(DType::f32));
}

TEST_F(CpuStream, AllocatesNothingOnItsThreadInAStepInBf16) {
  try {
    expect_no_allocation(dense_layers(DType::bf16));
    expect_no_allocation(image_layers(DType::bf16));
    expect_no_allocation(residual_layers(DType::bf16));
    expect_no_allocation(sequence_layers(DType::bf16));
  } catch (const Error& error) {
    if (error.code() != Code::unsupported) throw;
    GTEST_SKIP() << error.what();
  }
}

TEST_F(CpuStream, RefusesMoreWorkThanItHasRoomForAndTakesMoreOnceThatIsDone) {
  const auto device = make_cpu_device(space_, {});
  const auto stream = device->stream();
  Timeline& gate = space_.timeline(arena_->make_timeline());
  const Memory a = arena_->allocate(64), b = arena_->allocate(64);
  stream->wait({gate.id(), 1});
  for (int i = 0; i < 8191; ++i) stream->copy(a, b);
  EXPECT_THROW(stream->copy(a, b), Error);
  EXPECT_THROW(stream->mark(), Error);
  gate.signal(1);
  const auto deadline = Deadline::after(std::chrono::seconds{20});
  while (!deadline.passed()) {
    try {
      EXPECT_TRUE(reach(stream->mark()).ok());
      return;
    } catch (const Error&) {
      sched_yield();
    }
  }
  FAIL() << "the stream never had room again";
}

TEST_F(CpuStream, RefusesMoreOperandsThanItHasRoomForAndLosesNoneOfThatRoom) {
  const auto device = make_cpu_device(space_, {});
  const auto stream = device->stream();
  const Memory to = arena_->allocate(64);
  *space_.address_of<float>(to) = 0;
  const std::vector<Memory> many(24000, arena_->allocate(64)), too_many(40000, arena_->allocate(64));
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(stream->reduce(to, too_many), Error);
    stream->reduce(to, many);
    EXPECT_TRUE(reach(stream->mark()).ok());
  }
}

TEST_F(CpuStream, NamesTheLineOfAWaitThatIsOverdue) {
  const auto device = make_cpu_device(space_, {.wait_deadline = std::chrono::milliseconds{10}});
  const auto stream = device->stream();
  stream->wait({arena_->make_timeline(), 3});
  const Status status = reach(stream->mark());
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_THAT(std::string{status.text()}, HasSubstr("to reach 3"));
}

TEST_F(CpuStream, DoesAllItsWorkBeforeItIsGone) {
  const auto device = make_cpu_device(space_, {.may_spin = true});
  const Memory from = arena_->allocate(1 << 20), to = arena_->allocate(1 << 20);
  *space_.address_of<float>(from) = 4;
  Point end;
  {
    const auto stream = device->stream();
    for (int i = 0; i < 20; ++i) stream->copy(to, from);
    end = stream->mark();
  }
  EXPECT_EQ(space_.timeline(end.line).value(), end.value);
  EXPECT_EQ(*space_.address_of<float>(to), 4);
}

TEST_F(CpuStream, StaysOnTheCpusItIsGiven) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::uint32_t first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const auto device = make_cpu_device(space_, {.cpus = {first}});
  const auto stream = device->stream();
  EXPECT_TRUE(reach(stream->mark()).ok());
  EXPECT_THAT(device->traits().description, HasSubstr(text("on cpus ", first)));
  EXPECT_THROW(make_cpu_device(space_, {.cpus = {CPU_SETSIZE - 1}})->stream(), Error);
  EXPECT_THROW(make_cpu_device(space_, {.cpus = {100000}})->stream(), Error);
}

TEST_F(CpuStream, FlushesDenormalsToZero) {
  const auto device = make_cpu_device(space_, {});
  const auto stream = device->stream();
  const Memory a = arena_->allocate(64), b = arena_->allocate(64), to = arena_->allocate(64);
  *space_.address_of<float>(a) = 3e-39F;  // denormal
  *space_.address_of<float>(b) = 0;
  *space_.address_of<float>(to) = 1;
  stream->reduce(to, std::array{a, b});
  EXPECT_TRUE(reach(stream->mark()).ok());
  EXPECT_EQ(*space_.address_of<float>(to), 0);
}

/// Waits as lines do, and records its calls. The stream's thread writes, the test reads after it has finished.
struct NotedWait final : ActiveWait {
  void about_to_wait() noexcept override { calls.emplace_back("about"); }
  Status wait(Blocking& blocking, Timeline& line, std::uint64_t at, Deadline deadline, std::string_view what) override {
    calls.emplace_back("wait");
    volatile float tiny = 6e-39F;  // denormal
    tiny = tiny / 2;
    keeps_denormals = tiny > 0;
    ++waits;
    return line.wait(blocking, at, deadline, what);
  }
  std::vector<std::string> calls;
  bool keeps_denormals = false;
  std::atomic<int> waits{0};
};

class CpuStreamThatHasAWait : public CpuStream {
 protected:
  Timeline& private_line() { return space_.timeline(space_.make_private_timeline()); }
  /// Opens the gate that the stream waits at, once it does.
  void open(Timeline& gate) {
    const auto deadline = Deadline::after(std::chrono::seconds{20});
    while (waits_.waits == 0 && !deadline.passed()) sched_yield();
    gate.signal(1);
  }

  NotedWait waits_;
  std::unique_ptr<Device> device_ = make_cpu_device(space_, {.waits = &waits_});
  std::unique_ptr<Stream> stream_ = device_->stream();
};

TEST_F(CpuStreamThatHasAWait, AnnouncesWaitsThatFollowASignal) {
  Timeline& gate = private_line();
  Timeline& answer = private_line();
  stream_->wait({gate.id(), 1});
  const Point question = stream_->mark();
  stream_->wait({answer.id(), 1});
  const Point end = stream_->mark();
  open(gate);
  EXPECT_TRUE(reach(question).ok());
  answer.signal(1);
  EXPECT_TRUE(reach(end).ok());
  EXPECT_THAT(waits_.calls, ::testing::ElementsAre("wait", "about", "wait"));
}

TEST_F(CpuStreamThatHasAWait, WaitsAlsoWhenAnAnnouncedOneIsOverAlready) {
  Timeline& gate = private_line();
  stream_->wait({gate.id(), 1});
  const Point own = stream_->mark();
  stream_->wait(own);
  const Point end = stream_->mark();
  open(gate);
  EXPECT_TRUE(reach(end).ok());
  EXPECT_THAT(waits_.calls, ::testing::ElementsAre("wait", "about", "wait"));
}

TEST_F(CpuStreamThatHasAWait, AnnouncesNoWaitForALineThatOtherProcessesMove) {
  Timeline& gate = private_line();
  Timeline& shared = space_.timeline(arena_->make_timeline());
  stream_->wait({gate.id(), 1});
  const Point question = stream_->mark();
  stream_->wait({shared.id(), 1});
  const Point end = stream_->mark();
  open(gate);
  EXPECT_TRUE(reach(question).ok());
  shared.signal(1);
  EXPECT_TRUE(reach(end).ok());
  EXPECT_THAT(waits_.calls, ::testing::Not(::testing::Contains("about")));
}

TEST_F(CpuStreamThatHasAWait, LetsDenormalsBeInWhatItDoesMeanwhile) {
  Timeline& gate = private_line();
  stream_->wait({gate.id(), 1});
  const Point end = stream_->mark();
  open(gate);
  EXPECT_TRUE(reach(end).ok());
  EXPECT_TRUE(waits_.keeps_denormals);
}

constexpr std::chrono::milliseconds kAWhile{2};

/// Advances the clock.
void pass(std::chrono::nanoseconds span) {
  for (const auto deadline = Deadline::after(span); !deadline.passed();) sched_yield();
}

/// Its first wait takes three times the deadline of the stream, as if the process had been stopped meanwhile; the line
/// is signalled in the second one.
struct StoppedWait final : ActiveWait {
  void about_to_wait() noexcept override {}
  Status wait(Blocking& blocking, Timeline& line, std::uint64_t at, Deadline, std::string_view what) override {
    if (std::exchange(was_stopped, true)) line.signal(at);
    return line.wait(blocking, at, Deadline::after(std::chrono::milliseconds{60}), what);
  }
  bool was_stopped = false;
};

TEST_F(CpuStream, DoesNotCountTheTimeInWhichItsProcessWasStopped) {
  StoppedWait waits;
  const auto device = make_cpu_device(space_, {.wait_deadline = std::chrono::milliseconds{20}, .waits = &waits});
  const auto stream = device->stream();
  stream->wait({arena_->make_timeline(), 1});
  const Status status = reach(stream->mark());
  EXPECT_TRUE(status.ok()) << status.text();
}

TEST_F(CpuStream, CountsAWaitForOthersAsExchange) {
  const auto device = make_cpu_device(space_, {});
  const auto stream = device->stream();
  EXPECT_TRUE(reach(stream->mark()).ok());  // from now on it measures
  StreamTimes::Span counted{};
  // What passes before the thread notes that it has nothing to do, or that it waits, is not counted: on a busy machine
  // that may be nearly all.
  for (int attempt = 0; attempt < 20 && counted < kAWhile; ++attempt) {
    const StreamTimes before = stream->times();
    Timeline& gate = space_.timeline(arena_->make_timeline());
    stream->wait({gate.id(), 1});
    const Point end = stream->mark();
    pass(kAWhile);
    gate.signal(1);
    EXPECT_TRUE(reach(end).ok());
    EXPECT_TRUE(reach(stream->mark()).ok());  // the work before this mark is counted
    const StreamTimes now = stream->times();
    counted = now.exchange + now.idle - before.exchange - before.idle;
  }
  EXPECT_GE(counted, kAWhile);
  EXPECT_GT(stream->times().exchange, StreamTimes::Span::zero());
  EXPECT_EQ(stream->times().load, StreamTimes::Span::zero());
}

TEST(StreamMeter, CountsWaitsAndEmptyQueuesRightBeforeABatchAsLoading) {
  cpu::StreamMeter meter;
  meter.had_nothing();
  meter.did(cpu::SignalPoint{});
  pass(kAWhile);
  meter.had_nothing();
  pass(kAWhile);
  meter.did(cpu::AwaitPoint{});
  meter.did(cpu::RunProgram{nullptr, cpu::ProgramPart::forward_and_loss, 0, nullptr, nullptr});
  EXPECT_GE(meter.times().load, 2 * kAWhile);
  EXPECT_EQ(meter.times().idle, StreamTimes::Span::zero());
}

TEST(StreamMeter, TellsTheKindsOfWorkApart) {
  cpu::StreamMeter meter;
  meter.had_nothing();
  const auto spends = [&](const cpu::Operation& operation) {
    const StreamTimes before = meter.times();
    pass(kAWhile);
    meter.did(operation);
    return meter.times() - before;
  };
  const auto run = [](cpu::ProgramPart part) { return cpu::RunProgram{nullptr, part, 0, nullptr, nullptr}; };
  EXPECT_GE(spends(run(cpu::ProgramPart::forward_and_loss)).compute, kAWhile);
  EXPECT_GE(spends(run(cpu::ProgramPart::backward)).compute, kAWhile);
  EXPECT_GE(spends(cpu::Update{}).update, kAWhile);
  EXPECT_GE(spends(run(cpu::ProgramPart::evaluate)).evaluate, kAWhile);
  EXPECT_GE(spends(cpu::CopyBytes{}).copy, kAWhile);
  EXPECT_GE(spends(cpu::SumUp{}).exchange, kAWhile);
  pass(kAWhile);
  meter.had_nothing();
  EXPECT_GE(spends(cpu::CopyBytes{}).idle, kAWhile);
}

TEST(StreamMeter, BeginsWithTheFirstWork) {
  cpu::StreamMeter meter;
  pass(kAWhile);
  meter.had_nothing();
  meter.did(cpu::SignalPoint{});
  EXPECT_LT(meter.times().total(), kAWhile);
}

TEST_F(CpuStream, IsRefusedToADeviceWithoutThreadsOrDeadline) {
  EXPECT_THROW(make_cpu_device(space_, {.threads = 0}), Error);
  EXPECT_THROW(make_cpu_device(space_, {.wait_deadline = std::chrono::milliseconds{0}}), Error);
}

}  // namespace
}  // namespace troupe
