#include "apps/session/rank_memory.hpp"

#include "actors/device_actor.hpp"
#include "runtime/exchange.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {
namespace {

constexpr const char* kStateNames[kMaxStateSlots] = {"state0", "state1"};

Memory require(const Arena& arena, const char* name) {
  const auto found = arena.find(name);
  TROUPE_CHECK(found.has_value(), Code::corrupt, "the arena of a peer has no part named ", name);
  return *found;
}
TimelineId require_line(const Arena& arena, const char* name) {
  const auto found = arena.find_timeline(name);
  TROUPE_CHECK(found.has_value(), Code::corrupt, "the arena of a peer has no timeline named ", name);
  return *found;
}

}  // namespace

RankMemory allocate_rank_memory(Arena& own, const Plan& plan, RuleKind rule, std::uint64_t count_elements, Rank self) {
  RankMemory m;
  const auto take = [&](const char* name, std::uint64_t size_bytes) {
    const Memory part = own.allocate(size_bytes);
    own.publish(name, part);
    return part;
  };
  const bool leads = plan.route == Route::direct || plan.nodes[plan.ranks[self.value].node].leader == self.value;
  if (leads) {
    m.parameters = take("parameters", count_elements * sizeof(float));
    if (plan.dtype == DType::bf16) m.half = take("half", count_elements * troupe::size_bytes(DType::bf16));
  }
  m.gradients = take("gradients", count_elements * sizeof(float));
  m.sums = take("sums", StepExchange::kStepsKept * sizeof(StepSums));
  m.totals = own.allocate(StepExchange::kStepsKept * sizeof(StepSums));
  m.evaluations = own.allocate(kEvaluationsKept * sizeof(StepSums));
  if (plan.route == Route::direct) m.staging = own.allocate(direct_staging_bytes(plan.stripes, plan.buckets));
  m.ready = own.make_timeline();
  own.publish("ready", m.ready);
  m.published = own.make_timeline();
  own.publish("published", m.published);
  for (const Stripe& stripe : plan.stripes)
    if (stripe.tenant == self) m.stripe.stripe = stripe;
  if (m.stripe.stripe.count == 0) return m;
  for (std::size_t slot = 0; slot < state_slots(rule); ++slot)
    m.stripe.state[slot] = take(kStateNames[slot], m.stripe.stripe.count * sizeof(float));
  if (plan.saves)
    m.snapshot = own.allocate((1 + state_slots(rule)) * m.stripe.stripe.count * sizeof(float), Arena::kPageBytes);
  if (plan.route == Route::arena)
    m.stripe.journal = take("journal", journal_bytes(state_slots(rule)) * plan.buckets.size());
  return m;
}

void join_node_memory(RankMemory& memory, const Arena& leader) {
  memory.parameters = require(leader, "parameters");
  if (const auto half = leader.find("half")) memory.half = *half;
  StripeMemory& s = memory.stripe;
  s.parameters = slice(memory.parameters, s.stripe.first * sizeof(float), s.stripe.count * sizeof(float));
  if (memory.half.size_bytes != 0)
    s.half = slice(memory.half, s.stripe.first * size_bytes(DType::bf16), s.stripe.count * size_bytes(DType::bf16));
}

RankMemory find_rank_memory(const Arena& arena) {
  RankMemory m;
  m.gradients = require(arena, "gradients");
  m.sums = require(arena, "sums");
  m.ready = require_line(arena, "ready");
  m.published = require_line(arena, "published");
  return m;
}

}  // namespace troupe
