// Synchronized batch norm: ranks with parts of a batch compute what one rank computes with all of it.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/exchange/communicator_gather.hpp"
#include "runtime/model/layer_list.hpp"
#include "tests/transports/communicator_worlds.hpp"
#include "tests/transports/cpu_ranks.hpp"
#include "tests/transports/loopback_ends.hpp"

namespace troupe::contracts {
namespace {

enum class Means : std::uint8_t { arena, direct, nodes };

struct NormCase {
  Means means;
  std::uint64_t seed;
  DType dtype;
};
void PrintTo(const NormCase& given, std::ostream* out) {
  *out << static_cast<int>(given.means) << " seed " << given.seed << ' ' << name_of(given.dtype);
}

struct NoSink final : BucketSink {
  void ready(const Bucket&, Stream&) noexcept override {}
};

/// A small network, by the seed with layouts in blocks of channels; with and without a ReLU behind a norm.
Graph normalized(std::uint64_t seed, bool synchronized, DType dtype) {
  const bool wide = seed % 3 == 0 && dtype == DType::f32;
  const std::uint32_t channels = wide ? 32 : 3 + static_cast<std::uint32_t>(seed % 4);
  LayerList net;
  const BatchNorm norm{.synchronized = synchronized};
  net.add(Conv2d{.filters = channels, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(norm);
  net.add(Relu{});
  net.add(Conv2d{.filters = channels, .kernel = {3, 3}, .padding = {1, 1}});
  net.add(norm);
  net.add(Tanh{});
  net.add(GlobalAveragePool{});
  net.add(Dense{6});
  net.add(norm);
  net.add(Dense{4});
  return {"normalized", wide ? Shape{{16, 16, 2}} : Shape{{8, 12, 2}}, dtype, net.finish()};
}

/// One rank's replica and its memory.
struct Member {
  ReplicaMemory memory;
  Memory batch, sums;
  std::unique_ptr<RankGather> gather;
  std::unique_ptr<Replica> replica;
  std::uint32_t rows = 0;
};

class SynchronizedNorm : public ::testing::TestWithParam<NormCase> {
 protected:
  static constexpr std::uint32_t kMostRows = 6;  // of a rank

  void SetUp() override {
    if (!cpu_device_available()) GTEST_SKIP() << "this build has no CPU device";
    const NormCase& given = GetParam();
    ranks_ = 2 + static_cast<std::uint32_t>(given.seed % 3);
    graph_.emplace(normalized(given.seed, true, given.dtype));
    batch_.emplace(kMostRows, graph_->fields());
    world_ = make_world(part_bytes());
    for (std::uint32_t r = 0; r < ranks_; ++r)
      rows_.push_back(r == 0 ? kMostRows : 1 + static_cast<std::uint32_t>(random_below(given.seed, r, kMostRows)));
    if (given.seed % 2 == 1 && ranks_ > 2) rows_.back() = 0;
  }

  std::uint64_t part_bytes() const { return gathered_bytes(*graph_); }

  /// The group's parameters are the parts.
  std::unique_ptr<DeviceGroup> make_world(std::uint64_t part_bytes) const {
    GroupSpec spec;
    spec.ranks = ranks_;
    spec.seed = GetParam().seed;
    const std::uint64_t part = part_bytes / sizeof(float);
    spec.elements = ranks_ * part;
    for (std::uint32_t r = 0; r < ranks_; ++r) spec.stripes.push_back({GroupId{}, Rank{r}, r * part, part});
    spec.buckets = {{.group = GroupId{}, .index = 0, .first = 0, .count = spec.elements, .base = 0}};
    switch (GetParam().means) {
      case Means::arena: return std::make_unique<ArenaWorld>(spec, cpu_devices());
      case Means::direct: return std::make_unique<DirectWorld>(spec, cpu_devices(), std::make_unique<LoopbackEnds>());
      case Means::nodes: break;
    }
    return std::make_unique<HierarchicalWorld>(spec, cpu_devices(), std::make_unique<LoopbackEnds>());
  }

  std::vector<float> parameters(const Graph& graph) const {
    const Layout layout{graph};
    std::vector<float> all(layout.count_elements());
    fill_initial(graph, layout, GetParam().seed, all);
    return all;
  }

  template <class T>
  static Memory put(AddressSpace& space, const std::function<Memory(std::uint64_t)>& take,
                    const std::vector<T>& values) {
    const Memory to = take(values.size() * sizeof(T));
    std::memcpy(space.address(to), values.data(), to.size_bytes);
    return to;
  }

  ReplicaMemory replica_memory(AddressSpace& space, const std::function<Memory(std::uint64_t)>& take,
                               const Graph& graph) const {
    const std::vector<float> values = parameters(graph);
    ReplicaMemory memory{put(space, take, values), {}, take(values.size() * sizeof(float))};
    std::vector<std::uint16_t> image(values.size());
    std::ranges::transform(values, image.begin(), to_bf16);
    if (graph.dtype() == DType::bf16) memory.half = put(space, take, image);
    return memory;
  }

  /// Rows [first, first + count) of the batch of all ranks.
  std::vector<std::byte> rows_from(const BatchLayout& layout, std::uint32_t first, std::uint32_t count) const {
    std::vector<std::byte> bytes(layout.size_bytes());
    for (const BatchLayout::Entry& entry : layout.entries()) {
      const std::uint64_t each = entry.row_elements();
      for (std::uint64_t i = 0; i < count * each; ++i) {
        const std::uint64_t draw = first * each + i;
        std::byte* const to = bytes.data() + entry.offset;
        const auto value = static_cast<float>(3 + 2 * random_normal(GetParam().seed, draw));
        if (entry.field.dtype == DType::i32)
          reinterpret_cast<std::int32_t*>(to)[i] = static_cast<std::int32_t>(random_below(GetParam().seed, draw, 4));
        else if (entry.field.dtype == DType::f32)
          reinterpret_cast<float*>(to)[i] = value;
        else
          reinterpret_cast<std::uint16_t*>(to)[i] = to_bf16(value);
      }
    }
    return bytes;
  }

  void make_members() {
    const Layout layout{*graph_};
    std::uint32_t first = 0;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      RankView& view = world_->rank(r);
      Member& member = members_.emplace_back();
      member.rows = rows_[r];
      member.memory = replica_memory(*view.space, view.take, *graph_);
      member.gather = std::make_unique<CommunicatorGather>(*view.communicator, view.take(ranks_ * part_bytes()));
      member.memory.gather = member.gather.get();
      member.batch = put(*view.space, view.take, rows_from(*batch_, first, member.rows));
      member.sums = put(*view.space, view.take, std::vector<StepSums>(1));
      member.replica = world_->device(r).compile(*graph_, layout, *batch_, make_buckets(GroupId{}, *graph_, layout, 64),
                                                 member.memory);
      first += member.rows;
    }
  }

  void enqueue_step(std::uint32_t r) {
    Member& member = members_[r];
    member.replica->step(*world_->rank(r).stream, member.batch, member.rows, member.sums, sink_);
  }
  Status finish(std::uint32_t r) {
    RankView& view = world_->rank(r);
    const Point end = view.stream->mark();
    Blocking blocking = Blocking::on_thread("test");
    return view.space->timeline(end.line).wait(blocking, end.value, Deadline::after(std::chrono::seconds{20}),
                                               "a rank");
  }

  /// A step of all ranks: each one's gradients.
  std::vector<std::vector<float>> step() {
    std::vector<std::vector<float>> all;
    for (std::uint32_t r = 0; r < ranks_; ++r) enqueue_step(r);
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      const Status status = finish(r);
      EXPECT_TRUE(status.ok()) << status.text();
      const Memory& from = members_[r].memory.gradients;
      const auto* values = world_->rank(r).space->address_of<const float>(from);
      all.emplace_back(values, values + from.size_bytes / sizeof(float));
    }
    return all;
  }

  /// Of one rank of the reference device with the batches of all, normalized by the plain layer.
  std::vector<float> expected() {
    const Graph graph = normalized(GetParam().seed, false, GetParam().dtype);
    const Layout layout{graph};
    AddressSpace space;
    const auto arena = Arena::create(arena_id(Peer{9}, 1), kTestBytes);
    space.map(arena);
    const auto take = [&](std::uint64_t bytes) { return arena->allocate(bytes); };
    const auto device = make_reference_device(space);
    const std::uint32_t all = std::accumulate(rows_.begin(), rows_.end(), 0U);
    const BatchLayout batch{all, graph.fields()};
    const ReplicaMemory memory = replica_memory(space, take, graph);
    const Memory rows = put(space, take, rows_from(batch, 0, all)), sums = put(space, take, std::vector<StepSums>(1));
    const auto replica = device->compile(graph, layout, batch, make_buckets(GroupId{}, graph, layout, 0), memory);
    const auto stream = device->stream();
    replica->step(*stream, rows, all, sums, sink_);
    const Point end = stream->mark();
    Blocking blocking = Blocking::on_thread("test");
    EXPECT_TRUE(
        space.timeline(end.line).wait(blocking, end.value, Deadline::after(std::chrono::seconds{20}), "it").ok());
    const auto* values = space.address_of<const float>(memory.gradients);
    return {values, values + layout.count_elements()};
  }

  std::uint32_t ranks_ = 0;
  std::vector<std::uint32_t> rows_;  // by rank
  std::optional<Graph> graph_;
  std::optional<BatchLayout> batch_;
  std::unique_ptr<DeviceGroup> world_;
  std::vector<Member> members_;
  NoSink sink_;
};

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const Means means : {Means::arena, Means::direct, Means::nodes}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) cases.push_back({means, seed, DType::f32});
    cases.push_back({means, 1, DType::bf16});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ranks, SynchronizedNorm, ::testing::ValuesIn(norm_cases()));

TEST_P(SynchronizedNorm, GivesRanksWithPartsOfABatchTheGradientsAndStatisticsOfTheWholeBatch) {
  make_members();
  const std::vector<std::vector<float>> found = step();
  const std::vector<float> wanted = expected();
  const Layout layout{*graph_};
  const bool f32 = GetParam().dtype == DType::f32;
  for (std::size_t p = 0; p < layout.entries().size(); ++p) {
    const Layout::Entry& entry = layout.entries()[p];
    double distance = 0, size = 0;
    for (std::uint64_t i = entry.first; i < entry.first + entry.count; ++i) {
      double sum = 0;
      for (const std::vector<float>& one : found) sum += one[i];
      distance += std::pow(sum - wanted[i], 2);
      size += std::pow(wanted[i], 2);
    }
    // A bias before a norm has a gradient that consists of rounding errors.
    EXPECT_LE(std::sqrt(distance), (f32 ? 1e-4 : 0.15) * std::sqrt(size) + (f32 ? 1e-3 : 0.5))
        << graph_->parameters()[p].name;
  }
}

TEST_P(SynchronizedNorm, GivesTheSameBitsAgainAndTheSameStatisticsToAllRanks) {
  make_members();
  const std::vector<std::vector<float>> first = step();
  EXPECT_EQ(step(), first);
  const Layout layout{*graph_};
  for (std::size_t p = 0; p < layout.entries().size(); ++p) {
    if (!graph_->parameters()[p].is_statistic()) continue;
    const std::uint64_t at = layout.entries()[p].first;
    for (std::uint32_t r = 0; r < ranks_; ++r)
      EXPECT_NEAR(first[r][at] * static_cast<float>(rows_[0]), first[0][at] * static_cast<float>(rows_[r]),
                  1e-5F * std::abs(first[0][at]) * static_cast<float>(kMostRows));
  }
}

TEST_P(SynchronizedNorm, EndsTheStreamsThatWaitForARankWhichDoesNotCome) {
  make_members();
  for (std::uint32_t r = 0; r + 1 < ranks_; ++r) enqueue_step(r);
  for (std::uint32_t r = 0; r < ranks_; ++r)
    world_->rank(r).communicator->abort({Code::peer_lost, "the last rank is gone"});
  for (std::uint32_t r = 0; r + 1 < ranks_; ++r) EXPECT_EQ(finish(r).code(), Code::peer_lost);
}

}  // namespace
}  // namespace troupe::contracts
