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

/// What no other rank looks into.
LentMemory allocate_own(Arena& own, const Plan& plan, const PolicyNeeds& needs, RuleKind rule,
                        std::uint64_t count_elements) {
  LentMemory m;
  const std::uint64_t whole = count_elements * sizeof(float);
  const std::uint64_t half = plan.dtype == DType::bf16 ? count_elements * troupe::size_bytes(DType::bf16) : 0;
  if (needs.own_weights) {
    m.weights = own.allocate(whole);
    if (half != 0) m.half = own.allocate(half);
  }
  if (needs.own_weights && half != 0) m.held_half = own.allocate(half);
  for (std::size_t slot = 0; needs.whole_state && slot < state_slots(rule); ++slot) m.state[slot] = own.allocate(whole);
  m.carry = own.allocate(sizeof(StepSums));
  m.round_total = own.allocate(sizeof(StepSums));
  return m;
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
  const PolicyNeeds needs = needs_of(plan.policies);
  const std::uint64_t whole = count_elements * sizeof(float);
  m.contributions = take("gradients", needs.held ? 2 * whole : whole);
  m.gradients = slice(m.contributions, 0, whole);
  m.own = allocate_own(own, plan, needs, rule, count_elements);
  if (needs.held) m.own.held = slice(m.contributions, whole, whole);
  m.sums = take("sums", StepExchange::ring_bytes(1));
  m.totals = own.allocate(StepExchange::ring_bytes(1));
  m.evaluations = own.allocate(kEvaluationsKept * sizeof(StepSums));
  if (plan.route == Route::direct) m.staging = own.allocate(direct_staging_bytes(plan.stripes, plan.buckets));
  m.ready = own.make_timeline();
  own.publish("ready", m.ready);
  m.published = own.make_timeline();
  own.publish("published", m.published);
  for (const Stripe& stripe : plan.stripes)
    if (stripe.tenant == self) m.stripe.stripe = stripe;
  if (m.stripe.stripe.count == 0) return m;
  const std::uint64_t count = m.stripe.stripe.count;
  for (std::size_t slot = 0; slot < state_slots(rule); ++slot) {
    if (needs.whole_state) {
      m.stripe.state[slot] = slice(m.own.state[slot], m.stripe.stripe.first * sizeof(float), count * sizeof(float));
      own.publish(kStateNames[slot], m.stripe.state[slot]);
    } else {
      m.stripe.state[slot] = take(kStateNames[slot], count * sizeof(float));
    }
  }
  if (needs.outer_state) m.own.outer.state[0] = take("outer", count * sizeof(float));
  const std::size_t saved = 1 + state_slots(rule) + (needs.outer_state ? kMaxOuterSlots : 0);
  if (plan.saves) m.snapshot = own.allocate(saved * count * sizeof(float), Arena::kPageBytes);
  if (plan.route == Route::arena) {
    m.stripe.journal = take("journal", journal_bytes(state_slots(rule)) * plan.buckets.size());
    if (needs.whole_state)
      m.own.outer.journal = take("outer_journal", journal_bytes(kMaxOuterSlots) * plan.buckets.size());
  }
  return m;
}

void join_node_memory(RankMemory& memory, const Arena& leader) {
  memory.parameters = require(leader, "parameters");
  if (const auto half = leader.find("half")) memory.half = *half;
  StripeMemory& s = memory.stripe;
  s.parameters = slice(memory.parameters, s.stripe.first * sizeof(float), s.stripe.count * sizeof(float));
  if (memory.half.size_bytes != 0)
    s.half = slice(memory.half, s.stripe.first * size_bytes(DType::bf16), s.stripe.count * size_bytes(DType::bf16));
  LentMemory& own = memory.own;
  own.gradients = memory.gradients;
  own.mine = s;
  own.outer.stripe = s.stripe;
  own.outer.parameters = s.parameters;
  own.outer.half = s.half;
  if (own.weights.size_bytes == 0) return;
  own.common = memory.parameters;
  own.common_half = memory.half;
}

RankMemory find_rank_memory(const Arena& arena) {
  RankMemory m;
  m.contributions = require(arena, "gradients");
  m.sums = require(arena, "sums");
  m.ready = require_line(arena, "ready");
  m.published = require_line(arena, "published");
  return m;
}

}  // namespace troupe
