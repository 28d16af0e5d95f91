#include "runtime/exchange/policies/hosted.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {
namespace {

/// One worker's contribution to a digest of the version vector; 0 for a worker without contributions.
std::uint64_t content_of(std::size_t worker, std::uint64_t sequence) noexcept {
  if (sequence == 0) return 0;
  std::uint64_t x = (static_cast<std::uint64_t>(worker) + 1) * 0x9e3779b97f4a7c15 + sequence * 0xd1b54a32d192ed03;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

std::string_view name_of(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::none: return "none";
    case Refusal::duplicate: return "duplicate";
    case Refusal::out_of_order: return "out_of_order";
    case Refusal::stranger: return "stranger";
    case Refusal::wrong_clock: return "wrong_clock";
  }
  return "unknown";
}

HostedProgress::HostedProgress(std::uint64_t version, std::uint64_t clock) noexcept
    : version_(version), last_smallest_(clock) {}

bool HostedProgress::join(Rank worker) {
  if (takes_part(worker)) return false;
  const std::uint64_t clock = smallest_clock();
  if (workers_.size() <= worker.value) workers_.resize(worker.value + 1);
  Worker& w = workers_[worker.value];
  w.present = true;
  w.pushed = w.committed = clock;
  return true;
}

bool HostedProgress::leave(Rank worker) noexcept {
  if (!takes_part(worker)) return false;
  last_smallest_ = smallest_clock();
  workers_[worker.value].present = false;
  return true;
}

const HostedProgress::Worker* HostedProgress::find(Rank worker) const noexcept {
  return worker.value < workers_.size() ? &workers_[worker.value] : nullptr;
}

bool HostedProgress::takes_part(Rank worker) const noexcept {
  const Worker* w = find(worker);
  return w != nullptr && w->present;
}

std::size_t HostedProgress::count_workers() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& w) { return w.present; }));
}

Refusal HostedProgress::check(const HostedPush& push) const noexcept {
  const Worker* found = find(push.worker);
  if (found == nullptr) return Refusal::stranger;
  if (push.sequence <= found->sequence) return Refusal::duplicate;
  if (!found->present) return Refusal::stranger;
  if (push.sequence != found->sequence + 1) return Refusal::out_of_order;
  return push.clock != found->pushed || push.base_version > version_ ? Refusal::wrong_clock : Refusal::none;
}

Refusal HostedProgress::take(const HostedPush& push) noexcept {
  if (const Refusal refused = check(push); refused != Refusal::none) return refused;
  Worker& w = workers_[push.worker.value];
  ++w.sequence;
  ++w.pushed;
  return Refusal::none;
}

Refusal HostedProgress::check(const HostedRead& read) const noexcept {
  const Worker* found = find(read.worker);
  if (found == nullptr || !found->present) return Refusal::stranger;
  return read.clock > found->pushed ? Refusal::wrong_clock : Refusal::none;
}

ApplyUpdate HostedProgress::apply(std::vector<HostedPush> contributions, double rate_scale) {
  for (const HostedPush& push : contributions) {
    Worker& w = workers_[push.worker.value];
    histogram_.add(staleness(push));
    content_ += content_of(push.worker.value, push.sequence) - content_of(push.worker.value, w.applied);
    w.applied = push.sequence;
    // A worker that left and joined again starts at another clock; contributions of its earlier stay do not advance it.
    if (w.present && push.clock == w.committed) ++w.committed;
  }
  ++version_;
  return {version_, rate_scale, std::move(contributions)};
}

AnswerRead HostedProgress::answer(const HostedRead& read) const noexcept {
  return {read.worker, read.clock, version_, content_, read.barrier};
}

std::uint64_t HostedProgress::taken(Rank worker) const noexcept {
  const Worker* w = find(worker);
  return w == nullptr ? 0 : w->sequence;
}

std::uint64_t HostedProgress::pushed(Rank worker) const noexcept {
  const Worker* w = find(worker);
  return w == nullptr ? 0 : w->pushed;
}

std::uint64_t HostedProgress::committed(Rank worker) const noexcept {
  const Worker* w = find(worker);
  return w == nullptr ? 0 : w->committed;
}

std::uint64_t HostedProgress::smallest_clock() const noexcept {
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
  for (const Worker& w : workers_)
    if (w.present) smallest = std::min(smallest, w.committed);
  return smallest == std::numeric_limits<std::uint64_t>::max() ? last_smallest_ : smallest;
}

bool HostedProgress::everyone_pushed(std::uint64_t clock) const noexcept {
  return std::all_of(workers_.begin(), workers_.end(),
                     [clock](const Worker& w) { return !w.present || w.pushed > clock; });
}

std::vector<std::uint64_t> HostedProgress::version_vector() const {
  std::vector<std::uint64_t> sequences;
  sequences.reserve(workers_.size());
  for (const Worker& w : workers_) sequences.push_back(w.applied);
  return sequences;
}

std::uint64_t HostedProgress::staleness(const HostedPush& push) const noexcept {
  return version_ - std::min(version_, push.base_version);
}

}  // namespace troupe
