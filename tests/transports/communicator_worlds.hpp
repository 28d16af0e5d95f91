#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "devices/fake/fake_device.hpp"
#include "devices/reference/reference_device.hpp"
#include "runtime/compute/host_copies.hpp"
#include "runtime/lanes/lane_loop.hpp"
#include "runtime/lanes/lane_wait.hpp"
#include "tests/contracts/communicator_contract.hpp"
#include "transports/collectives/arena_communicator.hpp"
#include "transports/collectives/direct_communicator.hpp"
#include "transports/collectives/hierarchical_communicator.hpp"

// Groups of ranks in one process, each with its own address space and device, as processes have.
namespace troupe::contracts {

/// The device of one rank, whose streams wait by `waits`, if they can. Fake ones do a piece of work when they are
/// driven; threads need no driving.
using MakeDevice = std::function<std::unique_ptr<Device>(AddressSpace&, std::uint32_t rank, ActiveWait& waits)>;
inline MakeDevice fake_devices(std::uint64_t seed) {
  return [seed](AddressSpace& space, std::uint32_t rank, ActiveWait&) {
    return std::make_unique<FakeDevice>(space, FakeOptions{.seed = sub_key(seed, rank), .delay_one_in = 4});
  };
}
/// Fake ones with memory of their own.
inline MakeDevice far_devices(std::uint64_t seed) {
  return [seed](AddressSpace& space, std::uint32_t rank, ActiveWait&) {
    return std::make_unique<FakeDevice>(
        space, FakeOptions{.seed = sub_key(seed, rank), .delay_one_in = 4, .simulated_memory = true});
  };
}
inline MakeDevice reference_devices() {
  return [](AddressSpace& space, std::uint32_t, ActiveWait&) { return make_reference_device(space); };
}

/// Waits as the lines themselves do.
class PlainWait final : public ActiveWait {
 public:
  void about_to_wait() noexcept override {}
  Status wait(Blocking& blocking, Timeline& line, std::uint64_t at, Deadline deadline, std::string_view what) override {
    return line.wait(blocking, at, deadline, what);
  }
};

/// The common parts of the worlds.
class DeviceGroup : public CommunicatorWorld {
 public:
  DeviceGroup(const GroupSpec& spec, MakeDevice make_device) : spec_(spec), make_device_(std::move(make_device)) {
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      spaces_.push_back(std::make_unique<AddressSpace>());
      arenas_.push_back(Arena::create(arena_id(Peer{r}, 1), kTestBytes));
      views_.push_back({.space = spaces_[r].get()});
    }
  }
  RankView& rank(std::uint32_t rank) override { return views_.at(rank); }
  void drive() override {
    bool driven = false;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const std::uint64_t pick = random_below(spec_.seed, draws_++, devices_.size());
      if (auto* fake = dynamic_cast<FakeDevice*>(devices_[pick].get())) driven |= fake->run_one();
    }
    if (!driven) std::this_thread::yield();
  }
  FakeStream& fake_stream(std::uint32_t rank) { return dynamic_cast<FakeStream&>(*streams_.at(rank)); }
  Device& device(std::uint32_t rank) { return *devices_.at(rank); }

 protected:
  /// A rank's device, of which its memory is; its arena is mapped.
  void add_device(std::uint32_t rank, ActiveWait& waits) {
    devices_.push_back(make_device_(*spaces_[rank], rank, waits));
    RankView& view = views_[rank];
    view.copies = std::make_shared<HostCopies>(device(rank), *spaces_[rank], arena_id(Peer{rank}, 3),
                                               std::chrono::milliseconds{30000});
    if (!has_own_memory(rank)) {
      view.take = [arena = arenas_[rank].get()](std::uint64_t size_bytes) { return arena->allocate(size_bytes); };
      return;
    }
    const Memory own = device(rank).allocate(own_memory(rank), MemoryKind::device, kTestBytes);
    // Once a stream waits, a driver may let a call that allocates or registers memory wait, too.
    std::vector<ArenaId> arenas;
    for (const auto& arena : arenas_) arenas.push_back(arena->id());
    device(rank).prepare(arenas);
    view.copies->prepare();
    view.take = [own, used = std::uint64_t{0}](std::uint64_t size_bytes) mutable {
      TROUPE_CHECK(size_bytes <= own.size_bytes - used, Code::out_of_memory, "a test takes too much device memory");
      const Memory part = slice(own, used, size_bytes);
      used += (size_bytes + 63) / 64 * 64;
      return part;
    };
  }
  bool has_own_memory(std::uint32_t rank) const { return devices_.at(rank)->traits().memory == MemoryKind::device; }
  static ArenaId own_memory(std::uint32_t rank) { return arena_id(Peer{rank}, 2); }
  /// Ranks of one node reach each other's memory.
  void import(std::uint32_t rank, std::uint32_t other) {
    if (rank != other && has_own_memory(other)) (void)device(rank).import(device(other).ticket(own_memory(other)));
  }
  void add_stream(std::uint32_t rank) {
    streams_.push_back(device(rank).stream());
    views_[rank].stream = streams_.back().get();
    sides_.push_back(device(rank).stream());
    views_[rank].side = sides_.back().get();
  }
  /// Streams first: their threads may still be working.
  void end_streams() {
    for (RankView& view : views_) view.copies.reset();
    streams_.clear();
    sides_.clear();
  }
  void end_devices() { devices_.clear(); }

  const GroupSpec spec_;
  const MakeDevice make_device_;
  std::vector<std::unique_ptr<AddressSpace>> spaces_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::vector<RankView> views_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Stream>> sides_;
  std::uint64_t draws_ = 0;
};

/// Ranks of one node: rank 0's arena holds the parameters that all share.
class ArenaWorld final : public DeviceGroup {
 public:
  ArenaWorld(const GroupSpec& spec, MakeDevice make_device) : DeviceGroup(spec, std::move(make_device)) {
    for (auto& space : spaces_) {
      for (auto& arena : arenas_) space->map(arena);
    }
    for (std::uint32_t r = 0; r < spec.ranks; ++r) add_device(r, waits_);
    for (std::uint32_t r = 0; r < spec.ranks; ++r)
      for (std::uint32_t other = 0; other < spec.ranks; ++other) import(r, other);
    const Memory parameters = views_[0].take(spec.elements * sizeof(float));
    const Memory half = spec.half ? views_[0].take(spec.elements * sizeof(std::uint16_t)) : Memory{};
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      views_[r].parameters = parameters;
      views_[r].half = half;
      allocate_rank(spec, r, *arenas_[r], views_[r]);
      members_.push_back({views_[r].contributions, views_[r].sums, arenas_[r]->make_timeline(),
                          arenas_[r]->make_timeline(), views_[r].take(kScratchBytes)});
    }
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      communicators_.push_back(std::make_unique<ArenaCommunicator>(*spaces_[r], group(r)));
      views_[r].communicator = communicators_.back().get();
      add_stream(r);
    }
  }
  ~ArenaWorld() override {
    for (auto& communicator : communicators_) communicator->abort({Code::aborted, "the test is over"});
    end_streams();
    end_devices();
  }
  ArenaGroup group(std::uint32_t rank) const { return {Rank{rank}, members_}; }

  static constexpr std::uint64_t kScratchBytes = 8000;

 private:
  PlainWait waits_;
  std::vector<ArenaMember> members_;
  std::vector<std::unique_ptr<ArenaCommunicator>> communicators_;
};

/// How the ranks of a DirectWorld are connected.
class DirectNetwork {
 public:
  virtual ~DirectNetwork() = default;
  virtual std::unique_ptr<Transport> endpoint(Peer self, AddressSpace& space) = 0;
  /// For endpoints that find a rank's memory at addresses of their own: its arena, and its device's memory.
  virtual void map(Peer /*self*/, const std::shared_ptr<Arena>& /*arena*/) {}
  virtual void show(Peer /*self*/, const RegionTicket& /*of_device*/) {}
};

/// Ranks that share nothing and exchange over a transport.
class DirectWorld final : public DeviceGroup {
 public:
  DirectWorld(const GroupSpec& spec, MakeDevice make_device, std::unique_ptr<DirectNetwork> network)
      : DeviceGroup(spec, std::move(make_device)), network_(std::move(network)) {
    std::vector<Peer> peers;
    for (std::uint32_t r = 0; r < spec.ranks; ++r) peers.push_back(Peer{r});
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      Arena& arena = *arenas_[r];
      spaces_[r]->map(arenas_[r]);
      transports_.push_back(network_->endpoint(Peer{r}, *spaces_[r]));
      loops_.push_back(std::make_unique<LaneLoop>(*transports_[r], Lane::bulk, LaneOptions{}, text("bulk ", r)));
      waits_.push_back(std::make_unique<LaneWait>(*loops_[r], std::chrono::microseconds{5}));
      add_device(r, *waits_[r]);
      network_->map(Peer{r}, arenas_[r]);
      if (has_own_memory(r)) network_->show(Peer{r}, device(r).ticket(own_memory(r)));
      views_[r].parameters = views_[r].take(spec.elements * sizeof(float));
      views_[r].half = spec.half ? views_[r].take(spec.elements * sizeof(std::uint16_t)) : Memory{};
      allocate_rank(spec, r, arena, views_[r]);
      add_stream(r);
      exchanges_.push_back(device(r).stream());
      compressors_.push_back(make_compressor(spec.compression.kind));
      DirectGroup group{.view = ViewId{3},
                        .rank = Rank{r},
                        .peers = peers,
                        .stripes = spec.stripes,
                        .buckets = spec.buckets,
                        .parameters = views_[r].parameters,
                        .half = views_[r].half,
                        .staging = {},
                        .chunk = spec.chunk,
                        .compressor = compressors_.back().get(),
                        .device_memory = has_own_memory(r),
                        .sends_device_memory = transports_[r]->sends_from(MemoryKind::device)};
      if (spec.compression.error_feedback) group.residual = views_[r].take(spec.elements * sizeof(float));
      group.staging = arena.allocate(direct_staging_bytes(group));
      communicators_.push_back(std::make_unique<DirectCommunicator>(*spaces_[r], *loops_[r], *exchanges_[r], group));
      views_[r].communicator = communicators_.back().get();
    }
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      for (std::uint32_t other = 0; other < spec.ranks; ++other) {
        if (other != r) transports_[r]->connect(Peer{other}, transports_[other]->address());
      }
    }
    for (auto& loop : loops_) loop->start();
  }
  ~DirectWorld() override {
    for (auto& communicator : communicators_) communicator->abort({Code::aborted, "the test is over"});
    end_streams();
    // The lanes enqueue on these streams, which in turn post to the lanes.
    for (auto& loop : loops_) loop->stop(Deadline::after(std::chrono::seconds{10}));
    exchanges_.clear();
    loops_.clear();
    end_devices();
    transports_.clear();
  }
  DirectNetwork& network() { return *network_; }

 private:
  std::unique_ptr<DirectNetwork> network_;
  std::vector<std::unique_ptr<const Compressor>> compressors_;
  std::vector<std::unique_ptr<DirectCommunicator>> communicators_;  // outlive loops and transports
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<LaneLoop>> loops_;
  std::vector<std::unique_ptr<LaneWait>> waits_;
  std::vector<std::unique_ptr<Stream>> exchanges_;  // the lanes enqueue on them
};

/// Ranks of several nodes, which a transport connects.
class WorldOfNodes : public DeviceGroup {
 public:
  ~WorldOfNodes() override {
    for (auto& communicator : communicators_) communicator->abort({Code::aborted, "the test is over"});
    end_streams();
    for (auto& loop : loops_) loop->stop(Deadline::after(std::chrono::seconds{10}));
    node_streams_.clear();
    exchanges_.clear();
    loops_.clear();
    transports_.clear();
    communicators_.clear();  // NCCL's end needs the devices
    end_devices();
  }
  Stream& node_stream(std::uint32_t rank) { return *node_streams_.at(rank); }

 protected:
  WorldOfNodes(const GroupSpec& spec, MakeDevice make_device, std::unique_ptr<DirectNetwork> network)
      : DeviceGroup(spec, std::move(make_device)), network_(std::move(network)), nodes_(nodes_of(spec)) {
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      transports_.push_back(network_->endpoint(Peer{r}, *spaces_[r]));
      loops_.push_back(std::make_unique<LaneLoop>(*transports_[r], Lane::bulk, LaneOptions{}, text("bulk ", r)));
      channels_.push_back(std::make_unique<DirectChannel>());
      waits_.push_back(std::make_unique<LaneWait>(*loops_[r], std::chrono::microseconds{5}));
      spaces_[r]->map(arenas_[r]);
      add_device(r, *waits_[r]);
    }
    node_streams_.resize(spec.ranks);
  }
  /// The rank's streams; its memory is allocated.
  void add_streams(std::uint32_t r) {
    add_stream(r);
    exchanges_.push_back(device(r).stream());
    node_streams_[r] = device(r).stream();
  }
  /// Its communicators with its counterparts; add_streams() was called for it last.
  std::vector<Counterparts> make_sets(std::uint32_t r, const ExchangeLevel& between) {
    std::vector<Counterparts> sets;
    for (std::uint32_t s = 0; s < between.sets.size(); ++s) {
      const std::vector<Rank>& set = between.sets[s];
      const auto place = std::find(set.begin(), set.end(), Rank{r});
      if (place == set.end()) continue;
      Counterparts made{
          .set = s, .group = counterpart_group(between, s, spec_.stripes, spec_.buckets), .communicator = nullptr};
      DirectGroup ranks = between_nodes(made.group, Rank{static_cast<std::uint32_t>(place - set.begin())}, nodes_);
      ranks.view = ViewId{3};
      ranks.id = GroupId{s};
      ranks.parameters = views_[r].parameters;
      ranks.half = views_[r].half;
      ranks.chunk = spec_.chunk;
      ranks.device_memory = has_own_memory(r);
      ranks.staging = arenas_[r]->allocate(direct_staging_bytes(ranks));
      made.communicator = std::make_unique<DirectCommunicator>(*spaces_[r], *loops_[r], *exchanges_.back(),
                                                               std::move(ranks), channels_[r].get());
      sets.push_back(std::move(made));
    }
    return sets;
  }
  void add_communicator(std::uint32_t r, std::unique_ptr<Communicator> made) {
    communicators_.push_back(std::move(made));
    views_[r].communicator = communicators_.back().get();
  }
  /// All communicators are made.
  void connect() {
    for (std::uint32_t r = 0; r < spec_.ranks; ++r)
      for (std::uint32_t other = 0; other < spec_.ranks; ++other)
        if (other != r) transports_[r]->connect(Peer{other}, transports_[other]->address());
    for (std::uint32_t r = 0; r < spec_.ranks; ++r) channels_[r]->open(*transports_[r]);
    for (auto& loop : loops_) loop->start();
  }
  const std::vector<std::vector<Rank>>& nodes() const noexcept { return nodes_; }

 private:
  /// Ranks on one to three nodes, by the seed: dealt out, or in rows of their own lengths.
  static std::vector<std::vector<Rank>> nodes_of(const GroupSpec& spec) {
    const std::uint64_t key = sub_key(spec.seed, 900 + spec.ranks);
    std::vector<std::vector<Rank>> nodes(1 + random_below(key, 0, std::min(spec.ranks, 3U)));
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      const std::uint64_t node = r < nodes.size() ? r : random_below(key, 1 + r, nodes.size());
      nodes[node].push_back(Rank{r});
    }
    return nodes;
  }

  const std::unique_ptr<DirectNetwork> network_;
  const std::vector<std::vector<Rank>> nodes_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // outlive loops and transports
  std::vector<std::unique_ptr<DirectChannel>> channels_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<LaneLoop>> loops_;
  std::vector<std::unique_ptr<LaneWait>> waits_;
  std::vector<std::unique_ptr<Stream>> node_streams_;
  std::vector<std::unique_ptr<Stream>> exchanges_;  // the lanes enqueue on them
};

/// Those of a node share arenas, and nothing else is mapped.
class HierarchicalWorld final : public WorldOfNodes {
 public:
  HierarchicalWorld(const GroupSpec& spec, MakeDevice make_device, std::unique_ptr<DirectNetwork> network)
      : WorldOfNodes(spec, std::move(make_device), std::move(network)) {
    for (const std::vector<Rank>& node : nodes()) make_node(node);
    const ExchangeLevel between{LevelMeans::transport, counterpart_sets(nodes())};
    for (std::uint32_t r = 0; r < spec.ranks; ++r) make_rank(r, between);
    connect();
  }

 private:
  void make_node(const std::vector<Rank>& node) {
    Arena& leader = *arenas_[node[0].value];
    const Memory parameters = views_[node[0].value].take(spec_.elements * sizeof(float));
    const Memory half = spec_.half ? views_[node[0].value].take(spec_.elements * sizeof(std::uint16_t)) : Memory{};
    NodeGroup group{.rank = {}, .members = {}, .names = node, .buckets = spec_.buckets};
    group.updated = leader.make_timelines(spec_.buckets.size());
    for (const Rank rank : node) {
      RankView& view = views_[rank.value];
      Arena& arena = *arenas_[rank.value];
      for (const Rank other : node) {
        if (other != rank) spaces_[rank.value]->map(arenas_[other.value]);
        import(rank.value, other.value);
      }
      view.parameters = parameters;
      view.half = half;
      allocate_rank(spec_, rank.value, arena, view);
      group.members.push_back({.plain = {view.contributions, view.sums, arena.make_timeline(), arena.make_timeline(),
                                         view.take(kScratchBytes)},
                               .handed = arena.make_timeline(),
                               .measured = arena.make_timeline(),
                               .verdict = view.take(sizeof(StepSums))});
    }
    groups_.push_back(group);
  }
  void make_rank(std::uint32_t r, const ExchangeLevel& between) {
    add_streams(r);
    NodeGroup group = group_of(r);
    group.between = between;
    group.node_sums = views_[r].take(sizeof(StepSums));
    group.found = views_[r].take(sizeof(StepSums));
    add_communicator(r, std::make_unique<HierarchicalCommunicator>(*spaces_[r], node_stream(r), std::move(group),
                                                                   make_sets(r, between)));
  }
  NodeGroup group_of(std::uint32_t r) const {
    for (NodeGroup group : groups_) {
      const auto place = std::find(group.names.begin(), group.names.end(), Rank{r});
      if (place == group.names.end()) continue;
      group.rank = Rank{static_cast<std::uint32_t>(place - group.names.begin())};
      return group;
    }
    fail(Code::invalid, text("rank ", r, " is on no node"));
  }

  static constexpr std::uint64_t kScratchBytes = 8000;

  std::vector<NodeGroup> groups_;  // by node
};

}  // namespace troupe::contracts
