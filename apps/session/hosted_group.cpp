#include "apps/session/hosted_group.hpp"

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <filesystem>
#include <utility>

namespace troupe {
namespace {

TraceRow* row(const HostedGroupParts& parts, const char* actor) {
  return parts.trace == nullptr ? nullptr : &parts.trace->row(text(actor, " of group ", parts.plan.id.value));
}

}  // namespace

HostedGroup::HostedGroup(const HostedGroupParts& parts)
    : system_(parts.system),
      remote_(parts.remote),
      name_(parts.name),
      plan_(parts.plan),
      self_(parts.self),
      line_(parts.space) {
  StripeMemory stripe = parts.memory.stripes.at(0);
  stripe.journal = {};
  stripe.no_decay = parts.no_decay;
  std::shared_ptr<UpdateReplay> replay;
  if (stripe.stripe.count > 0) {
    shard_stream_ = parts.device.stream();
    HostedParts hosted{.stream = *shard_stream_, .space = parts.space, .arena = parts.arena};
    for (const Stripe& other : plan_.stripes) {
      if (other.owner == self_) break;
      hosted.shard += other.count > 0 ? 1 : 0;
    }
    hosted.stripe = stripe;
    hosted.rule = parts.rule;
    hosted.rule.scales_loss = false;  // what overflows is not pushed
    hosted.rate = parts.rate;
    if (!parts.log.empty()) {
      std::filesystem::create_directories(parts.log);
      log_ = std::make_unique<UpdateLogFile>(log_file(parts.log, hosted.shard), stripe.stripe.count);
      log_writer_ =
          std::make_unique<UpdateLogWriter>([this](std::span<const AppliedRecord> page) { log_->append(page); });
      hosted.log = [writer = log_writer_.get()](std::span<const AppliedRecord> records) { writer->append(records); };
    }
    if (!parts.replay.empty()) {
      const std::string from = log_file(parts.replay, hosted.shard);
      replay = std::make_shared<UpdateReplay>(read_update_log(from, stripe.stripe.count, parts.ranks));
    }
    hosted.trace = row(parts, "Shard");
    shard_ = spawn_hosted_shard(system_, std::move(hosted), remote_);
    if (remote_ != nullptr) remote_->publish(name_, shard_);
  }
  side_ = parts.device.stream();
  const HostedMemory memory = hosted_memory(parts);
  worker_ = spawn_hosted_worker(system_, {.self = self_,
                                          .side = *side_,
                                          .space = parts.space,
                                          .line = line_.id(),
                                          .landing = memory.landing,
                                          .remote = remote_,
                                          .deadline = parts.deadline,
                                          .trace = row(parts, "Worker")});
  exchange_ = hosted_exchange({.space = parts.space,
                               .worker = worker_,
                               .line = line_.id(),
                               .self = self_,
                               .ranks = parts.ranks,
                               .memory = memory,
                               .shard = shard_,
                               .mine = stripe,
                               .replay = std::move(replay)});
}

std::string HostedGroup::log_file(const std::string& folder, std::uint32_t shard) const {
  return text(folder, "/group-", plan_.id.value, "-shard-", shard, ".updates");
}

HostedMemory HostedGroup::hosted_memory(const HostedGroupParts& parts) const {
  const GroupMemory& m = parts.memory;
  const ExchangeMemory& own = m.own;
  HostedMemory memory{.gradients = m.gradients, .weights = own.weights, .half = own.half};
  memory.landing = m.landing.size_bytes > 0 ? m.landing : own.weights;
  memory.state = own.state;
  memory.held = own.held;
  memory.held_half = own.held_half;
  memory.no_decay = parts.no_decay;
  memory.one = m.one;
  if (parts.shares_parameters) return memory;
  memory.common = m.parameters;
  memory.common_half = m.half;
  return memory;
}

void HostedGroup::connect_shards(Blocking& blocking, Deadline deadline) {
  std::vector<HostedShard> shards;
  for (const Stripe& stripe : plan_.stripes) {
    if (stripe.count == 0) continue;
    shards.push_back(stripe.owner == self_ ? shard_
                                           : caf::actor_cast<HostedShard>(
                                                 remote_->resolve(blocking, {stripe.owner.value}, name_, deadline)));
  }
  caf::anon_send(worker_, SetShards{std::move(shards)});
}

std::vector<caf::actor> HostedGroup::actors() const {
  std::vector<caf::actor> all{caf::actor_cast<caf::actor>(worker_)};
  if (shard_) all.push_back(caf::actor_cast<caf::actor>(shard_));
  return all;
}

std::optional<HostingReport> HostedGroup::staleness(Deadline deadline) const {
  std::optional<HostingReport> found;
  if (!shard_) return found;
  caf::scoped_actor self(system_);
  self->request(shard_, std::chrono::ceil<std::chrono::milliseconds>(deadline.left()), AskHosting{})
      .receive([&](const HostingReport& report) { found = report; }, [](const caf::error&) {});
  if (found && found->staleness.updates == 0) found.reset();
  return found;
}

}  // namespace troupe
