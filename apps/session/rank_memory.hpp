#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/exchange.hpp"
#include "runtime/graph.hpp"
#include "runtime/plan.hpp"
#include "runtime/rules/rule.hpp"
#include "runtime/stream.hpp"

namespace troupe {

/// Where everything of one rank lies in its arena. Peers of the node find the parts by the names under which they are
/// published.
struct RankMemory {
  Memory parameters;     // [layout] f32; the arena route has one for the node, at its leader
  Memory half;           // [layout] bf16 likewise; empty in f32
  Memory gradients;      // [layout] f32
  Memory contributions;  // what the node's other ranks may read: the gradients, and `held` behind them
  LentMemory own;        // what the policy needs beyond that; see LentMemory
  Memory sums;           // StepExchange::kStepsKept StepSums
  Memory totals;         // the same
  Memory digests;        // digest_bytes(), of jobs that compare weights
  Memory evaluations;    // kEvaluationsKept StepSums
  StripeMemory stripe;   // this rank's stripe: parts of parameters and half, its state and journal
  Memory snapshot;       // of jobs that save: a copy of the stripe and its states, from a page on
  Memory staging;        // direct route: gradients that arrive for the stripe
  TimelineId ready;      // gradients written
  TimelineId published;  // stripe updated
};

/// Takes rank `self`'s memory from its arena and publishes what peers need. The stripe's parameters are filled in by
/// join_node_memory.
RankMemory allocate_rank_memory(Arena& own, const Plan& plan, RuleKind rule, std::uint64_t count_elements, Rank self);

/// Completes `memory` with the node's shared parameters (the leader's, found in `leader`, which may be its own).
void join_node_memory(RankMemory& memory, const Arena& leader);

/// A peer's memory, found by name in its opened arena; what it does not share stays empty. Throws Error{corrupt} when a
/// name that the plan promises is missing.
RankMemory find_rank_memory(const Arena& arena);

}  // namespace troupe
