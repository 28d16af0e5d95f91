// What a rank has for each parameter group: its communicator and its exchange.

#include "apps/session/communicators.hpp"
#include "apps/session/exchange_groups.hpp"
#include "apps/session/view.hpp"
#include "runtime/exchange/communicator_gather.hpp"

namespace troupe {

/// Connects a group. A rank that dies while the others connect ends their waits.
std::unique_ptr<NcclCommunicator> View::make_nccl(Blocking& blocking, const GroupPlan& group,
                                                  std::span<const ArenaId> arenas) {
  const auto stream = lane_resources_->device->stream();
  try {
    auto made = make_nccl_communicator({.space = space_,
                                        .plan = joined_.plan,
                                        .self = joined_.self(),
                                        .node_arenas = arenas,
                                        .id = places_[nccl_leader()].nccl[group.id.value],
                                        .stream = *stream,
                                        .call_deadline = settings().faults.exchange},
                                       group, memory_.groups[group.id.value]);
    {
      const auto losses = job_.group().listen([&made](Peer, const Status& why) { made->abort(why); });
      made->connect(blocking, deadline_);
    }
    return made;
  } catch (const Error& error) {
    if (error.code() == Code::peer_lost) throw;
    fail(error.code(), text(error.what(),
                            "; NCCL_DEBUG=INFO prints what it does, NCCL_SOCKET_IFNAME chooses the network interface, "
                            "and cluster.collectives = \"own\" uses no NCCL"));
  }
}

void View::make_communicators(Blocking& blocking) {
  LaneResources& lane_resources = *lane_resources_;
  const Plan& plan = joined_.plan;
  const std::vector<ArenaId> arenas = node_arenas();
  if (plan.uses_transport()) {
    lane_resources.channel = std::make_unique<DirectChannel>();
    lane_resources.exchange_stream = traced_stream(trace_.exchange);
  }
  const auto make = [&](const GroupPlan& group, const GroupMemory& memory, const Compressor* compressor) {
    // Kernels of two communicators of NCCL that wait for peers at once may keep each other from running.
    const bool has_stream = plan.uses_nccl() && !lane_resources.node_streams.empty();
    if (!has_stream)
      lane_resources.node_streams.push_back(plan.has_two_levels() ? traced_stream(trace_.node) : nullptr);
    auto nccl = plan.uses_nccl() ? make_nccl(blocking, group, arenas) : nullptr;
    if (!plan.has_two_levels() && nccl != nullptr) return std::unique_ptr<Communicator>{std::move(nccl)};
    auto made = make_communicator({.space = space_,
                                   .plan = plan,
                                   .self = joined_.self(),
                                   .view = view_,
                                   .node_arenas = arenas,
                                   .bulk = &job_.group().bulk(),
                                   .channel = lane_resources.channel.get(),
                                   .exchange = lane_resources.exchange_stream.get(),
                                   .compressor = compressor,
                                   .node = lane_resources.node_streams.back().get(),
                                   .trace = trace_.kept()},
                                  group, memory, std::move(nccl));
    TROUPE_CHECK(!uses_device_memory() || made->traits().device_memory, Code::unsupported, "group ", group.name,
                 " is exchanged by a communicator that takes no device memory; give the ranks devices that work in the "
                 "host's (SessionOptions::make_device)");
    return made;
  };
  for (const GroupPlan& group : plan.groups) {
    lane_resources.compressors.push_back(make_compressor(group.compression.kind));
    const GroupMemory& memory = memory_.groups[group.id.value];
    auto own = make(group, memory, lane_resources.compressors.back().get());
    lane_resources.communicators.push_back(
        options_.make_communicator
            ? options_.make_communicator({space_, plan, group, joined_.self(), memory.parameters, memory.half},
                                         std::move(own))
            : std::move(own));
  }
  if (plan.gathered_bytes != 0) {
    lane_resources.gather_communicator = make(gathered_group(plan), memory_.gathered, nullptr);
    lane_resources.gather =
        std::make_unique<CommunicatorGather>(*lane_resources.gather_communicator, memory_.gathered.parameters);
    memory_.replica.gather = lane_resources.gather.get();
  }
  if (lane_resources.channel) lane_resources.channel->open(job_.group().transport());
}

/// The arenas of the node's ranks, by local rank.
std::vector<ArenaId> View::node_arenas() const {
  std::vector<ArenaId> all;
  for (const Rank rank : joined_.plan.node_members(joined_.self())) all.push_back(places_[rank.value].arena.id);
  return all;
}

std::unique_ptr<HostedGroup> View::make_hosted(const GroupPlan& group, const Rule& rule,
                                               const std::optional<RateSchedule>& rates) {
  const std::uint32_t g = group.id.value;
  return std::make_unique<HostedGroup>(HostedGroupParts{.system = system_,
                                                        .space = space_,
                                                        .arena = *arena_,
                                                        .device = *lane_resources_->device,
                                                        .remote = is_alone() ? nullptr : &job_.group().remote(),
                                                        .name = actor_name(text("shard.", g)),
                                                        .self = joined_.self(),
                                                        .ranks = joined_.plan.world_size(),
                                                        .plan = group,
                                                        .memory = memory_.groups[g],
                                                        .shares_parameters = joined_.plan.shares_memory(),
                                                        .rule = rule,
                                                        .rate = rates,
                                                        .no_decay = lane_resources_->no_decay[g],
                                                        .deadline = settings().faults.exchange,
                                                        .log = settings().update_log,
                                                        .replay = settings().update_replay,
                                                        .trace = trace_.trace()});
}

ExchangeMemory View::exchange_memory(const GroupPlan& group) const {
  const std::uint32_t g = group.id.value;
  ExchangeMemory memory = memory_.groups[g].own;
  // Running statistics have no part in the scale: no gradient makes them.
  if (!group.running) memory.loss_scale = memory_.replica.loss_scale;
  for (StripeMemory& part : memory.mine) {
    part.loss_scale = memory.loss_scale;
    part.no_decay = lane_resources_->no_decay[g];
    part.scaled = lane_resources_->scaled[g];
    part.squares = slice(memory_.groups[g].squares, 0, lane_resources_->scaled[g].size() * sizeof(TensorSquares));
  }
  if (joined_.plan.is_in_one_arena() && joined_.plan.measured)
    memory.stripes = stripes_in_reach(space_, joined_.plan, group, node_arenas(), memory_.groups[g]);
  for (StripeMemory& part : memory.stripes) part.loss_scale = memory.loss_scale;
  return memory;
}

std::unique_ptr<Exchange> View::make_exchange(const GroupPlan& group) {
  const std::uint32_t g = group.id.value;
  const Rule rule = all_groups(settings(), joined_.graph)[g].rule;
  const std::optional<RateSchedule> rates = group.running ? std::nullopt : std::optional{rate(rule)};
  if (needs_of(group.policies).hosted) work_.hosted[g] = make_hosted(group, rule, rates);
  ExchangeProgress from;
  if (before_) {
    from = std::move(before_->exchanges.at(g));
  } else {
    from = {std::make_unique<PolicySequence>(group.policies, joined_.plan.world_size(), options_.make_policy),
            resumed_ ? resumed_->updates_of(group) : 0};
    if (const auto steps = resumed_ ? resumed_->policy_steps_of(joined_, group) : std::nullopt)
      from.policy->resume(*steps);
  }
  return make_policy_exchange({.communicator = lane_resources_->communicators[g].get(),
                               .rule = rule,
                               .policy = std::move(from.policy),
                               .buckets = group.buckets,
                               .memory = exchange_memory(group),
                               .rate = rates,
                               .scaling = settings().model.scaling,
                               .running = group.running,
                               .side = work_.side_streams[g].get(),
                               .hosted = work_.hosted[g] ? &work_.hosted[g]->exchange() : nullptr,
                               .updates = from.updates,
                               .idle_updates = from.idle_updates,
                               .average_begins = !before_ && !(resumed_ && resumed_->has_average(group))});
}

std::vector<Exchange*> View::all_exchanges() const {
  std::vector<Exchange*> all;
  for (const auto& exchange : work_.exchanges) all.push_back(exchange.get());
  return all;
}

void View::abort_exchanges(const Status& why) noexcept {
  for (const auto& communicator : lane_resources_->communicators) communicator->abort(why);
  if (lane_resources_->gather_communicator) lane_resources_->gather_communicator->abort(why);
  for (const auto& exchange : work_.exchanges) exchange->retire(why);
}

}  // namespace troupe
