#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/transports/nccl_worlds.hpp"
#include "transports/collectives/nested_communicator.hpp"

namespace troupe::contracts {

/// Ranks with a GPU each on several nodes: NCCL within the nodes, a transport between them.
class NestedWorld final : public WorldOfNodes {
 public:
  NestedWorld(const GroupSpec& spec, std::unique_ptr<DirectNetwork> network)
      : WorldOfNodes(spec, gpus(), std::move(network)) {
    for (std::uint32_t r = 0; r < spec.ranks; ++r)
      members_.push_back({arenas_[r]->make_timeline(), arenas_[r]->make_timeline()});
    const ExchangeLevel between{LevelMeans::transport, counterpart_sets(nodes())};
    for (const std::vector<Rank>& node : nodes()) {
      const NcclId id = make_nccl_id(TROUPE_NCCL_HOST);
      for (const Rank rank : node) make_rank(rank.value, node, id, between);
    }
    Blocking blocking = Blocking::on_thread("test");
    for (NcclCommunicator* const within : within_) within->connect(blocking, Deadline::after(std::chrono::seconds{20}));
    connect();
  }

 private:
  /// In the order in which this is called the communicators connect.
  void make_rank(std::uint32_t r, const std::vector<Rank>& node, const NcclId& id, const ExchangeLevel& between) {
    RankView& view = views_[r];
    for (const Rank other : node)
      if (other.value != r) spaces_[r]->map(arenas_[other.value]);
    view.parameters = view.take(spec_.elements * sizeof(float));
    view.half = spec_.half ? view.take(spec_.elements * sizeof(std::uint16_t)) : Memory{};
    allocate_rank(spec_, r, *arenas_[r], view);
    add_streams(r);
    std::unique_ptr<NcclCommunicator> within = make_within(r, node, id);
    within_.push_back(within.get());
    NestedGroup group{.rank = Rank{r},
                      .members = node,
                      .stripes = spec_.stripes,
                      .buckets = spec_.buckets,
                      .between = between,
                      .parameters = view.parameters,
                      .half = view.half,
                      .updated = arenas_[r]->make_timeline(),
                      .node_sums = view.take(sizeof(StepSums)),
                      .found = view.take(sizeof(StepSums)),
                      .verdict = view.take(sizeof(StepSums))};
    add_communicator(r, std::make_unique<NestedCommunicator>(*spaces_[r], node_stream(r), std::move(group),
                                                             std::move(within), make_sets(r, between)));
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
    return std::make_unique<NcclCommunicator>(*spaces_[r], node_stream(r), std::move(group),
                                              NcclOptions{.library = TROUPE_NCCL_HOST});
  }

  std::vector<NcclMember> members_;
  std::vector<NcclCommunicator*> within_;
};

}  // namespace troupe::contracts
