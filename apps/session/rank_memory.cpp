#include "apps/session/rank_memory.hpp"

#include <algorithm>
#include <cstring>

#include "actors/device_actor.hpp"
#include "apps/session/exchange_groups.hpp"
#include "runtime/planning/planner.hpp"
#include "transports/collectives/direct_communicator.hpp"

namespace troupe {
namespace {

constexpr const char* kTicketName = "device_memory";
constexpr const char* kGathered = "gathered";
constexpr const char* kOwnScratch = "own_scratch";
constexpr const char* kNcclProgress = "nccl_progress";
constexpr const char* kNcclEnded = "nccl_ended";
constexpr const char* kStateNames[kMaxStateSlots] = {"state0", "state1", "state2"};

Memory require(const Arena& arena, const std::string& name) {
  const auto found = arena.find(name);
  TROUPE_CHECK(found.has_value(), Code::corrupt, "the arena of a peer has no part named ", name);
  return *found;
}
TimelineId require_line(const Arena& arena, const std::string& name) {
  const auto found = arena.find_timeline(name);
  TROUPE_CHECK(found.has_value(), Code::corrupt, "the arena of a peer has no timeline named ", name);
  return *found;
}

/// The name under which a part of a group is published: the group's number follows it.
std::string name_in(const GroupPlan& group, const char* what) { return text(what, '.', group.id.value); }

std::uint64_t count_elements(const Plan& plan) { return plan.groups.back().first + plan.groups.back().count; }

Memory part_of(const Memory& layout, const GroupPlan& group, std::uint64_t element_bytes) noexcept {
  return elements(layout, group.first, group.count, element_bytes);
}

/// Sets the gradients and, after the gradients of all groups, the scratch memory. A rank's peers find a group's scratch
/// memory by its distance from the gradients.
void set_contributions(GroupMemory& m, const GroupPlan& group, const Memory& all, std::uint64_t whole, bool held) {
  const std::uint64_t first = group.first * sizeof(float), size = group.count * sizeof(float);
  m.contributions = slice(all, first, held ? whole + size : size);
  m.gradients = slice(m.contributions, 0, size);
  if (held) m.scratch = slice(m.contributions, whole, size);
}

/// The staging memory of each direct communicator of the rank, by the sets of ranks with which it exchanges.
std::vector<std::uint64_t> staging_sizes(const Plan& plan, const GroupPlan& group, Rank self, bool device_memory) {
  std::vector<std::uint64_t> sizes;
  const auto compressor = make_compressor(group.compression.kind);
  for (DirectGroup& shape : direct_groups(plan, group, self)) {
    shape.compressor = compressor.get();
    shape.device_memory = device_memory;
    if (has_16_bits(plan.dtype)) shape.half.size_bytes = group.count * size_bytes(plan.dtype);
    sizes.push_back(direct_staging_bytes(shape));
  }
  return sizes;
}

/// The ranges of the group that the rank sends, adjacent ones merged; the owner is its index among those that send the
/// same.
std::vector<Stripe> sent_ranges(const Plan& plan, const GroupPlan& group, Rank self) {
  std::vector<Stripe> ranges;
  for (const DirectGroup& shape : direct_groups(plan, group, self)) {
    for (const Bucket& bucket : shape.buckets) {
      if (bucket.count == 0) continue;
      if (!ranges.empty() && ranges.back().first + ranges.back().count == bucket.first)
        ranges.back().count += bucket.count;
      else
        ranges.push_back({.group = group.id, .owner = shape.rank, .first = bucket.first, .count = bucket.count});
    }
  }
  return ranges;
}

/// Allocates memory for one group, and publishes it.
class GroupTaker {
 public:
  GroupTaker(RankStore& own, const Plan& plan, const GroupPlan& group, Rank self)
      : own_(own),
        arena_(own.arena()),
        plan_(plan),
        group_(group),
        self_(self),
        needs_(needs_of(group.policies)),
        slots_(state_slots(group)) {
    for (const Stripe& stripe : group.stripes)
      if (stripe.owner == self) stripes_.push_back(stripe);
  }

  void take(GroupMemory& m) {
    for (std::size_t slot = 0; needs_.whole_state && slot < slots_; ++slot)
      m.own.state[slot] = own_.take(group_.count * sizeof(float));
    if (has_landing(group_, plan_.dtype)) {
      m.landing = own_.take(group_.count * sizeof(float));
      m.one = own_.take(sizeof(StepSums));
    }
    if (needs_tensor_norms(group_.kind)) m.squares = own_.take(squares_bytes(group_));
    if (const std::uint64_t scratch = own_scratch_bytes(plan_, group_); scratch != 0) {
      m.own_scratch = own_.take(scratch);
      arena_.publish(name_in(group_, kOwnScratch), m.own_scratch);
    }
    m.own.carry = own_.take(sizeof(StepSums));
    m.own.round_total = own_.take(sizeof(StepSums));
    if (plan_.uses_transport()) {
      for (const std::uint64_t size_bytes : staging_sizes(plan_, group_, self_, own_.has_device_memory()))
        m.staging.push_back(arena_.allocate(size_bytes));
    }
    if (plan_.uses_nccl()) take_nccl_part(m);
    if (keeps_residual(plan_, group_)) {
      m.own.residual = own_.take(group_.count * sizeof(float));
      m.sent = sent_ranges(plan_, group_, self_);
    }
    if (plan_.has_two_levels()) take_node_part(m);
    m.ready = arena_.make_timeline();
    arena_.publish(name_in(group_, "ready"), m.ready);
    m.published = arena_.make_timeline();
    arena_.publish(name_in(group_, "published"), m.published);
    for (const Stripe& stripe : stripes_) {
      StripeMemory& part = m.stripes.emplace_back();
      StripeMemory outer;
      part.stripe = outer.stripe = stripe;
      if (has_16_bits(plan_.dtype)) part.copy_type = outer.copy_type = plan_.dtype;
      if (stripe.count != 0) take_stripe(m, part, outer);
      m.own.outer.push_back(outer);
    }
    if (plan_.is_in_one_arena() && plan_.measured)
      m.own.relief_journal = own_.take(relief_journal_bytes(group_.stripes, group_.buckets, slots_));
  }

 private:
  void take_nccl_part(GroupMemory& m) {
    m.nccl_staging = own_.take(nccl_staging_bytes(nccl_group(plan_, group_, self_)));
    m.calls = {.progress = arena_.make_timeline(), .ended = arena_.make_timeline()};
    arena_.publish(name_in(group_, kNcclProgress), m.calls.progress);
    arena_.publish(name_in(group_, kNcclEnded), m.calls.ended);
  }

  void take_node_part(GroupMemory& m) {
    m.verdict = own_.take(sizeof(StepSums));
    m.node_sums = own_.take(sizeof(StepSums));
    m.found = own_.take(sizeof(StepSums));
    if (!plan_.shares_memory()) {
      m.updated = arena_.make_timeline();
      return;
    }
    arena_.publish(name_in(group_, "verdict"), m.verdict);
    m.handed = arena_.make_timeline();
    arena_.publish(name_in(group_, "handed"), m.handed);
    m.measured = arena_.make_timeline();
    arena_.publish(name_in(group_, "measured"), m.measured);
    if (!plan_.leads_node(self_)) return;
    m.updated = arena_.make_timelines(group_.buckets.size());
    arena_.publish(name_in(group_, "updated"), m.updated);
  }

  /// Peers that share the arena find the parts of a rank's single stripe by their names.
  void publish(const char* name, const Memory& part) {
    if (plan_.is_in_one_arena()) arena_.publish(name_in(group_, name), part);
  }
  Memory take(const char* name, std::uint64_t size_bytes) {
    const Memory part = own_.take(size_bytes);
    publish(name, part);
    return part;
  }

  void take_stripe(GroupMemory& m, StripeMemory& part, StripeMemory& outer) {
    const std::uint64_t first = part.stripe.first * sizeof(float), size = part.stripe.count * sizeof(float);
    for (std::size_t slot = 0; slot < slots_; ++slot) {
      if (needs_.whole_state) {
        part.state[slot] = slice(m.own.state[slot], first, size);
        publish(kStateNames[slot], part.state[slot]);
      } else {
        part.state[slot] = take(kStateNames[slot], size);
      }
    }
    if (needs_.outer_state) outer.state[0] = take("outer", size);
    // Nobody could finish the update of a rank that is alone.
    if (!plan_.is_in_one_arena() || plan_.world_size() == 1) return;
    part.journal = take("journal", journal_bytes(slots_) * group_.buckets.size());
    if (needs_.whole_state)
      outer.journal = take("outer_journal", journal_bytes(kMaxOuterSlots) * group_.buckets.size());
  }

  RankStore& own_;
  Arena& arena_;
  const Plan& plan_;
  const GroupPlan& group_;
  const Rank self_;
  const PolicyNeeds needs_;
  const std::size_t slots_;
  std::vector<Stripe> stripes_;
};

/// The bytes that a checkpoint contains of this rank's stripes.
std::uint64_t snapshot_bytes(const Plan& plan, const std::vector<GroupMemory>& groups) {
  std::uint64_t size_bytes = 0;
  for (const GroupPlan& group : plan.groups) {
    const bool outer = needs_of(group.policies).outer_state;
    const std::size_t saved = 1 + state_slots(group) + (outer ? kMaxOuterSlots : 0);
    for (const StripeMemory& part : groups[group.id.value].stripes)
      size_bytes += saved * part.stripe.count * sizeof(float);
    for (const Stripe& range : groups[group.id.value].sent) size_bytes += range.count * sizeof(float);
  }
  return size_bytes;
}

}  // namespace

RankStore::RankStore(Arena& own, const Memory& device, const RegionTicket& ticket) : arena_(&own), device_(device) {
  const Memory told = own.allocate(sizeof ticket);
  std::memcpy(own.base() + told.offset, &ticket, sizeof ticket);
  own.publish(kTicketName, told);
}

Memory RankStore::take(std::uint64_t size_bytes) {
  if (device_.size_bytes == 0) return arena_->allocate(size_bytes);
  constexpr std::uint64_t kAlignBytes = 64;
  const std::uint64_t left = device_.size_bytes - used_bytes_;
  TROUPE_CHECK(size_bytes <= left, Code::out_of_memory, size_bytes, " bytes of device memory are wanted, ", left,
               " of ", device_.size_bytes, " are left");
  const Memory part = slice(device_, used_bytes_, size_bytes);
  used_bytes_ = std::min(device_.size_bytes, (used_bytes_ + size_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes);
  return part;
}

std::optional<RegionTicket> find_device_ticket(const AddressSpace& space, const Arena& arena) {
  const auto told = arena.find(kTicketName);
  if (!told) return std::nullopt;
  TROUPE_CHECK(told->arena == arena.id() && told->size_bytes == sizeof(RegionTicket), Code::corrupt,
               "the arena of a peer has a ticket for device memory of ", told->size_bytes, " bytes");
  RegionTicket ticket;
  std::memcpy(&ticket, space.address(*told), sizeof ticket);
  return ticket;
}

std::uint64_t device_staging_bytes(const Plan& plan, Rank self) {
  std::uint64_t all = 0;
  if (!plan.uses_transport()) return all;
  const auto add = [&](const GroupPlan& group) {
    for (const std::uint64_t size_bytes : staging_sizes(plan, group, self, true)) all += size_bytes;
  };
  for (const GroupPlan& group : plan.groups) add(group);
  if (plan.gathered_bytes != 0) add(gathered_group(plan));
  return all;
}

RankMemory allocate_rank_memory(RankStore& own, const Plan& plan, Rank self) {
  RankMemory m;
  const auto take = [&](const char* name, std::uint64_t size_bytes) {
    const Memory part = own.take(size_bytes);
    own.arena().publish(name, part);
    return part;
  };
  const std::uint64_t whole = count_elements(plan) * sizeof(float);
  const std::uint64_t half = has_16_bits(plan.dtype) ? count_elements(plan) * size_bytes(plan.dtype) : 0;
  const bool leads = !plan.shares_memory() || plan.leads_node(self);
  if (leads) {
    m.parameters = take("parameters", whole);
    if (half != 0) m.half = take("half", half);
  }
  const PolicyNeeds needs = needs_of(plan);
  const Memory contributions = take("gradients", needs.held ? 2 * whole : whole);
  m.replica.gradients = slice(contributions, 0, whole);
  // Other ranks read them, a communicator's streams do, or shards; a rank alone reads them on its own stream.
  m.replica.owns_gradients = plan.world_size() == 1 && !needs.hosted;
  Memory held_half;
  if (needs.own_weights) {
    m.replica.parameters = own.take(whole);
    if (half != 0) m.replica.half = own.take(half);
    if (half != 0) held_half = own.take(half);
  }
  if (plan.dtype == DType::f16) m.replica.loss_scale = own.take(sizeof(LossScaleState));
  m.sums = take("sums", StepExchange::ring_bytes(plan.groups.size()));
  m.totals = own.arena().allocate(StepExchange::total_bytes(plan.groups.size()));
  m.evaluations = own.arena().allocate(kEvaluationsKept * sizeof(StepSums));
  for (const GroupPlan& group : plan.groups) {
    GroupMemory& g = m.groups.emplace_back();
    set_contributions(g, group, contributions, whole, needs.held);
    g.own.held = g.scratch;
    g.own.held_half = part_of(held_half, group, size_bytes(DType::bf16));
    g.own.weights = part_of(m.replica.parameters, group, sizeof(float));
    g.own.half = part_of(m.replica.half, group, size_bytes(DType::bf16));
    GroupTaker(own, plan, group, self).take(g);
  }
  if (plan.gathered_bytes != 0) {
    const GroupPlan gathered = gathered_group(plan);
    m.gathered.parameters = own.take(gathered.count * sizeof(float));
    if (plan.shares_memory()) m.gathered.scratch = take(kGathered, gather_scratch_bytes(plan));
    GroupTaker(own, plan, gathered, self).take(m.gathered);
  }
  const std::uint64_t saved = snapshot_bytes(plan, m.groups);
  if (plan.saves && saved != 0) m.snapshot = own.arena().allocate(saved, Arena::kPageBytes);
  return m;
}

void join_node_memory(RankMemory& memory, const Plan& plan, const Arena& leader) {
  memory.parameters = require(leader, "parameters");
  if (const auto half = leader.find("half")) memory.half = *half;
  const bool own_weights = needs_of(plan).own_weights;
  if (!own_weights) {
    memory.replica.parameters = memory.parameters;
    memory.replica.half = memory.half;
  }
  for (const GroupPlan& group : plan.groups) {
    GroupMemory& m = memory.groups[group.id.value];
    m.parameters = part_of(memory.parameters, group, sizeof(float));
    m.half = part_of(memory.half, group, size_bytes(DType::bf16));
    const auto join = [&](StripeMemory& part) {
      part.parameters = elements(m.parameters, part.stripe.first, part.stripe.count, sizeof(float));
      part.half = elements(m.half, part.stripe.first, part.stripe.count, size_bytes(DType::bf16));
    };
    std::for_each(m.stripes.begin(), m.stripes.end(), join);
    std::for_each(m.own.outer.begin(), m.own.outer.end(), join);
    m.own.gradients = m.gradients;
    m.own.mine = m.stripes;
    if (!own_weights) continue;
    m.own.common = m.parameters;
    m.own.common_half = m.half;
  }
}

namespace {

/// Finds a group's lines, and its verdict, in the arena of rank `rank`.
void find_lines(GroupMemory& g, const Arena& arena, const Plan& plan, const GroupPlan& group, Rank rank) {
  g.ready = require_line(arena, name_in(group, "ready"));
  g.published = require_line(arena, name_in(group, "published"));
  if (!plan.has_two_levels()) return;
  g.handed = require_line(arena, name_in(group, "handed"));
  g.measured = require_line(arena, name_in(group, "measured"));
  g.verdict = require(arena, name_in(group, "verdict"));
  if (plan.leads_node(rank)) g.updated = require_line(arena, name_in(group, "updated"));
}

}  // namespace

RankMemory find_rank_memory(const Arena& arena, const Plan& plan, Rank rank) {
  RankMemory m;
  const Memory contributions = require(arena, "gradients");
  const std::uint64_t whole = count_elements(plan) * sizeof(float);
  m.sums = require(arena, "sums");
  if (plan.gathered_bytes != 0) {
    find_lines(m.gathered, arena, plan, gathered_group(plan), rank);
    m.gathered.scratch = require(arena, kGathered);
  }
  for (const GroupPlan& group : plan.groups) {
    GroupMemory& g = m.groups.emplace_back();
    set_contributions(g, group, contributions, whole, needs_of(plan).held);
    find_lines(g, arena, plan, group, rank);
    for (const Stripe& stripe : group.stripes)
      if (stripe.owner == rank) g.stripes.emplace_back().stripe = stripe;
    if (own_scratch_bytes(plan, group) != 0) g.own_scratch = require(arena, name_in(group, kOwnScratch));
    if (!plan.is_in_one_arena()) continue;
    StripeMemory& only = g.stripes.at(0);
    for (std::size_t slot = 0; only.stripe.count != 0 && slot < state_slots(group); ++slot)
      only.state[slot] = require(arena, name_in(group, kStateNames[slot]));
  }
  return m;
}

NcclMember find_nccl_member(const Arena& arena, const GroupPlan& group) {
  return {.progress = require_line(arena, name_in(group, kNcclProgress)),
          .ended = require_line(arena, name_in(group, kNcclEnded))};
}

}  // namespace troupe
