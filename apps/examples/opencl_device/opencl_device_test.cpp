// Tests that the contract suites do not contain: gradients compared with the f64 oracle's, faults that kernels find,
// and updates in processes that are killed.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "devices/reference/reference_device.hpp"
#include "opencl_device.hpp"
#include "tests/contracts/device_world.hpp"

namespace troupe::contracts {

DeviceCase opencl_case();

namespace {

class OpenClDevice : public DeviceWorld {
 protected:
  struct NoSink final : BucketSink {
    void ready(const Bucket&, Stream&) noexcept override {}
  };
  std::vector<float> gradients(Device& device, const Graph& graph, const BatchLayout& rows, const Memory& batch) {
    const Layout layout{graph};
    std::vector<float> parameters(layout.count_elements());
    fill_initial(graph, layout, 5, parameters);
    const ReplicaMemory memory{put(parameters), {}, put(std::vector<float>(parameters.size()))};
    const auto replica = device.compile(graph, layout, rows, make_buckets(GroupId{}, graph, layout, 0), memory);
    const auto stream = device.stream();
    NoSink sink;
    replica->step(*stream, batch, rows.rows(), put_sums(StepSums{}), sink);
    finish(*stream);
    return get(memory.gradients);
  }
};
INSTANTIATE_TEST_SUITE_P(Own, OpenClDevice, ::testing::Values(opencl_case()), case_name);

const Graph kRagged{
    "ragged",
    Shape{{50}},
    DType::f32,
    {{"r", Relu{}}, {"a", Dense{37}}, {"s", Relu{}}, {"b", Dense{10}}, {"loss", SoftmaxCrossEntropy{}}}};
const BatchLayout kRows{7, kRagged.fields()};

TEST_P(OpenClDevice, ComputesTheGradientsOfTheReferenceDevice) {
  const Memory batch = arena()->allocate(kRows.size_bytes());
  write(slice(batch, 0, 350 * sizeof(float)), random_floats(1, 350));
  auto* labels = reinterpret_cast<std::int32_t*>(space().address(batch) + kRows.entry(kLabel).offset);
  for (std::int32_t row = 0; row < 7; ++row) labels[row] = row == 3 ? -1 : row;
  const std::vector<float> found = gradients(device(), kRagged, kRows, batch);
  const std::vector<float> wanted = gradients(*make_reference_device(space()), kRagged, kRows, batch);
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 1e-5) << i;
}

TEST_P(OpenClDevice, EndsWithTheReasonWhenALabelIsNoClass) {
  const Layout layout{kRagged};
  const Memory parameters = put(std::vector<float>(layout.count_elements()));
  const Memory batch = arena()->allocate(kRows.size_bytes());
  reinterpret_cast<std::int32_t*>(space().address(batch) + kRows.entry(kLabel).offset)[2] = 10;
  const auto replica = device().compile(kRagged, layout, kRows, make_buckets(GroupId{}, kRagged, layout, 0),
                                        {parameters, {}, put(std::vector<float>(layout.count_elements()))});
  const auto stream = device().stream();
  const Point before = stream->mark();
  NoSink sink;
  replica->step(*stream, batch, kRows.rows(), put_sums(StepSums{}), sink);
  const Memory to = put({0});
  stream->copy(to, put({1}));
  const Status status = reach(stream->mark());
  EXPECT_EQ(status.code(), Code::corrupt);
  EXPECT_NE(status.text().find("row 2 of a batch has label 10"), status.text().npos) << status.text();
  EXPECT_EQ(get(to), std::vector<float>{0});
  EXPECT_TRUE(reach(before).ok());
}

/// A stripe of AdamW with its contributions, all in one arena; plain data.
struct Updated {
  static constexpr std::uint64_t kCount = 150 * UpdateJournal::kBlockElements + 100;
  static constexpr std::size_t kStates = 2;
  StripeMemory stripe;
  std::array<Memory, 6> contributions;
  Memory total;

  explicit Updated(Arena& arena) {
    stripe.stripe = {GroupId{}, Rank{}, 0, kCount};
    for (Memory* part : {&stripe.parameters, &stripe.state[0], &stripe.state[1]}) *part = take(arena);
    stripe.journal = arena.allocate(journal_bytes(kStates));
    for (Memory& part : contributions) part = take(arena);
    total = arena.allocate(sizeof(StepSums));
  }
  static Memory take(Arena& arena) { return arena.allocate(kCount * sizeof(float)); }
  void fill(AddressSpace& space) const {
    space.address_of<StepSums>(total)->samples = 12;
    std::fill_n(space.address(stripe.journal), sizeof(UpdateJournal), std::byte{});
    for (std::uint64_t i = 0; i < kCount; ++i) {
      // Every fourth gradient is so small that its square is a denormal.
      for (std::size_t c = 0; c < contributions.size(); ++c)
        space.address_of<float>(contributions[c])[i] =
            static_cast<float>(random_normal(sub_key(7, c), i)) * (i % 4 == 0 ? 1e-20F : 1.0F);
      space.address_of<float>(stripe.parameters)[i] = static_cast<float>(random_normal(1, i));
      for (std::size_t s = 0; s < kStates; ++s) space.address_of<float>(stripe.state[s])[i] = 0;
    }
  }
  void enqueue(Stream& stream, std::uint64_t number) const {
    stream.update(rule_step({.kind = RuleKind::adamw, .weight_decay = 0.1}, number), number, stripe, contributions,
                  total);
  }
};

TEST_P(OpenClDevice, RefusesTheJournalOfALaterUpdate) {
  const Updated updated{*arena()};
  updated.fill(space());
  const auto stream = device().stream();
  updated.enqueue(*stream, 5);
  finish(*stream);
  updated.enqueue(*stream, 4);
  EXPECT_EQ(reach(stream->mark()).code(), Code::corrupt);
}

/// A process that updates without end, for the test below; without that test's environment it does nothing.
TEST(OpenClChild, UpdatesUntilItIsKilled) {
  const char* const told = std::getenv("OPENCL_TEST_TICKET");
  if (told == nullptr) GTEST_SKIP() << "has no parent";
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ArenaTicket ticket;
  const std::string_view hex{told};
  ASSERT_EQ(hex.size(), 2 * sizeof ticket);
  for (std::size_t i = 0; i < sizeof ticket; ++i)
    reinterpret_cast<unsigned char*>(&ticket)[i] =
        static_cast<unsigned char>(std::stoi(std::string{hex.substr(2 * i, 2)}, nullptr, 16));
  AddressSpace space;
  const auto arena = Arena::open(ticket);
  space.map(arena);
  const auto device = opencl::make_opencl_device(space, std::chrono::seconds{20});
  const auto stream = device->stream();
  const Updated updated = *space.address_of<const Updated>(*arena->find("updated"));
  Blocking blocking = Blocking::on_thread("child");
  Point last;
  for (std::uint64_t number = std::strtoull(std::getenv("OPENCL_TEST_NUMBER"), nullptr, 10);; ++number) {
    updated.enqueue(*stream, number);
    const Point now = stream->mark();  // one update is enqueued while another runs
    ASSERT_TRUE(
        space.timeline(now.line).wait(blocking, last.value, Deadline::after(std::chrono::seconds{20}), "").ok());
    last = now;
  }
}

class KilledUpdate : public OpenClDevice {
 protected:
  std::uint64_t found(const Updated& updated) {
    return std::atomic_ref{space().address_of<UpdateJournal>(updated.stripe.journal)->progress}.load() >> 24;
  }
  /// Starts a process that begins with update `number`, and kills it `moment` after its start.
  void update_and_kill(const Updated& updated, std::uint64_t number, std::chrono::nanoseconds moment) {
    std::string hex;
    const ArenaTicket ticket = arena()->ticket();
    for (std::size_t i = 0; i < sizeof ticket; ++i) {
      constexpr const char* kDigits = "0123456789abcdef";
      const unsigned char byte = reinterpret_cast<const unsigned char*>(&ticket)[i];
      hex += {kDigits[byte / 16], kDigits[byte % 16]};
    }
    setenv("OPENCL_TEST_TICKET", hex.c_str(), 1);
    setenv("OPENCL_TEST_NUMBER", std::to_string(number).c_str(), 1);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      execl("/proc/self/exe", "child", "--gtest_filter=OpenClChild.*", "--gtest_brief=1", nullptr);
      _exit(127);
    }
    const Deadline deadline = Deadline::after(std::chrono::seconds{60});
    while (found(updated) < number && !deadline.passed()) std::this_thread::yield();
    const Deadline end = Deadline::after(moment);
    while (!end.passed()) std::this_thread::yield();
    kill(child, SIGKILL);
    int how = 0;
    ASSERT_EQ(waitpid(child, &how, 0), child);
    ASSERT_TRUE(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL) << how;
    ASSERT_GE(found(updated), number);
  }
};
INSTANTIATE_TEST_SUITE_P(Own, KilledUpdate, ::testing::Values(opencl_case()), case_name);

TEST_P(KilledUpdate, IsFinishedByAnotherDeviceWithTheSameBits) {
  const auto reference = make_reference_device(space());
  const auto stream = reference->stream();
  const Updated killed{*arena()}, undisturbed{*arena()};
  killed.fill(space());
  undisturbed.fill(space());
  arena()->publish("updated", put(std::span{&killed, 1}));
  std::uint64_t done = 0;
  for (std::uint64_t round = 0; round < 30; ++round) {
    update_and_kill(killed, done + 1, std::chrono::nanoseconds{random_below(3, round, 2'000'000)});
    if (HasFatalFailure()) return;
    killed.enqueue(*stream, found(killed));
    while (done < found(killed)) undisturbed.enqueue(*stream, ++done);
    finish(*stream);
    ASSERT_EQ(get(killed.stripe.parameters), get(undisturbed.stripe.parameters)) << "round " << round;
    for (std::size_t s = 0; s < Updated::kStates; ++s)
      ASSERT_EQ(get(killed.stripe.state[s]), get(undisturbed.stripe.state[s])) << s;
  }
}

}  // namespace
}  // namespace troupe::contracts
