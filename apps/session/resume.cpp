#include "apps/session/resume.hpp"

#include <algorithm>
#include <array>

namespace troupe {
namespace {

constexpr GroupId kGroup{0};

constexpr std::array kStates{CheckpointPart::state0, CheckpointPart::state1};
constexpr CheckpointPart kOuter = CheckpointPart::outer;
static_assert(kStates.size() == kMaxStateSlots);

void check_same(const std::string& what, const std::string& saved, const std::string& now, const std::string& folder,
                const char* setting) {
  TROUPE_CHECK(saved == now, Code::invalid, folder, ": this checkpoint has the ", what, " ", saved, ", this job ", now,
               ": set ", setting, " back, or start anew with checkpoint.resume = \"never\"");
}

/// The elements of parameter `index` that lie in [first, first + count) of the layout: the first of them, in the
/// parameter, and how many.
struct Overlap {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
Overlap overlap(const Layout::Entry& entry, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t begin = std::max(first, entry.first);
  const std::uint64_t end = std::min(first + count, entry.first + entry.count);
  return begin < end ? Overlap{begin - entry.first, end - begin} : Overlap{};
}

}  // namespace

Resumed::Resumed(const CheckpointStart& start, const JoinedJob& job, const Settings& settings)
    : reader_(CheckpointStore(start.folder), start.id) {
  const std::string folder = CheckpointStore(start.folder).folder_of(start.id);
  const CheckpointManifest& saved = manifest();
  check_same("model", saved.model, job.plan.model, folder, "[model]");
  check_same("rule", saved.rule, std::string(name_of(settings.rule.kind)), folder, "optimizer.rule");
  check_same("seed", std::to_string(saved.seed), std::to_string(job.plan.seed), folder, "train.seed");
}

void Resumed::load_parameters(const JoinedJob& job, std::span<float> parameters) {
  const auto& tensors = job.graph.parameters();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Layout::Entry& entry = job.layout.entries()[i];
    reader_.read(kGroup, tensors[i].name, CheckpointPart::parameters, 0, parameters.subspan(entry.first, entry.count));
  }
}

void Resumed::load(const JoinedJob& job, const AddressSpace& space, CheckpointPart part, const Stripe& stripe,
                   const Memory& to) {
  const auto& tensors = job.graph.parameters();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Layout::Entry& entry = job.layout.entries()[i];
    const Overlap some = overlap(entry, stripe.first, stripe.count);
    if (some.count == 0) continue;
    const std::uint64_t at = entry.first + some.first - stripe.first;
    const Memory memory = slice(to, at * sizeof(float), some.count * sizeof(float));
    reader_.read(kGroup, tensors[i].name, part, some.first, {space.address_of<float>(memory), some.count});
  }
}

void Resumed::load_state(const JoinedJob& job, const AddressSpace& space, const RankMemory& memory, RuleKind rule,
                         PolicyKind next) {
  const Stripe& mine = memory.stripe.stripe;
  const LentMemory& own = memory.own;
  for (std::size_t slot = 0; slot < state_slots(rule); ++slot) {
    const bool whole = own.state[slot].size_bytes != 0;
    const Stripe all{.group = mine.group, .tenant = mine.tenant, .first = 0, .count = job.layout.count_elements()};
    load(job, space, kStates[slot], whole ? all : mine, whole ? own.state[slot] : memory.stripe.state[slot]);
  }
  const bool same = manifest().policy.empty() || manifest().policy == name_of(next);
  if (own.outer.state[0].size_bytes != 0 && same && manifest().has_outer())
    load(job, space, kOuter, mine, own.outer.state[0]);
}

std::vector<SnapshotPiece> pieces_of(const JoinedJob& job, const RankMemory& memory, RuleKind rule) {
  const StripeMemory& stripe = memory.stripe;
  std::vector<SnapshotPiece> parts;
  const auto& tensors = job.graph.parameters();
  std::uint64_t next = 0;  // byte of the snapshot
  const auto add = [&](CheckpointPart part, const Memory& whole) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Layout::Entry& entry = job.layout.entries()[i];
      const Overlap some = overlap(entry, stripe.stripe.first, stripe.stripe.count);
      if (some.count == 0) continue;
      const std::uint64_t at = entry.first + some.first - stripe.stripe.first;
      SnapshotPiece& piece = parts.emplace_back();
      piece.piece.group = kGroup;
      piece.piece.tensor = tensors[i].name;
      piece.piece.part = part;
      piece.piece.first = some.first;
      piece.piece.count = some.count;
      piece.extents = tensors[i].extents;
      piece.from = slice(whole, at * sizeof(float), some.count * sizeof(float));
      piece.copy = slice(memory.snapshot, next, piece.from.size_bytes);
      next += piece.from.size_bytes;
    }
  };
  if (stripe.stripe.count == 0) return parts;
  add(CheckpointPart::parameters, stripe.parameters);
  for (std::size_t slot = 0; slot < state_slots(rule); ++slot) add(kStates[slot], stripe.state[slot]);
  if (memory.own.outer.state[0].size_bytes != 0) add(kOuter, memory.own.outer.state[0]);
  return parts;
}

std::vector<SnapshotPart> copies_of(std::span<const SnapshotPiece> pieces) {
  const auto follows = [](const Memory& next, const Memory& part) {
    return next.arena == part.arena && next.offset == part.offset + part.size_bytes;
  };
  std::vector<SnapshotPart> copies;
  for (const SnapshotPiece& piece : pieces) {
    if (!copies.empty() && follows(piece.from, copies.back().from) && follows(piece.copy, copies.back().to)) {
      copies.back().from.size_bytes += piece.from.size_bytes;
      copies.back().to.size_bytes += piece.copy.size_bytes;
    } else {
      copies.push_back({piece.from, piece.copy});
    }
  }
  return copies;
}

}  // namespace troupe
