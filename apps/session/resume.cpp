#include "apps/session/resume.hpp"
#include "runtime/base/words.hpp"

#include <algorithm>
#include <array>
#include <functional>

namespace troupe {
namespace {

/// Used for all pieces: parameters are found by their names, whatever groups a job divides them into.
constexpr GroupId kGroup{0};

/// What a group's state `slot` is called in a checkpoint.
CheckpointPart part_of(const GroupPlan& group, std::size_t slot) noexcept {
  constexpr std::array kStates{CheckpointPart::state0, CheckpointPart::state1};
  static_assert(kStates.size() == kMaxRuleStates);
  return slot < state_slots(group.kind) ? kStates[slot] : CheckpointPart::average;
}

constexpr CheckpointPart kOuter = CheckpointPart::outer;
constexpr CheckpointPart kResidual = CheckpointPart::residual;

void check_same(const std::string& what, const std::string& saved, const std::string& now, const std::string& folder,
                const char* setting) {
  TROUPE_CHECK(saved == now, Code::invalid, folder, ": this checkpoint has the ", what, " ", saved, ", this job ", now,
               ": set ", setting, " back, or start from the beginning with checkpoint.resume = \"never\"");
}

/// The elements of a parameter that are in a stripe.
struct Overlap {
  std::uint64_t first = 0;  // of the parameter
  std::uint64_t count = 0;
  std::uint64_t at = 0;  // the index of the first of them in the stripe
};
Overlap overlap(const Layout::Entry& entry, const GroupPlan& group, const Stripe& stripe) {
  const std::uint64_t first = group.first + stripe.first;
  const std::uint64_t begin = std::max(first, entry.first);
  const std::uint64_t end = std::min(first + stripe.count, entry.first + entry.count);
  return begin < end ? Overlap{begin - entry.first, end - begin, begin - first} : Overlap{};
}

/// The words of Graph::to_string(); blanks inside quotes and brackets do not end a word.
std::vector<std::string> words_of(std::string_view graph) {
  std::vector<std::string> words(1);
  bool quoted = false;
  int depth = 0;
  for (const char c : graph) {
    if (c == '"') quoted = !quoted;
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ' ' && !quoted && depth <= 0)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

std::string phrase(std::span<const std::string> words) { return words.empty() ? "nothing" : joined(words, " "); }

/// Says in which words two graphs differ, and whether they differ only by what follows from the data: the size of a
/// sample and the number of classes.
void check_same_model(const std::string& saved, const std::string& now, const std::string& folder) {
  if (saved == now) return;
  const std::vector<std::string> before = words_of(saved), after = words_of(now);
  std::string what;
  bool data_only = before.size() == after.size();
  if (before.size() == after.size()) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i] == after[i]) continue;
      const bool input = (i > 0 && before[i - 1] == "input") || (i > 1 && before[i - 2] == "field");
      const bool classes = i + 1 < before.size() && before[i + 1].starts_with("\"loss\"=") &&
                           before[i].substr(0, before[i].find('(')) == after[i].substr(0, after[i].find('('));
      data_only = data_only && (input || classes);
      what += text(what.empty() ? "" : ", ", input ? "samples of " : "", before[i], " where this job has ", after[i]);
    }
  } else {
    std::size_t first = 0, last = 0;
    const std::size_t least = std::min(before.size(), after.size());
    while (first < least && before[first] == after[first]) ++first;
    while (last < least - first && before[before.size() - 1 - last] == after[after.size() - 1 - last]) ++last;
    const auto middle = [&](const std::vector<std::string>& all) {
      return phrase(std::span(all).subspan(first, all.size() - last - first));
    };
    what = text(middle(before), " where this job has ", middle(after));
  }
  fail(
      Code::invalid,
      text(folder, ": this checkpoint was trained with ", data_only ? "other data" : "another model", ": ", what, "; ",
           data_only ? "let data.path name the data set that it was trained on, or set data.length back if it is a text"
                     : "set [model] back (and data.path, if the samples differ too)",
           ", or start from the beginning without --resume (checkpoint.resume = \"never\")"));
}

void check_fits(const CheckpointManifest& saved, const std::string& folder, const JoinedJob& job) {
  check_same_model(saved.model, job.plan.model, folder);
  for (const GroupPlan& group : job.plan.groups) {
    const std::string rule(name_of(group.kind));
    for (const std::string& parameter : group.parameters)
      check_same(text("rule of ", parameter), saved.group_of(parameter).rule, rule, folder, "optimizer.rule");
  }
  check_same("seed", std::to_string(saved.seed), std::to_string(job.plan.seed), folder, "train.seed");
}

}  // namespace

void check_fits(const CheckpointStart& start, const JoinedJob& job) {
  const CheckpointStore store(start.folder);
  check_fits(store.read(start.id), store.folder_of(start.id), job);
}

Resumed::Resumed(const CheckpointStart& start, const JoinedJob& job)
    : reader_(CheckpointStore(start.folder), start.id) {
  check_fits(manifest(), CheckpointStore(start.folder).folder_of(start.id), job);
}

void Resumed::load_parameters(const JoinedJob& job, std::span<float> parameters) {
  const auto& tensors = job.graph.parameters();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Layout::Entry& entry = job.layout.entries()[i];
    reader_.read(kGroup, tensors[i].name, CheckpointPart::parameters, 0, parameters.subspan(entry.first, entry.count));
  }
}

/// Values that belong to a policy begin at zero where another one begins, even if it is of the same kind.
bool Resumed::follows(std::string_view tensor, PolicyKind next) const {
  const CheckpointGroup& group = manifest().group_of(tensor);
  return (group.policy.empty() || group.policy == name_of(next)) && group.policy_steps != 0;
}

PolicyKind Resumed::next_policy(const JoinedJob& job, const GroupPlan& group) const {
  const PolicySequence policies(group.policies, job.plan.world_size());
  return policies.at({manifest().steps}, manifest().samples).kind;
}

void Resumed::load(const JoinedJob& job, HostCopies& copies, CheckpointPart part, const Stripe& stripe,
                   const Memory& to) {
  const auto& tensors = job.graph.parameters();
  const GroupPlan& group = job.plan.groups[stripe.group.value];
  const PolicyKind next = next_policy(job, group);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string& tensor = tensors[i].name;
    const Overlap some = overlap(job.layout.entries()[i], group, stripe);
    // A checkpoint of a run without an average has none, and another policy's may have no outer momentum.
    if (part == CheckpointPart::average && !manifest().has_average(tensor)) continue;
    if (some.count == 0 || (part == kOuter && !(manifest().has_outer(tensor) && follows(tensor, next)))) continue;
    const Memory memory = elements(to, some.at, some.count, sizeof(float));
    copies.write(memory, [&](std::span<std::byte> bytes) {
      reader_.read(kGroup, tensor, part, some.first, numbers<float>(bytes));
    });
  }
}

/// If as many ranks send now as when the residuals were saved, each gets its own. Otherwise they are distributed so
/// that nothing is lost or counted twice.
void Resumed::load_residual(const JoinedJob& job, HostCopies& copies, const GroupPlan& group,
                            const GroupMemory& memory) {
  const auto& tensors = job.graph.parameters();
  const PolicyKind next = next_policy(job, group);
  const std::size_t senders = job.plan.has_two_levels() ? job.plan.nodes.size() : job.plan.world_size();
  std::vector<float> kept;
  for (const Stripe& range : memory.sent) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string& tensor = tensors[i].name;
      const Overlap some = overlap(job.layout.entries()[i], group, range);
      const std::uint32_t saved = manifest().count_residuals(tensor);
      if (some.count == 0 || range.owner.value >= saved || !follows(tensor, next)) continue;
      kept.resize(some.count);
      copies.write(elements(memory.own.residual, range.first + some.at, some.count, sizeof(float)),
                   [&](std::span<std::byte> bytes) {
                     const std::span<float> sum = numbers<float>(bytes);
                     std::fill(sum.begin(), sum.end(), 0.0F);
                     for (std::size_t sender = range.owner.value; sender < saved; sender += senders) {
                       reader_.read(kGroup, tensor, kResidual, some.first, kept, static_cast<std::uint32_t>(sender));
                       std::transform(sum.begin(), sum.end(), kept.begin(), sum.begin(), std::plus<>());
                     }
                   });
    }
  }
}

void Resumed::load_state(const JoinedJob& job, HostCopies& copies, const RankMemory& memory) {
  for (const GroupPlan& group : job.plan.groups) load_group(job, copies, group, memory.groups[group.id.value]);
}

void Resumed::load_group(const JoinedJob& job, HostCopies& copies, const GroupPlan& group, const GroupMemory& memory) {
  const ExchangeMemory& own = memory.own;
  for (std::size_t slot = 0; slot < state_slots(group); ++slot) {
    if (own.state[slot].size_bytes != 0) {
      load(job, copies, part_of(group, slot),
           {.group = group.id, .owner = job.self(), .first = 0, .count = group.count}, own.state[slot]);
      continue;
    }
    for (const StripeMemory& part : memory.stripes)
      load(job, copies, part_of(group, slot), part.stripe, part.state[slot]);
  }
  for (const StripeMemory& part : own.outer)
    if (part.state[0].size_bytes != 0) load(job, copies, kOuter, part.stripe, part.state[0]);
  load_residual(job, copies, group, memory);
}

std::uint64_t Resumed::updates_of(const GroupPlan& group) const {
  std::uint64_t most = 0;
  for (const std::string& parameter : group.parameters) most = std::max(most, manifest().group_of(parameter).updates);
  return most;
}

std::optional<std::uint64_t> Resumed::policy_steps_of(const JoinedJob& job, const GroupPlan& group) const {
  const std::string& tensor = group.parameters.front();
  return follows(tensor, next_policy(job, group)) ? manifest().group_of(tensor).policy_steps : 0;
}

bool Resumed::has_average(const GroupPlan& group) const {
  return std::ranges::all_of(group.parameters, [&](const std::string& name) { return manifest().has_average(name); });
}

std::vector<SnapshotPiece> pieces_of(const JoinedJob& job, const RankMemory& memory) {
  std::vector<SnapshotPiece> parts;
  const auto& tensors = job.graph.parameters();
  std::uint64_t next = 0;  // byte of the snapshot where the next piece begins
  const auto add = [&](const GroupPlan& group, const Stripe& stripe, CheckpointPart part, const Memory& whole,
                       std::uint32_t sender = 0) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Overlap some = overlap(job.layout.entries()[i], group, stripe);
      if (some.count == 0) continue;
      SnapshotPiece& piece = parts.emplace_back();
      piece.piece.group = kGroup;
      piece.piece.tensor = tensors[i].name;
      piece.piece.part = part;
      piece.piece.first = some.first;
      piece.piece.count = some.count;
      piece.piece.sender = sender;
      piece.extents = tensors[i].extents;
      piece.from = elements(whole, some.at, some.count, sizeof(float));
      piece.copy = slice(memory.snapshot, next, piece.from.size_bytes);
      next += piece.from.size_bytes;
    }
  };
  for (const GroupPlan& group : job.plan.groups) {
    const GroupMemory& m = memory.groups[group.id.value];
    for (const StripeMemory& part : m.stripes) add(group, part.stripe, CheckpointPart::parameters, part.parameters);
    for (std::size_t slot = 0; slot < state_slots(group); ++slot)
      for (const StripeMemory& part : m.stripes) add(group, part.stripe, part_of(group, slot), part.state[slot]);
    for (const StripeMemory& part : m.own.outer)
      if (part.state[0].size_bytes != 0) add(group, part.stripe, kOuter, part.state[0]);
    for (const Stripe& range : m.sent)
      add(group, range, kResidual, elements(m.own.residual, range.first, range.count, sizeof(float)),
          range.owner.value);
  }
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
