// Parameter groups of whole jobs in one process, below the session: what a plan makes of them, with the memory that
// ranks take for it, over shared arenas and over a transport, on simulated devices and on threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/session/communicators.hpp"
#include "devices/cpu/cpu_device.hpp"
#include "runtime/base/random.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/planning/planner.hpp"
#include "tests/support/batches.hpp"
#include "tests/support/plan_inputs.hpp"
#include "tests/transports/communicator_worlds.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::contracts {
namespace {

constexpr std::uint64_t kSteps = 7;  // all of them may be enqueued at once: StepExchange keeps the sums of 8
constexpr std::uint32_t kRows = 12;

Graph small_mlp(DType dtype) {
  return {"mlp",
          Shape{{9}},
          dtype,
          {{"a", Dense{40}},
           {"r", Relu{}},
           {"b", Dense{50}},
           {"s", Relu{}},
           {"c", Dense{3}},
           {"loss", SoftmaxCrossEntropy{}}}};
}

/// On what the ranks compute.
enum class Kind : std::uint8_t {
  fakes,    // simulated devices with a model of their own
  threads,  // reference devices
  far,      // simulated devices that compute the graph as reference devices do, in memory of their own
  cpu,
};
constexpr std::string_view name_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::fakes: return "Fakes";
    case Kind::threads: return "Threads";
    case Kind::far: return "SimulatedDeviceMemory";
    case Kind::cpu: return "Cpu";
  }
  return "";
}

struct Job {
  std::uint32_t ranks = 1;
  std::uint32_t nodes = 1;  // among which the ranks are dealt
  Kind kind = Kind::fakes;
  DType dtype = DType::f32;
  std::uint64_t seed = 0;
  std::uint64_t bucket_bytes = 0;  // 0: as planned
  std::uint64_t steps = kSteps;
  bool replays = false;  // steps are enqueued as programs where that can be
};

/// One rank and all its parts.
struct Member {
  AddressSpace space;
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Device> device;
  std::unique_ptr<HostCopies> copies;
  RankMemory memory;
  std::unique_ptr<DirectChannel> channel;
  std::vector<std::unique_ptr<const Compressor>> compressors;
  std::vector<std::vector<Layout::Entry>> scaled, vectors;  // by group, of rules with tensor norms
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<LaneLoop> loop;
  std::unique_ptr<Stream> exchange;  // the lane enqueues on it
  std::vector<std::unique_ptr<Stream>> node_streams;
  std::vector<Memory> batches;
  std::vector<Memory> weights_seen, averages_seen, images_seen;  // by step, where averages are kept
  Programs programs;
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<Stream>> sides;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::unique_ptr<StepExchange> steps;
  std::unique_ptr<Replica> replica;
};

/// Trains `settings` for kSteps steps.
class GroupedRun {
 public:
  GroupedRun(const Job& job, const Settings& settings)
      : job_(job), settings_(settings), graph_(small_mlp(job.dtype)), layout_(layout_of(settings, graph_)) {
    plan_ = make_plan(settings_, graph_, testing::plan_inputs(job_.ranks, job_.nodes));
    // Otherwise such a small model would have one bucket.
    for (GroupPlan& group : plan_.groups)
      if (job.bucket_bytes != 0) group.buckets = make_buckets(group.id, graph_, layout_, job.bucket_bytes);
    for (std::uint32_t r = 0; r < job.ranks; ++r) members_.push_back(std::make_unique<Member>());
    for (std::uint32_t r = 0; r < job.ranks; ++r) take_memory(r);
    for (std::uint32_t r = 0; r < job.ranks; ++r) connect(r);
    for (std::uint32_t r = 0; r < job.ranks; ++r) make_rank(r);
    if (job.nodes == 1) return;
    for (std::uint32_t r = 0; r < job.ranks; ++r)
      for (std::uint32_t other = 0; other < job.ranks; ++other)
        if (other != r) members_[r]->transport->connect(Peer{other}, members_[other]->transport->address());
    for (const auto& member : members_) {
      member->channel->open(*member->transport);
      member->loop->start();
    }
  }
  ~GroupedRun() {
    for (const auto& member : members_)
      for (const auto& communicator : member->communicators) communicator->abort({Code::aborted, "the test is over"});
    for (const auto& member : members_) {
      member->stream.reset();
      member->sides.clear();
    }
    for (const auto& member : members_) {
      if (member->loop) member->loop->stop(Deadline::after(std::chrono::seconds{10}));
      member->exchange.reset();
      member->node_streams.clear();
      member->loop.reset();
    }
    for (const auto& member : members_) member->transport.reset();
  }

  const Programs& programs(std::uint32_t rank) const { return members_[rank]->programs; }
  /// What a rank's replica read after each step, and what in an evaluation there: [step][element].
  std::vector<std::vector<float>> weights_seen(std::uint32_t rank) const {
    return seen<float>(rank, members_[rank]->weights_seen);
  }
  std::vector<std::vector<float>> averages_seen(std::uint32_t rank) const {
    return seen<float>(rank, members_[rank]->averages_seen);
  }
  std::vector<std::vector<std::uint16_t>> images_seen(std::uint32_t rank) const {
    return seen<std::uint16_t>(rank, members_[rank]->images_seen);
  }
  std::vector<float> start() const {
    std::vector<float> all(layout_.count_elements());
    fill_initial(graph_, layout_, job_.seed, all);
    return all;
  }

  /// Every rank's weights at the end: [rank][parameter][element].
  std::vector<std::vector<std::vector<float>>> weights() {
    std::vector<Point> ends(job_.ranks);
    for (std::uint64_t step = 0; step < job_.steps; ++step) {
      for (std::uint32_t r = 0; r < job_.ranks; ++r) ends[r] = enqueue(r, step);
      const bool far_ahead = (step + 1) % kSteps == 0;
      if (far_ahead && !drive(ends)) ADD_FAILURE() << "after step " << step;
    }
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      members_[r]->steps->join(*members_[r]->stream);
      ends[r] = members_[r]->stream->mark();
    }
    EXPECT_TRUE(drive(ends));
    std::vector<std::vector<std::vector<float>>> all(job_.ranks);
    for (std::uint32_t r = 0; r < job_.ranks; ++r) {
      members_[r]->copies->read(members_[r]->memory.replica.parameters, [&](std::span<const std::byte> bytes) {
        const float* first = numbers<float>(bytes).data();
        for (const Layout::Entry& entry : layout_.entries())
          all[r].emplace_back(first + entry.first, first + entry.first + entry.count);
      });
    }
    return all;
  }

 private:
  template <class Number>
  std::vector<std::vector<Number>> seen(std::uint32_t rank, const std::vector<Memory>& copies) const {
    std::vector<std::vector<Number>> all;
    for (const Memory& copy : copies) {
      const auto* first = copy.size_bytes == 0 ? nullptr : members_[rank]->space.address_of<Number>(copy);
      all.emplace_back(first, first + copy.size_bytes / sizeof(Number));
    }
    return all;
  }

  void take_memory(std::uint32_t r) {
    Member& member = *members_[r];
    const MemoryNeeds needs = memory_needs(plan_, graph_, {r});
    member.arena = Arena::create(arena_id(Peer{r}, 1), needs.arena_bytes() + (1 << 20));
    member.space.map(member.arena);
    member.device = device_of(r);
    member.copies = std::make_unique<HostCopies>(*member.device, member.space, arena_id(Peer{r}, 3),
                                                 std::chrono::milliseconds{30000});
    RankStore store(*member.arena);
    if (job_.kind == Kind::far) {
      const ArenaId own = arena_id(Peer{r}, 2);
      const Memory memory = member.device->allocate(own, MemoryKind::device, needs.device_bytes());
      store = RankStore(*member.arena, memory, member.device->ticket(own));
    }
    member.memory = allocate_rank_memory(store, plan_, {r});
    for (const Rank other : plan_.node_members({r})) {
      if (!plan_.shares_memory() || other.value >= r) continue;
      map(member, *members_[other.value]);
      map(*members_[other.value], member);
    }
  }

  static void map(Member& member, const Member& other) {
    member.space.map(other.arena);
    if (const auto ticket = find_device_ticket(member.space, *other.arena)) (void)member.device->import(*ticket);
  }

  std::unique_ptr<Device> device_of(std::uint32_t r) {
    AddressSpace& space = members_[r]->space;
    PlainWait waits;
    if (job_.kind == Kind::threads) return reference_devices()(space, r, waits);
    if (job_.kind == Kind::fakes) return fake_devices(job_.seed)(space, r, waits);
    if (job_.kind == Kind::cpu) return make_cpu_device(space, {});
    return std::make_unique<FakeDevice>(
        space, FakeOptions{
                   .seed = sub_key(job_.seed, r), .delay_one_in = 4, .simulated_memory = true, .computes_graph = true});
  }

  void connect(std::uint32_t r) {
    Member& member = *members_[r];
    const std::uint32_t holder = plan_.shares_memory() ? plan_.nodes[plan_.ranks[r].node].leader : r;
    join_node_memory(member.memory, plan_, *members_[holder]->arena);
    if (holder == r) {
      member.copies->write(member.memory.parameters, [&](std::span<std::byte> bytes) {
        const std::span<float> all = numbers<float>(bytes);
        fill_initial(graph_, layout_, job_.seed, all);
        member.copies->write(member.memory.half, [&](std::span<std::byte> image) {
          std::transform(all.begin(), all.end(), numbers<std::uint16_t>(image).begin(), to_bf16);
        });
      });
    }
    if (job_.nodes == 1) return;
    member.transport = network_.endpoint(Peer{r}, member.space);
    member.loop = std::make_unique<LaneLoop>(*member.transport, Lane::bulk, LaneOptions{}, text("bulk ", r));
    member.channel = std::make_unique<DirectChannel>();
  }

  std::unique_ptr<Communicator> communicator(std::uint32_t r, const GroupPlan& group) {
    Member& member = *members_[r];
    std::vector<ArenaId> arenas;
    for (const Rank other : plan_.node_members({r})) arenas.push_back(members_[other.value]->arena->id());
    if (job_.nodes > 1 && !member.exchange) member.exchange = member.device->stream();
    member.compressors.push_back(make_compressor(group.compression.kind));
    member.node_streams.push_back(plan_.levels.size() > 1 ? member.device->stream() : nullptr);
    return make_communicator({.space = member.space,
                              .plan = plan_,
                              .self = {r},
                              .view = ViewId{1},
                              .node_arenas = arenas,
                              .bulk = member.loop.get(),
                              .channel = member.channel.get(),
                              .exchange = member.exchange.get(),
                              .compressor = member.compressors.back().get(),
                              .node = member.node_streams.back().get()},
                             group, member.memory.groups[group.id.value]);
  }

  /// As the session completes it.
  ExchangeMemory memory_of(Member& member, const GroupPlan& group) {
    ExchangeMemory memory = member.memory.groups[group.id.value].own;
    if (!needs_tensor_norms(group.kind)) return memory;
    member.scaled.push_back(entries_of_tensors(graph_, layout_, group.id));
    member.vectors.push_back(entries_matching(graph_, layout_, {}, group.id, /*with_vectors=*/true));
    for (StripeMemory& part : memory.mine) {
      part.no_decay = member.vectors.back();
      part.scaled = member.scaled.back();
      part.squares = slice(member.memory.groups[group.id.value].squares, 0, part.scaled.size() * sizeof(TensorSquares));
    }
    return memory;
  }

  void make_rank(std::uint32_t r) {
    Member& member = *members_[r];
    member.stream = member.device->stream();
    std::vector<Exchange*> exchanges;
    std::vector<Bucket> buckets;
    for (const GroupPlan& group : plan_.groups) {
      member.communicators.push_back(communicator(r, group));
      member.sides.push_back(needs_of(group.policies).side_stream ? member.device->stream() : nullptr);
      member.exchanges.push_back(
          make_policy_exchange({.communicator = member.communicators.back().get(),
                                .rule = all_groups(settings_)[group.id.value].rule,
                                .policy = std::make_unique<PolicySequence>(group.policies, job_.ranks),
                                .buckets = group.buckets,
                                .memory = memory_of(member, group),
                                .rate = RateSchedule(all_groups(settings_)[group.id.value].rule.rate, settings_.rate,
                                                     {1000, job_.steps * job_.ranks * kRows, kRows}),
                                .side = member.sides.back().get(),
                                .average_begins = true}));
      exchanges.push_back(member.exchanges.back().get());
      buckets.insert(buckets.end(), group.buckets.begin(), group.buckets.end());
    }
    buckets = in_backward_order(graph_, layout_, std::move(buckets));
    member.steps = std::make_unique<StepExchange>(ViewId{1}, member.space, member.memory.sums, member.memory.totals,
                                                  std::move(exchanges), buckets.size());
    const BatchLayout batch{kRows, graph_.fields()};
    member.replica = member.device->compile(graph_, layout_, batch, buckets, member.memory.replica);
    for (std::uint64_t step = 0; step < kSteps; ++step) member.batches.push_back(make_batch(r, step, batch));
  }

  /// A rank's rows of a step; some steps have fewer.
  Memory make_batch(std::uint32_t r, std::uint64_t step, const BatchLayout& layout) {
    Member& member = *members_[r];
    const Memory memory = member.arena->allocate(layout.size_bytes());
    std::byte* at = member.space.address(memory);
    const std::uint64_t key = sub_key(sub_key(job_.seed, 50 + r), step);
    for (std::uint64_t i = 0; i < layout.rows() * layout.entry(kImage).row_elements(); ++i) {
      const auto value = static_cast<float>(random_normal(key, i));
      if (graph_.dtype() == DType::f32) reinterpret_cast<float*>(at)[i] = value;
      if (graph_.dtype() == DType::bf16) reinterpret_cast<std::uint16_t*>(at)[i] = to_bf16(value);
    }
    auto* labels = testing::labels_in(layout, at);
    for (std::uint32_t row = 0; row < layout.rows(); ++row)
      labels[row] = static_cast<std::int32_t>(random_below(sub_key(key, 1), row, 3));
    return memory;
  }

  Point enqueue(std::uint32_t r, std::uint64_t step) {
    Member& member = *members_[r];
    Point end;
    const auto work = [&] {
      const StepFacts facts{{step}, step * job_.ranks * kRows, job_.ranks * kRows, step + 1 == job_.steps, step == 3};
      const Memory sums = member.steps->begin(*member.stream, facts, {});
      const auto rows = static_cast<std::uint32_t>(kRows - random_below(job_.seed, step, 3));
      member.replica->step(*member.stream, member.batches[step % kSteps], rows, sums, *member.steps);
      end = member.steps->commit(*member.stream);
    };
    if (job_.replays)
      member.stream->enqueue(member.programs, work);
    else
      work();
    if (settings_.rule.ema_decay == 0) return end;
    member.steps->join(*member.stream);
    member.weights_seen.push_back(copy_of_weights(member));
    member.steps->show_evaluated(*member.stream);
    member.averages_seen.push_back(copy_of_weights(member));
    member.images_seen.push_back(copy_of(member, member.memory.replica.half));
    member.steps->hide_evaluated(*member.stream);
    return member.stream->mark();
  }

  static Memory copy_of(Member& member, const Memory& from) {
    if (from.size_bytes == 0) return {};
    const Memory to = member.arena->allocate(from.size_bytes);
    member.stream->copy(to, from);
    return to;
  }
  static Memory copy_of_weights(Member& member) { return copy_of(member, member.memory.replica.parameters); }

  bool drive(const std::vector<Point>& ends) {
    const Deadline deadline = Deadline::after(std::chrono::seconds{60});
    for (;;) {
      bool all = true;
      for (std::uint32_t r = 0; r < job_.ranks; ++r) {
        const Timeline& line = members_[r]->space.timeline(ends[r].line);
        EXPECT_TRUE(line.status().ok()) << line.status().text();
        if (!line.status().ok() || deadline.passed()) return false;
        all = all && line.value() >= ends[r].value;
      }
      if (all) return true;
      bool driven = false;
      for (const auto& member : members_)
        if (auto* fake = dynamic_cast<FakeDevice*>(member->device.get())) driven |= fake->run_one();
      if (!driven) std::this_thread::yield();
    }
  }

  const Job job_;
  const Settings settings_;
  const Graph graph_;
  const Layout layout_;
  Plan plan_;
  LoopbackNetwork network_;
  std::vector<std::unique_ptr<Member>> members_;
};

std::vector<std::vector<std::vector<float>>> weights_of(const Job& job, const Settings& settings) {
  return GroupedRun{job, settings}.weights();
}

Settings settings_of(PolicySettings policy, Rule rule = {.kind = RuleKind::adam, .rate = 0.01}) {
  Settings settings;
  settings.data.batch = kRows;
  settings.update = policy;
  settings.rule = rule;
  return settings;
}

/// The same with groups of their own for biases and for the last layer's weight, which are updated alike.
Settings in_groups(Settings settings) {
  for (const auto& [name, match] : {std::pair{"biases", "*.bias"}, {"last", "c.weight"}})
    settings.groups.push_back({name, {match}, settings.update, settings.compression, settings.switches, settings.rule});
  return settings;
}

std::vector<Job> jobs(std::initializer_list<Kind> kinds) {
  struct World {
    std::uint32_t ranks, nodes;
  };
  std::vector<Job> all;
  for (const World world : {World{1, 1}, {2, 1}, {3, 1}, {2, 2}, {3, 3}, {4, 2}, {5, 2}})
    for (const Kind kind : kinds)
      for (const DType dtype : {DType::f32, DType::bf16})
        all.push_back({world.ranks, world.nodes, kind, dtype, all.size(), world.nodes > 1 ? 2000u : 0u});
  return all;
}

std::string job_name(const ::testing::TestParamInfo<Job>& info) {
  const Job& job = info.param;
  return text(job.ranks, "RanksOn", job.nodes, "Nodes", name_of(job.kind), name_of(job.dtype));
}

class Groups : public ::testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, Groups, ::testing::ValuesIn(jobs({Kind::fakes, Kind::threads})), job_name);

/// Each gradient of a simulated device depends on its own weight and on the batch alone.
class SimulatedGroups : public ::testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, SimulatedGroups, ::testing::ValuesIn(jobs({Kind::fakes})), job_name);

/// The host can access no gradient, parameter or sum of such a device.
class FarMemoryGroups : public ::testing::TestWithParam<Job> {};
INSTANTIATE_TEST_SUITE_P(Jobs, FarMemoryGroups, ::testing::ValuesIn(jobs({Kind::far})), job_name);

TEST_P(FarMemoryGroups, AreTrainedToTheBitsOfGroupsInTheHostsMemory) {
  Job near = GetParam();
  near.kind = Kind::threads;
  const std::vector<PolicySettings> policies{
      {},
      {.kind = PolicyKind::double_buffered},
      {.kind = PolicyKind::local_sgd, .every_steps = 3},
      {.kind = PolicyKind::block_momentum, .block_samples = 3 * kRows * GetParam().ranks, .reset_momentum = false},
      {.kind = PolicyKind::diloco, .every_steps = 3}};
  for (const PolicySettings& policy : policies) {
    SCOPED_TRACE(to_string(policy));
    const Settings settings = in_groups(settings_of(policy));
    ASSERT_EQ(weights_of(GetParam(), settings), weights_of(near, settings));
  }
  for (const Rule& rule : {Rule{.kind = RuleKind::momentum, .rate = 0.1, .clip_norm = 0.5},
                           Rule{.kind = RuleKind::rmsprop_momentum, .rate = 0.01},
                           Rule{.kind = RuleKind::lars, .rate = 1, .weight_decay = 0.01, .trust = 0.05},
                           Rule{.kind = RuleKind::lamb, .rate = 0.05, .weight_decay = 0.01}}) {
    SCOPED_TRACE(to_string(rule));
    Settings settings = settings_of({}, rule);
    settings.compression.kind = Compression::bf16;
    ASSERT_EQ(weights_of(GetParam(), settings), weights_of(near, settings));
    settings.compression.error_feedback = true;
    ASSERT_EQ(weights_of(GetParam(), settings), weights_of(near, settings));
  }
}

TEST_P(Groups, MoveTensorsByTheirNormsAlikeOnOneNodeAndOnSeveral) {
  Job one = GetParam();
  one.nodes = 1;
  one.bucket_bytes = 0;
  const std::vector<PolicySettings> policies{
      {},
      {.kind = PolicyKind::sync, .accumulate = 2},
      {.kind = PolicyKind::double_buffered},
      {.kind = PolicyKind::local_sgd, .distributed_after = 2 * kRows, .every_steps = 3},
      {.kind = PolicyKind::block_momentum, .block_samples = 3 * kRows * GetParam().ranks, .reset_momentum = false}};
  for (const Rule& rule : {Rule{.kind = RuleKind::lars, .rate = 1, .weight_decay = 0.01, .trust = 0.05},
                           Rule{.kind = RuleKind::lamb, .rate = 0.01, .weight_decay = 0.01, .clip_norm = 0}}) {
    for (const PolicySettings& policy : policies) {
      SCOPED_TRACE(text(to_string(rule), ", ", to_string(policy)));
      const Settings settings = settings_of(policy, rule);
      const auto found = weights_of(GetParam(), settings), wanted = weights_of(one, settings);
      for (std::size_t r = 1; r < found.size(); ++r) ASSERT_EQ(found[r], found[0]) << "rank " << r;
      double off = 0, all = 0;
      for (std::size_t p = 0; p < wanted[0].size(); ++p) {
        for (std::size_t i = 0; i < wanted[0][p].size(); ++i) {
          off += std::pow(found[0][p][i] - wanted[0][p][i], 2);
          all += std::pow(wanted[0][p][i], 2);
        }
      }
      ASSERT_GT(all, 0);
      ASSERT_LT(std::sqrt(off / all), GetParam().dtype == DType::f32 ? 1e-4 : 0.02);
    }
  }
}

/// a += (1 - d) (w - a) for each update, written a second time.
std::vector<float> averaged(std::vector<float> average, const std::vector<float>& weights, double decay,
                            std::uint64_t update) {
  const double least = (1.0 + static_cast<double>(update)) / (10.0 + static_cast<double>(update));
  const auto weight = static_cast<float>(1 - (least < decay ? least : decay));
  for (std::size_t i = 0; i < average.size(); ++i) average[i] += weight * (weights[i] - average[i]);
  return average;
}

TEST_P(Groups, ShowTheAverageOfTheWeightsToEvaluationsAndTrainAsIfThereWereNone) {
  struct Averaged {
    PolicySettings policy;
    Rule rule;
    std::uint64_t every = 1;  // steps of an update
    std::uint64_t late = 0;   // steps after which an update is seen
  };
  const Rule adam{.kind = RuleKind::adam, .rate = 0.01};
  const std::vector<Averaged> cases{
      {{}, adam},
      {{.kind = PolicyKind::sync, .accumulate = 2}, {.kind = RuleKind::sgd, .rate = 0.1}, 2},
      {{.kind = PolicyKind::double_buffered}, adam, 1, 1},
      {{}, {.kind = RuleKind::lamb, .rate = 0.01, .weight_decay = 0.01, .clip_norm = 0.5}}};
  for (const Averaged& one : cases) {
    for (const bool rounded : {false, true}) {
      if (rounded && (&one != &cases.front() || GetParam().nodes == 1)) continue;
      SCOPED_TRACE(text(to_string(one.policy), ", ", to_string(one.rule), rounded ? ", rounded" : ""));
      Settings settings = settings_of(one.policy, one.rule);
      if (rounded) settings.compression = {.kind = Compression::bf16, .error_feedback = true};
      if (one.rule.clip_norm == 0) settings = in_groups(settings);
      const auto plain = weights_of(GetParam(), settings);
      constexpr double kDecay = 0.4;  // that of the updates from the fifth on
      settings.rule.ema_decay = kDecay;
      for (Settings::Group& group : settings.groups) group.rule.ema_decay = kDecay;
      Job job = GetParam();
      GroupedRun run{job, settings};
      ASSERT_EQ(run.weights(), plain);
      const auto weights = run.weights_seen(0), averages = run.averages_seen(0);
      std::vector<float> expected = run.start();
      // Step 3 also ends the round in progress, so from then on not all weights are visible there.
      const std::uint64_t end = one.late == 0 ? job.steps : 2;
      for (std::uint64_t step = one.every - 1; step < end; step += one.every) {
        expected = averaged(expected, weights[step + one.late], kDecay, (step + 1) / one.every);
        ASSERT_EQ(averages[step], expected) << "step " << step;
      }
      for (std::uint32_t r = 0; r < job.ranks; ++r) {
        ASSERT_EQ(run.averages_seen(r), averages) << "rank " << r;
        for (std::uint64_t step = 0; step < job.steps && job.dtype == DType::bf16; ++step) {
          std::vector<std::uint16_t> image;
          for (const float value : averages[step]) image.push_back(to_bf16(value));
          ASSERT_EQ(run.images_seen(r)[step], image) << "rank " << r << ", step " << step;
        }
      }
    }
  }
}

TEST_P(Groups, ThatAreUpdatedAlikeHaveTheBitsOfOneGroup) {
  const std::vector<PolicySettings> policies{
      {},
      {.kind = PolicyKind::sync, .accumulate = 3},
      {.kind = PolicyKind::double_buffered},
      {.kind = PolicyKind::local_sgd, .every_steps = 2},
      {.kind = PolicyKind::local_sgd, .distributed_after = 2 * kRows, .every_steps = 3},
      {.kind = PolicyKind::block_momentum, .block_samples = 3 * kRows * GetParam().ranks, .reset_momentum = false}};
  for (const PolicySettings& policy : policies) {
    SCOPED_TRACE(to_string(policy));
    const Settings settings = settings_of(policy);
    ASSERT_EQ(weights_of(GetParam(), in_groups(settings)), weights_of(GetParam(), settings));
  }
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kReplayedSteps = 150;  // a tenth as fast
#else
constexpr std::uint64_t kReplayedSteps = 1000;
#endif

/// A step that comes again is one piece of work, with what differs in a step block.
class ReplayedGroups : public ::testing::TestWithParam<Job> {};
std::vector<Job> replayed_jobs() {
  std::vector<Job> all;
  for (const Kind kind : {Kind::cpu, Kind::far})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [ranks, nodes] : {std::pair{1U, 1U}, {2U, 1U}, {2U, 2U}, {4U, 2U}}) {
        if (kind == Kind::cpu && !cpu_device_available()) continue;
        if (kind == Kind::far && (dtype == DType::bf16 || ranks > 2)) continue;  // slow
        all.push_back({ranks, nodes, kind, dtype, all.size(), nodes > 1 ? 2000U : 0U, kReplayedSteps});
      }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Jobs, ReplayedGroups, ::testing::ValuesIn(replayed_jobs()), job_name);

TEST_P(ReplayedGroups, HaveTheBitsOfGroupsWhoseStepsAreEnqueuedPieceByPiece) {
  const std::vector<PolicySettings> policies{
      {},
      {.kind = PolicyKind::double_buffered},
      {.kind = PolicyKind::local_sgd, .every_steps = 3},
      {.kind = PolicyKind::block_momentum, .block_samples = 5 * kRows * GetParam().ranks, .reset_momentum = false}};
  for (const PolicySettings& policy : policies) {
    SCOPED_TRACE(to_string(policy));
    Settings settings = settings_of(policy);
    settings.rate.shape = RateShape::cosine;
    settings.rate.warmup = {.samples = 500, .epochs = 0};
    if (policy.kind == PolicyKind::local_sgd || GetParam().ranks > 2)
      settings.compression = {Compression::bf16, /*error_feedback=*/true};
    Job replayed = GetParam();
    replayed.replays = true;
    GroupedRun run{replayed, settings};
    ASSERT_EQ(run.weights(), weights_of(GetParam(), settings));
    for (std::uint32_t r = 0; r < GetParam().ranks; ++r) {
      EXPECT_GE(run.programs(r).replayed(), GetParam().steps * 9 / 10) << "rank " << r;
      EXPECT_LE(run.programs(r).recorded(), 20U) << "rank " << r;
    }
  }
}

TEST_P(SimulatedGroups, UnderDifferentPoliciesEachMoveAsIfAllWereUnderTheirs) {
  const Settings sync = settings_of({}, {.kind = RuleKind::momentum, .rate = 0.05});
  const Settings local = settings_of({.kind = PolicyKind::local_sgd, .every_steps = 3}, {.kind = RuleKind::adam});
  const Settings delayed = settings_of({.kind = PolicyKind::double_buffered}, {.kind = RuleKind::sgd, .rate = 0.1});
  Settings mixed = sync;
  mixed.groups = {{"biases", {"*.bias"}, local.update, {}, {}, local.rule},
                  {"last", {"c.weight"}, delayed.update, {}, {}, delayed.rule}};
  const auto got = weights_of(GetParam(), mixed);
  const auto of_sync = weights_of(GetParam(), sync), of_local = weights_of(GetParam(), local),
             of_delayed = weights_of(GetParam(), delayed);
  for (std::uint32_t r = 0; r < GetParam().ranks; ++r) {
    for (std::size_t p = 0; p < 6; ++p) {
      const auto& expected = p % 2 == 1 ? of_local : p == 4 ? of_delayed : of_sync;
      ASSERT_EQ(got[r][p], expected[r][p]) << "rank " << r << ", parameter " << p;
    }
  }
}

TEST(SwitchedGroups, FinishARoundWithTheOuterMomentumThatItBeganWith) {
  for (const PolicyKind next : {PolicyKind::diloco, PolicyKind::sync}) {
    Settings settings =
        settings_of({.kind = PolicyKind::block_momentum, .block_samples = 3 * kRows * 2, .reset_momentum = false});
    PolicySwitch then;
    then.at = 3;
    then.policy.kind = next;
    then.policy.every_steps = next == PolicyKind::diloco ? 3 : 1;
    settings.switches = {then};
    const auto one_node = weights_of({.ranks = 2, .nodes = 1, .kind = Kind::threads, .seed = 3}, settings);
    const auto two_nodes =
        weights_of({.ranks = 2, .nodes = 2, .kind = Kind::threads, .seed = 3, .bucket_bytes = 2000}, settings);
    EXPECT_EQ(two_nodes, one_node) << name_of(next);
  }
}

TEST_P(Groups, WhoseGradientsAreRoundedOnTheirWayMoveOnlyALittleApart) {
  Settings exact = settings_of({}, {.kind = RuleKind::sgd, .rate = 0.1});
  Settings rounded = exact;
  rounded.groups = {{"weights", {"*.weight"}, exact.update, {Compression::bf16}, {}, exact.rule}};
  const auto expected = weights_of(GetParam(), exact), got = weights_of(GetParam(), rounded);
  double off = 0, moved = 0;
  for (std::size_t p = 0; p < 6; ++p) {
    for (std::uint32_t r = 1; r < GetParam().ranks; ++r) ASSERT_EQ(got[r][p], got[0][p]) << "rank " << r;
    for (std::size_t i = 0; i < got[0][p].size(); ++i) {
      off = std::max<double>(off, std::abs(got[0][p][i] - expected[0][p][i]));
      moved = std::max<double>(moved, std::abs(expected[0][p][i]));
    }
  }
  if (GetParam().nodes == 1) {
    EXPECT_EQ(got, expected) << "in an arena nothing travels";
  } else {
    EXPECT_GT(off, 0);
    EXPECT_LT(off, moved / 100);
  }
}

/// Mean distance of rank 0's weights.
double distance(const std::vector<std::vector<std::vector<float>>>& a,
                const std::vector<std::vector<std::vector<float>>>& b) {
  double sum = 0, count = 0;
  for (std::size_t p = 0; p < a[0].size(); ++p)
    for (std::size_t i = 0; i < a[0][p].size(); ++i, ++count) sum += std::abs(double{a[0][p][i]} - b[0][p][i]);
  return sum / count;
}

TEST(RoundedGroups, ThatKeepWhatRoundingTakesAwayStayCloserToThoseThatRoundNothing) {
  const Job job{.ranks = 3, .nodes = 3, .kind = Kind::threads, .seed = 5, .bucket_bytes = 2000, .steps = 100};
  const Settings exact = settings_of({}, {.kind = RuleKind::sgd, .rate = 0.01});
  Settings rounded = exact, kept = exact;
  rounded.compression = {Compression::bf16};
  kept.compression = {Compression::bf16, /*error_feedback=*/true};
  const auto expected = weights_of(job, exact);
  const double without = distance(weights_of(job, rounded), expected), with = distance(weights_of(job, kept), expected);
  EXPECT_GT(with, 0);
  EXPECT_LT(with, without / 2);
}

TEST_P(Groups, WithARateOfZeroStayWhereTheyStarted) {
  Settings settings = settings_of({});
  Rule still = settings.rule;
  still.rate = 0;
  settings.groups = {{"first", {"a.*"}, settings.update, {}, {}, still}};
  const auto got = weights_of(GetParam(), settings);
  const Graph graph = small_mlp(GetParam().dtype);
  const Layout layout{graph};
  std::vector<float> start(layout.count_elements());
  fill_initial(graph, layout, GetParam().seed, start);
  for (std::size_t p = 0; p < 6; ++p) {
    const auto [first, count] = layout.entries()[p];
    const std::vector<float> was(start.begin() + static_cast<std::ptrdiff_t>(first),
                                 start.begin() + static_cast<std::ptrdiff_t>(first + count));
    EXPECT_EQ(got[0][p] == was, p < 2) << "parameter " << p;
  }
}

}  // namespace
}  // namespace troupe::contracts
