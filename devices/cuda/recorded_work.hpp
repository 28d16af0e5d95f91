#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "devices/cuda/stream_lanes.hpp"
#include "runtime/compute/library_stream.hpp"
#include "runtime/compute/program.hpp"

namespace troupe::cuda {

/// One launch of a kernel, whose arguments lie in the bytes beside it, a call of a library, or a border between lanes.
struct Launch {
  enum class Border : std::uint8_t { none, fork, join };  // fork, join: nothing is launched
  KernelId kernel = KernelId::count;
  std::uint32_t blocks = 0;
  std::uint32_t args_at = 0;  // in the bytes
  std::uint32_t args_bytes = 0;
  std::uint32_t given_at = 0;       // of the arguments' Given, in the arguments
  std::uint32_t values_bytes = 0;   // of its values; 0: the kernel takes none
  LibraryCalls* library = nullptr;  // not null: the bytes are a call of it, and no kernel is launched
  Lane lane = Lane::main;
  Border border = Border::none;
  Lane other = Lane::beside;  // of a border: with the main lane
  friend bool operator==(const Launch&, const Launch&) = default;
};

/// Launches in their order.
struct LaunchList {
  std::vector<Launch> launches;
  std::vector<std::byte> bytes;

  void clear() noexcept {
    launches.clear();
    bytes.clear();
  }
  void add(const Launch& launch, const void* args);
  /// The same without values, which go to `words`.
  LaunchList form(std::vector<std::uint64_t>& words) const;
  friend bool operator==(const LaunchList&, const LaunchList&) = default;
};

/// Step blocks: for each the values of the replays that are under way, in pinned memory, and those of the one that is
/// done now, where its kernels read them. Threads: any.
class StepBlocks {
 public:
  static constexpr std::uint32_t kSlots = 8;  // replays under way
  static constexpr std::uint32_t kWords = 2048;

  struct Block {
    std::uint32_t index = 0;
    std::uint64_t* ring = nullptr;   // of kSlots * kWords, in pinned memory
    std::uint64_t* done = nullptr;   // replays, written by the GPU
    ReplayCount* count = nullptr;    // replays, of the GPU alone
    std::uint64_t* words = nullptr;  // [kWords] in the GPU's memory
    std::uint64_t begun = 0;         // replays, of the host alone
  };

  StepBlocks(std::shared_ptr<const Gpu> gpu, std::size_t count_blocks);
  StepBlocks(const StepBlocks&) = delete;
  StepBlocks& operator=(const StepBlocks&) = delete;

  /// Null: all are taken.
  Block* take();
  void give_back(Block& block);

 private:
  PinnedMemory pinned_;
  DeviceMemory device_;
  std::vector<Block> blocks_;
  std::mutex mutex_;  // guards free_
  std::vector<Block*> free_;
};

/// A form of work as a graph of the driver.
class RecordedWork final : public Program {
 public:
  /// Takes the graph and the block over.
  RecordedWork(std::shared_ptr<const Gpu> gpu, std::shared_ptr<StepBlocks> blocks, StepBlocks::Block& block,
               LaunchList form, std::size_t count_words, GraphExec graph)
      : gpu_(std::move(gpu)),
        blocks_(std::move(blocks)),
        block_(block),
        form_(std::move(form)),
        count_words_(count_words),
        graph_(graph) {}
  ~RecordedWork() override;

  const LaunchList& form() const noexcept { return form_; }
  bool busy() const noexcept override { return count_in_flight() != 0; }
  bool has_space() const noexcept { return count_in_flight() < StepBlocks::kSlots; }
  /// Launches it with `words`, of its form. There is room.
  void replay(StreamHandle stream, std::span<const std::uint64_t> words);

 private:
  std::uint64_t count_in_flight() const noexcept;

  std::shared_ptr<const Gpu> gpu_;
  std::shared_ptr<StepBlocks> blocks_;
  StepBlocks::Block& block_;
  const LaunchList form_;
  const std::size_t count_words_;  // of a slot
  const GraphExec graph_;
};

}  // namespace troupe::cuda
