#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/transports/nccl_worlds.hpp"
#include "transports/collectives/nested_communicator.hpp"
#include "transports/loopback/loopback_transport.hpp"

namespace troupe::contracts {

/// Ranks with a GPU each on several nodes: NCCL within the nodes, a transport between them.
class NestedWorld final : public DeviceGroup {
 public:
  explicit NestedWorld(const GroupSpec& spec, LoopbackAdversity adversity = {})
      : DeviceGroup(spec, gpus()), network_(adversity), nodes_(HierarchicalWorld::nodes_of(spec)) {
    for (std::uint32_t r = 0; r < spec.ranks; ++r) {
      transports_.push_back(network_.endpoint(Peer{r}, *spaces_[r]));
      loops_.push_back(std::make_unique<LaneLoop>(*transports_[r], Lane::bulk, LaneOptions{}, text("bulk ", r)));
      channels_.push_back(std::make_unique<DirectChannel>());
      waits_.push_back(std::make_unique<LaneWait>(*loops_[r], std::chrono::microseconds{5}));
      spaces_[r]->map(arenas_[r]);
      add_device(r, *waits_[r]);
      members_.push_back({arenas_[r]->make_timeline(), arenas_[r]->make_timeline()});
    }
    const ExchangeLevel between{LevelMeans::transport, counterpart_sets(nodes_)};
    for (const std::vector<Rank>& node : nodes_) {
      const NcclId id = make_nccl_id(TROUPE_NCCL_HOST);
      for (const Rank rank : node) make_rank(rank.value, node, id, between);
    }
    Blocking blocking = Blocking::on_thread("test");
    for (NcclCommunicator* const within : within_) within->connect(blocking, Deadline::after(std::chrono::seconds{20}));
    for (std::uint32_t r = 0; r < spec.ranks; ++r)
      for (std::uint32_t other = 0; other < spec.ranks; ++other)
        if (other != r) transports_[r]->connect(Peer{other}, transports_[other]->address());
    for (std::uint32_t r = 0; r < spec.ranks; ++r) channels_[r]->open(*transports_[r]);
    for (auto& loop : loops_) loop->start();
  }
  ~NestedWorld() override {
    for (const RankView& view : views_) view.communicator->abort({Code::aborted, "the test is over"});
    end_streams();
    for (auto& loop : loops_) loop->stop(Deadline::after(std::chrono::seconds{10}));
    node_streams_.clear();
    exchanges_.clear();
    loops_.clear();
    communicators_.clear();
    end_devices();
    transports_.clear();
  }

 private:
  /// In the order in which this is called the communicators connect.
  void make_rank(std::uint32_t r, const std::vector<Rank>& node, const NcclId& id, const ExchangeLevel& between) {
    RankView& view = views_[r];
    for (const Rank other : node)
      if (other.value != r) spaces_[r]->map(arenas_[other.value]);
    view.parameters = view.take(spec_.elements * sizeof(float));
    view.bf16 = spec_.bf16 ? view.take(spec_.elements * sizeof(std::uint16_t)) : Memory{};
    allocate_rank(spec_, r, *arenas_[r], view);
    streams_.push_back(device(r).stream());
    view.stream = streams_.back().get();
    sides_.push_back(device(r).stream());
    view.side = sides_.back().get();
    node_streams_.push_back(device(r).stream());
    std::unique_ptr<NcclCommunicator> within = make_within(r, node, id);
    within_.push_back(within.get());
    communicators_.push_back(std::make_unique<NestedCommunicator>(*spaces_[r], *node_streams_.back(),
                                                                  NestedGroup{.rank = Rank{r},
                                                                              .members = node,
                                                                              .stripes = spec_.stripes,
                                                                              .buckets = spec_.buckets,
                                                                              .between = between,
                                                                              .parameters = view.parameters,
                                                                              .bf16 = view.bf16,
                                                                              .updated = arenas_[r]->make_timeline(),
                                                                              .node_sums = view.take(sizeof(StepSums)),
                                                                              .found = view.take(sizeof(StepSums)),
                                                                              .verdict = view.take(sizeof(StepSums))},
                                                                  std::move(within), make_sets(r, between)));
    view.communicator = communicators_.back().get();
  }
  std::unique_ptr<NcclCommunicator> make_within(std::uint32_t r, const std::vector<Rank>& node, const NcclId& id) {
    NcclGroup group{
        .rank = Rank{static_cast<std::uint32_t>(std::find(node.begin(), node.end(), Rank{r}) - node.begin())},
        .id = id,
        .members = {},
        .names = node,
        .stripes = {},
        .parameters = views_[r].parameters,
        .staging = {},
        .room = 1 << 16};
    for (const Rank rank : node) group.members.push_back(members_[rank.value]);
    group.staging = views_[r].take(nccl_staging_bytes(group));
    return std::make_unique<NcclCommunicator>(*spaces_[r], *node_streams_.back(), std::move(group),
                                              NcclOptions{.library = TROUPE_NCCL_HOST});
  }
  std::vector<Counterparts> make_sets(std::uint32_t r, const ExchangeLevel& between) {
    exchanges_.push_back(device(r).stream());
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
      ranks.bf16 = views_[r].bf16;
      ranks.chunk = spec_.chunk;
      ranks.device_memory = true;
      ranks.staging = arenas_[r]->allocate(direct_staging_bytes(ranks));
      made.communicator = std::make_unique<DirectCommunicator>(*spaces_[r], *loops_[r], *exchanges_.back(),
                                                               std::move(ranks), channels_[r].get());
      sets.push_back(std::move(made));
    }
    return sets;
  }

  LoopbackNetwork network_;
  const std::vector<std::vector<Rank>> nodes_;
  std::vector<NcclMember> members_;
  std::vector<NcclCommunicator*> within_;
  std::vector<std::unique_ptr<NestedCommunicator>> communicators_;  // outlive loops
  std::vector<std::unique_ptr<DirectChannel>> channels_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<LaneLoop>> loops_;
  std::vector<std::unique_ptr<LaneWait>> waits_;
  std::vector<std::unique_ptr<Stream>> node_streams_;
  std::vector<std::unique_ptr<Stream>> exchanges_;  // the lanes enqueue on them
};

}  // namespace troupe::contracts
