#include "actors/exchange/hosted_stripe.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "runtime/exchange/policies/hosted.hpp"

// The policy decides at once, by counters; the stream does the work later, in the same order. By the time the stream
// reaches work that names a version, it has made that version. Therefore everything here can be enqueued without
// checking what is done. What must hold:
// - A contribution is kept (first in arrived_, then in running_) until the stream has passed the update that reads it.
//   Its sender writes there again as soon as the tensor's last handle is destroyed.
// - An answer is valid at a point after all work of its round of actions. Thus, when a worker may read the answer, its
//   own push has been applied, and the push's buffer is free.
// - A slot for sums is used again only when the update that reads it is done: the host writes the slot at once, and the
//   stream reads it later.
namespace troupe {

HostedStripe::HostedStripe(HostedParts parts)
    : parts_(std::move(parts)), snapshots_(parts_.arena, parts_.stripe.stripe.count * sizeof(float)) {
  const std::uint64_t count = parts_.stripe.stripe.count;
  TROUPE_CHECK(count > 0 && parts_.stripe.parameters.size_bytes == count * sizeof(float), Code::invalid, "shard ",
               parts_.shard, " hosts a stripe of ", count, " elements in ", parts_.stripe.parameters.size_bytes,
               " bytes");
  TROUPE_CHECK(parts_.shard <= std::numeric_limits<decltype(AppliedRecord::shard)>::max(), Code::unsupported, "shard ",
               parts_.shard, " has a number that its log has no room for");
  TROUPE_CHECK(
      !needs_verdict(parts_.rule), Code::unsupported, "shard ", parts_.shard,
      ": a hosted stripe's updates do not know the whole gradient, so they can neither clip its norm nor leave ",
      "out what is not finite");
  TROUPE_CHECK(!needs_tensor_norms(parts_.rule.kind), Code::unsupported, "shard ", parts_.shard,
               ": a hosted stripe's updates do not know the norms of whole tensors, which ", name_of(parts_.rule.kind),
               " needs; choose another rule, or a policy that exchanges in rounds");
}

void HostedStripe::start(std::shared_ptr<HostedPolicy> policy, std::optional<double> elastic_alpha,
                         std::uint64_t samples, std::uint64_t idle_pushes) {
  policy_ = std::move(policy);
  elastic_alpha_ = elastic_alpha;
  samples_ = samples;
  idle_pushes_ = idle_pushes;
  arrived_.clear();
  total_ = {};
  published_.reset();
}

Status HostedStripe::check(const HostedContribution& contribution) const {
  const std::uint64_t size_bytes = parts_.stripe.stripe.count * sizeof(float);
  if (contribution.values.memory().size_bytes != size_bytes) {
    return {Code::invalid, text("a push of ", contribution.values.memory().size_bytes, " bytes to shard ", parts_.shard,
                                ", where ", size_bytes, " are needed")};
  }
  return {};
}

HostedStripe::Outcome HostedStripe::join(Rank worker) {
  try {
    return perform(policy_->joined(worker));
  } catch (const Error& error) {
    if (error.code() != Code::invalid) throw;
    return {error.status(), Refusal::none, {}};
  }
}

HostedStripe::Outcome HostedStripe::leave(Rank worker) { return perform(policy_->left(worker)); }

HostedStripe::Outcome HostedStripe::push(const HostedPush& push, HostedContribution contribution) {
  if (Status wrong = check(contribution); !wrong.ok()) return {std::move(wrong), Refusal::none, {}};
  const HostedActions actions = policy_->pushed(push);
  if (actions.refused == Refusal::none)
    arrived_.insert_or_assign(std::pair{push.worker, push.sequence}, std::move(contribution));
  return perform(actions);
}

HostedStripe::Outcome HostedStripe::read(const HostedRead& read) { return perform(policy_->read(read)); }

HostedStripe::Outcome HostedStripe::perform(const HostedActions& actions) {
  Running running;
  std::vector<Copy> copies;
  for (const auto& action : actions.orders) {
    if (const auto* update = std::get_if<ApplyUpdate>(&action))
      enqueue_update(*update, running);
    else
      copies.push_back(enqueue_copy(std::get<AnswerRead>(action)));
  }
  // Answers become valid when all of these actions are done, including updates after the copy: the reader may then
  // overwrite the memory that it pushed.
  if (!actions.orders.empty()) {
    enqueued_ = running.done = parts_.stream.mark();
    if (!running.contributions.empty() || !running.sums.empty()) running_.push_back(std::move(running));
  }
  Outcome outcome{{}, actions.refused, {}};
  for (Copy& copy : copies) {
    Tensor values(copy.memory, {parts_.stripe.stripe.count}, DType::f32, enqueued_, std::move(copy.owner));
    outcome.answers.push_back({copy.read, copy.total, std::move(values)});
  }
  return outcome;
}

RuleStep HostedStripe::rule_of(const ApplyUpdate& update, std::uint64_t computed) const {
  if (elastic_alpha_) return elastic_pull(*elastic_alpha_);
  Rule rule = parts_.rule;
  if (parts_.rate) rule.rate = parts_.rate->at(samples_, computed);
  rule.rate *= update.rate_scale;
  return rule_step(rule, std::max<std::uint64_t>(update.version - idle_pushes_, 1));
}

void HostedStripe::enqueue_update(const ApplyUpdate& update, Running& running) {
  std::vector<HostedContribution> contributions;
  std::vector<AppliedRecord> records;
  for (const HostedPush& push : update.contributions) {
    auto found = arrived_.extract({push.worker, push.sequence});
    contributions.push_back(std::move(found.mapped()));
    records.push_back({static_cast<std::uint32_t>(update.version), static_cast<std::uint32_t>(push.clock),
                       static_cast<std::uint32_t>(push.base_version), static_cast<std::uint16_t>(parts_.shard),
                       static_cast<std::uint16_t>(push.worker.value)});  // fits: it is a peer's number
  }
  if (parts_.log) parts_.log(records);
  const Memory total = write_total(contributions);
  for (const HostedContribution& one : contributions) parts_.stream.wait(one.values.valid_from());
  std::uint64_t taken = 0, computed = 0;
  for (const HostedContribution& one : contributions) {
    taken += one.taken;
    computed += one.computed;
  }
  if (computed == 0) ++idle_pushes_;
  const RuleStep rule = rule_of(update, computed);
  std::vector<Memory> values;
  for (const HostedContribution& one : contributions) values.push_back(one.values.memory());
  StripeMemory stripe = parts_.stripe;
  if (elastic_alpha_) stripe.no_decay = {};  // the pull is not weight decay
  parts_.stream.update(rule, update.version, stripe, values, total);
  samples_ += taken;
  published_.reset();
  running.sums.push_back(total);
  for (HostedContribution& one : contributions) running.contributions.push_back(std::move(one.values));
}

Memory HostedStripe::write_total(const std::vector<HostedContribution>& contributions) {
  StepSums total;
  for (const HostedContribution& one : contributions) total.add(one.sums);
  total_ = total;
  if (elastic_alpha_) total.samples = 1;  // the pull is not a mean over samples
  collect_finished();
  if (free_sums_.empty()) free_sums_.push_back(parts_.arena.allocate(sizeof(StepSums)));
  const Memory slot = free_sums_.back();
  free_sums_.pop_back();
  *parts_.space.address_of<StepSums>(slot) = total;
  return slot;
}

HostedStripe::Copy HostedStripe::enqueue_copy(const AnswerRead& read) {
  Copy copy{read, total_, {}, {}};
  const StripeMemory& stripe = parts_.stripe;
  if (policy_->updates_wait_for_readers()) {  // then no update writes it while it is read
    copy.memory = stripe.parameters;
    return copy;
  }
  if (!published_ || published_->version != read.version) {
    auto [memory, owner] = snapshots_.take();
    parts_.stream.copy(memory, stripe.parameters);
    published_ = Published{read.version, memory, std::move(owner)};
  }
  copy.memory = published_->memory;
  copy.owner = published_->owner;
  return copy;
}

void HostedStripe::copy(std::uint64_t first, std::uint64_t count, Memory to) {
  parts_.stream.copy(to, elements(parts_.stripe.parameters, first, count, sizeof(float)));
  enqueued_ = parts_.stream.mark();
}

bool HostedStripe::reached(Point point) const {
  return point.value == 0 || parts_.space.timeline(point.line).value() >= point.value;
}

bool HostedStripe::collect_finished() {
  if (enqueued_.value == 0) return true;
  const Timeline& line = parts_.space.timeline(enqueued_.line);
  if (const Status status = line.status(); !status.ok()) fail(status.code(), std::string{status.text()});
  const std::uint64_t done = line.value();
  while (!running_.empty() && running_.front().done.value <= done) {
    for (const Memory& slot : running_.front().sums) free_sums_.push_back(slot);
    running_.pop_front();
  }
  return done >= enqueued_.value;
}

}  // namespace troupe
