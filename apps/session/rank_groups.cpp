// What a rank has for each parameter group: who moves its bytes, and its exchange.

#include "apps/session/rank_session.hpp"
#include "transports/collectives/arena_communicator.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {

std::unique_ptr<Communicator> RankSession::make_communicator(const GroupPlan& group) {
  const GroupMemory& own = memory_.groups[group.id.value];
  if (job_.plan.route == Route::direct) {
    if (!channel_) channel_ = std::make_unique<DirectChannel>(*bulk_);
    if (!exchange_stream_) exchange_stream_ = device_->stream();
    filters_.push_back(make_filter(group.filter));
    DirectGroup ranks = direct_group(job_.plan, group, job_.self());
    ranks.view = kFirstView;
    ranks.parameters = own.parameters;
    ranks.half = own.half;
    ranks.staging = own.staging;
    ranks.filter = filters_.back().get();
    return std::make_unique<DirectCommunicator>(space_, *bulk_, *exchange_stream_, std::move(ranks), channel_.get());
  }
  ArenaGroup members = arena_group(space_, job_.plan, group, arenas());
  members.rank = job_.self();
  return std::make_unique<ArenaCommunicator>(space_, std::move(members));
}

/// By rank.
std::vector<ArenaId> RankSession::arenas() const {
  std::vector<ArenaId> all;
  for (const PlaceBlob& place : places_) all.push_back(place.arena.id);
  return all;
}

std::unique_ptr<Exchange> RankSession::make_exchange(const GroupPlan& group) {
  const std::uint32_t g = group.id.value;
  const Rule rule = all_groups(settings())[g].rule;
  if (needs_of(group.policies).hosted) {
    hosted_[g] = std::make_unique<HostedGroup>(HostedGroupParts{.system = system_,
                                                                .space = space_,
                                                                .arena = *arena_,
                                                                .device = *device_,
                                                                .remote = remote_.get(),
                                                                .self = job_.self(),
                                                                .ranks = job_.plan.world_size(),
                                                                .plan = group,
                                                                .memory = memory_.groups[g],
                                                                .shares_parameters = job_.plan.route == Route::arena,
                                                                .rule = rule,
                                                                .rate = rate(rule),
                                                                .no_decay = no_decay_[g],
                                                                .deadline = settings().faults.exchange,
                                                                .log = settings().update_log,
                                                                .replay = settings().update_replay});
    if (remote_ && hosted_[g]->shard()) remote_->publish(HostedGroup::name_of(group.id), hosted_[g]->shard());
  }
  LentMemory lent = memory_.groups[g].own;
  for (StripeMemory& part : lent.mine) part.no_decay = no_decay_[g];
  if (job_.plan.route == Route::arena && job_.plan.measured)
    lent.stripes = stripes_in_reach(space_, job_.plan, group, arenas(), memory_.groups[g]);
  return lent_exchange({.communicator = communicators_[g].get(),
                        .rule = rule,
                        .policy = std::make_unique<PolicySequence>(group.policies, job_.plan.world_size()),
                        .buckets = group.buckets,
                        .memory = std::move(lent),
                        .rate = rate(rule),
                        .side = side_streams_[g].get(),
                        .hosted = hosted_[g] ? &hosted_[g]->route() : nullptr,
                        .updates = resumed_ ? resumed_->updates_of(group) : 0});
}

std::vector<Exchange*> RankSession::all_exchanges() const {
  std::vector<Exchange*> all;
  for (const auto& exchange : exchanges_) all.push_back(exchange.get());
  return all;
}

void RankSession::abort_exchanges(const Status& why) noexcept {
  for (const auto& communicator : communicators_) communicator->abort(why);
  for (const auto& exchange : exchanges_) exchange->retire(why);
}

}  // namespace troupe
