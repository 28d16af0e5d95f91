#include "devices/cuda/recorded_work.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace troupe::cuda {
namespace {

constexpr std::size_t kAlignment = 16;  // of arguments

std::size_t aligned_bytes(std::size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void LaunchList::add(const Launch& launch, const void* args) {
  Launch placed = launch;
  placed.args_at = static_cast<std::uint32_t>(bytes.size());
  bytes.resize(bytes.size() + aligned_bytes(launch.args_bytes));
  if (launch.args_bytes != 0) std::memcpy(bytes.data() + placed.args_at, args, launch.args_bytes);
  launches.push_back(placed);
}

LaunchList LaunchList::form(std::vector<std::uint64_t>& words) const {
  LaunchList found = *this;
  words.clear();
  for (const Launch& launch : launches) {
    if (launch.values_bytes == 0) continue;
    std::byte* const own = found.bytes.data() + launch.args_at + launch.given_at;
    const std::size_t first = words.size();
    words.resize(first + (launch.values_bytes + 7) / 8);
    std::memcpy(words.data() + first, own, launch.values_bytes);
    std::memset(own, 0, launch.values_bytes);
  }
  return found;
}

StepBlocks::StepBlocks(std::shared_ptr<const Gpu> gpu, std::size_t count_blocks)
    : pinned_(gpu, count_blocks * (kSlots * kWords * 8 + 64)),
      device_(gpu, count_blocks * (kWords * 8 + 64)),
      blocks_(count_blocks) {
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    const std::uint64_t pinned = b * std::uint64_t{kSlots * kWords * 8 + 64},
                        device = b * std::uint64_t{kWords * 8 + 64};
    blocks_[b] = {b, pinned_.as<std::uint64_t>(pinned + 64), pinned_.as<std::uint64_t>(pinned),
                  device_.as<ReplayCount>(device), device_.as<std::uint64_t>(device + 64)};
    free_.push_back(&blocks_[b]);
  }
}

StepBlocks::Block* StepBlocks::take() {
  const std::lock_guard lock{mutex_};
  if (free_.empty()) return nullptr;
  Block* const taken = free_.back();
  free_.pop_back();
  return taken;
}

void StepBlocks::give_back(Block& block) {
  const std::lock_guard lock{mutex_};
  free_.push_back(&block);
}

RecordedWork::~RecordedWork() {
  (void)gpu_->driver().ctx_set_current(gpu_->context());
  (void)gpu_->driver().graph_exec_destroy(graph_);
  blocks_->give_back(block_);
}

std::uint64_t RecordedWork::count_in_flight() const noexcept {
  return block_.begun - std::atomic_ref{*block_.done}.load(std::memory_order_acquire);
}

void RecordedWork::replay(StreamHandle stream, std::span<const std::uint64_t> words) {
  std::copy(words.begin(), words.end(), block_.ring + (block_.begun % StepBlocks::kSlots) * count_words_);
  ++block_.begun;
  TROUPE_CUDA(gpu_->driver(), graph_launch(graph_, stream), "a recorded step on ", gpu_->name());
}

}  // namespace troupe::cuda
