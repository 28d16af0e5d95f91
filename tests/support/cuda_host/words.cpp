#include "tests/support/cuda_host/words.hpp"

namespace troupe::cuda::host {

void Words::ends(Address word) {
  const auto found = being_written_.find(word);
  if (--found->second == 0) being_written_.erase(found);
}

void Words::released(Address word, std::uint64_t value, const Clock& clock, bool for_cpu) {
  auto& writes = writes_[word];
  writes.push_back({value, clock, !for_cpu});
  if (writes.size() > kRemembered) writes.pop_front();
}

void Words::acquired(Address word, std::uint64_t value, const Clock& cpu, Clock& waiter) {
  bool by_stream = false;
  const auto found = writes_.find(word);
  if (found != writes_.end()) {
    for (const Write& write : found->second) {
      if (!reached(value, write.value)) continue;
      waiter.join(write.clock);
      by_stream = by_stream || write.value == value;
    }
  }
  if (!by_stream) waiter.join(cpu);
}

void Words::seen_by_cpu(Clock& cpu) {
  for (auto& [word, writes] : writes_) {
    if (writes.back().seen) continue;
    const std::uint64_t value = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(word), __ATOMIC_ACQUIRE);
    for (Write& write : writes) {
      if (write.seen || !reached(value, write.value)) continue;
      cpu.join(write.clock);
      write.seen = true;
    }
  }
}

void Words::forget(Range range) { writes_.erase(writes_.lower_bound(range.begin), writes_.lower_bound(range.end())); }

}  // namespace troupe::cuda::host
