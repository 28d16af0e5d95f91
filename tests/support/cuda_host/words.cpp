#include "tests/support/cuda_host/words.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cuda::host {

std::uint64_t Words::add(Address word, Write write) {
  auto& writes = writes_[word];
  write.number = ++last_;
  if (!write.seen) unseen_.insert(word);
  writes.push_back(std::move(write));
  if (writes.size() > kRemembered) writes.pop_front();
  return last_;
}

void Words::releases(Address word, std::uint64_t value, const Clock& clock, bool for_cpu) {
  add(word, {0, value, clock, !for_cpu, false});
}

std::uint64_t Words::will_release(Address word, std::uint64_t present, const Clock& clock, bool for_cpu) {
  return add(word, {0, present, clock, !for_cpu, true});
}

void Words::released(Address word, std::uint64_t number, std::uint64_t value, const Clock& clock) {
  const auto found = writes_.find(word);
  if (found == writes_.end()) return;  // the memory is gone
  std::deque<Write>& writes = found->second;
  const auto write = std::ranges::find(writes, number, &Write::number);
  if (write == writes.end()) return;  // many have come since
  if (value == write->value) {        // a kernel that has ended its stream instead
    writes.erase(write);
    return;
  }
  write->under_way = false;
  write->value = value;
  write->clock.join(clock);
}

void Words::acquired(Address word, std::uint64_t value, Clock& cpu, Clock& waiter) {
  bool by_stream = false;
  const auto found = writes_.find(word);
  if (found != writes_.end()) {
    for (const Write& write : found->second) {
      if (!write.is_done(value)) continue;
      waiter.join(write.clock);
      by_stream = by_stream || write.under_way || without_poison(write.value) == without_poison(value);
    }
  }
  if (by_stream && value == without_poison(value)) return;
  // The host wrote it, perhaps because it had seen another word, with no call of the driver in between.
  seen_by_cpu(cpu);
  waiter.join(cpu);
}

void Words::seen_by_cpu(Clock& cpu) {
  std::erase_if(unseen_, [&](Address word) {
    const std::uint64_t value = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(word), __ATOMIC_ACQUIRE);
    std::deque<Write>& writes = writes_[word];
    for (Write& write : writes) {
      if (write.seen || !write.is_done(value)) continue;
      cpu.join(write.clock);
      write.seen = true;
    }
    return std::ranges::all_of(writes, &Write::seen);
  });
}

void Words::forget(Range range) {
  writes_.erase(writes_.lower_bound(range.begin), writes_.lower_bound(range.end()));
  unseen_.erase(unseen_.lower_bound(range.begin), unseen_.lower_bound(range.end()));
}

}  // namespace troupe::cuda::host
