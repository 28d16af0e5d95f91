#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "devices/cuda/device_state.hpp"
#include "devices/cuda/launch_ranges.hpp"
#include "devices/cuda/recorded_work.hpp"
#include "devices/cuda/stream_timer.hpp"
#include "runtime/compute/stream.hpp"

namespace troupe::cuda {

/// How numbers of a type are stored.
constexpr Stored stored_of(DType type) noexcept {
  return type == DType::bf16 ? Stored::bf16 : type == DType::f16 ? Stored::f16 : Stored::f32;
}

/// A stream that consists of three streams of the driver, its lanes. Its work is kernels of ours, which do nothing once
/// the stream has failed on any lane, and calls of libraries, which run all the same; waits and signals are kernels of
/// one thread. Destroying it waits until its work is done.
class CudaStream final : public Stream, public LibraryStream {
 public:
  explicit CudaStream(DeviceState& device);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void wait(Point point) override;
  Point mark() override;
  void signal(Point point) override;
  void copy(Memory to, Memory from) override;
  void sum_up(Memory total, std::span<const Memory> parts) override;
  void reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) override;
  void weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) override;
  void clear(Memory memory) override;
  void convert(const NumberConversion& what) override;
  void digest(Memory to, Memory of) override;
  void add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) override;
  void adapt_loss_scale(Memory state, const LossScaling& how, ScaleVerdict verdict, Memory sums,
                        std::uint32_t updates) override;
  void leave_out_bad(Memory gradients, Memory sums) override;
  void update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
              std::span<const Memory> contributions, Memory total) override;
  void enqueue(Programs& programs, const std::function<void()>& work) override;
  void trace(TraceRow& row) override { notes_[0]->trace(row); }
  void about(const WorkLabel& label) override { label_ = label; }
  StreamTimes times() const noexcept override { return notes_[0]->timer.times(); }
  void make_current() const override { gpu_->use(); }
  void* device_address(const Memory& memory) override { return device_.memory().address(memory); }
  void call(LibraryCalls& library, const LibraryCall& call) override;
  Point beside(const std::function<void()>& work) override;
  void join_beside() override;
  void trace_beside(TraceRow& row) override { notes_[1]->trace(row); }
  StreamTimes times_beside() const noexcept override { return notes_[1]->timer.times(); }

  /// Enqueues a kernel, whose stream and report are set here. `items`: what its threads divide among them; `most`:
  /// blocks.
  template <class Args>
  void launch(Args& args, std::uint64_t items, std::uint32_t most = ~0U);
  template <class Args>
  void launch_blocks(Args& args, std::uint32_t blocks);
  /// Enqueues the call of `library` that `what`, plain data, describes. Unlike kernels of ours it runs also when the
  /// stream has failed.
  void launch_library(LibraryCalls& library, std::span<const std::byte> what);
  DeviceState& device() noexcept { return device_; }
  /// The point that mark() will return next.
  Point next_mark() const noexcept { return {line_.line().id(), marks_ + 1}; }
  /// What is launched from here on is work of that kind, until the next call or the next wait or signal. `phase`: its
  /// name in a trace, a string literal. `begins_batch`: what the stream waited for before was a batch.
  void begin_work(WorkKind kind, const char* phase, bool begins_batch = false);
  /// For a profiler: what is launched until the matching end is a range of that name. Only where is_profiled().
  bool is_profiled() const noexcept { return profiler_ != nullptr; }
  void begin_range(std::string name);
  void end_range();
  /// The calls of libraries that `work` makes run at the same time as what is launched behind it, until join_aside().
  /// They share no memory with that, no workspace either.
  void aside(const std::function<void()>& work);
  void join_aside();
  /// Clears memory that is known by its address.
  void clear_at(std::byte* at, std::uint64_t size_bytes);

 private:
  /// A list of ranges that kernels read, and what it was copied from.
  struct RangeList {
    std::vector<Layout::Entry> ranges;
    std::byte* device = nullptr;
  };
  /// How a lane notes its times.
  struct Notes {
    explicit Notes(std::shared_ptr<const Gpu> gpu) : timer(std::move(gpu)) {}
    void trace(TraceRow& row) {
      timer.trace(row);
      borders.see_all();
    }
    StreamTimer timer;
    WorkBorders borders;
    std::vector<TimedWork> ended{};  // at times whose kernels are not launched yet
  };
  Notes& notes() noexcept { return *notes_[static_cast<std::size_t>(lane_)]; }
  TimesPlace times_place() noexcept;
  void push(const Launch& launch, const void* args);
  void push_border(Launch::Border border, Lane other) { push({.border = border, .other = other}, this); }
  void note_time(const TimedWork& ended);
  void end_open_work();
  void expect_times();
  void launch_now(const Launch& launch, void* args, const StreamLanes& lanes);
  std::uint64_t* call_word(TimelineId line);
  void launch_all(LaunchList& list, const LaunchRanges& ranges = {});
  std::unique_ptr<RecordedWork> record(const LaunchList& form);
  GraphExec instantiate(const LaunchList& form, const StepBlocks::Block& block);
  void capture(const StreamLanes& recorder, const LaunchList& form, const StepBlocks::Block& block);
  void note_failure(const Error& error);
  const Layout::Entry* on_device(std::span<const Layout::Entry> ranges);
  void fill(UpdateArgs& args, const RuleStep& rule, const StripeMemory& stripe);
  SquareScratch* square_scratch() const;

  DeviceState& device_;
  const std::shared_ptr<const Gpu> gpu_;
  StreamLine& line_;
  DeviceMemory state_;                 // a StreamState, and for each lane how many times it has noted
  const DeviceMemory square_scratch_;  // a SquareScratch for each lane
  const StreamLanes lanes_;
  Lane lane_ = Lane::main;         // on which work is enqueued now
  bool forked_ = false;            // the main lane has not waited yet for work that was enqueued beside it
  bool has_aside_ = false;         // the same for work aside
  RangeListener* const profiler_;  // null: there is none
  LaunchRanges captured_ranges_;
  const std::array<std::unique_ptr<Notes>, kLanes> notes_;  // by lane
  WorkLabel label_;
  std::unique_ptr<StreamWatch> watch_;
  std::deque<RangeList> lists_;
  std::uint64_t marks_ = 0;
  bool captures_ = false;
  LaunchList captured_;
  std::vector<std::uint64_t> words_;
};

template <class Args>
void CudaStream::launch(Args& args, std::uint64_t items, std::uint32_t most) {
  constexpr std::uint64_t kPerProcessor = 8;
  const std::uint64_t needed = (items + kBlockThreads - 1) / kBlockThreads;
  const std::uint64_t useful = std::min<std::uint64_t>(needed, kPerProcessor * gpu_->processors());
  if (useful != 0) launch_blocks(args, static_cast<std::uint32_t>(std::min<std::uint64_t>(useful, most)));
}

template <class Args>
void CudaStream::launch_blocks(Args& args, std::uint32_t blocks) {
  args.stream = state_.as<StreamState>();
  if constexpr (requires { args.report; }) args.report = &line_.report();
  Launch launch{.kernel = kKernelOf<Args>, .blocks = blocks, .args_bytes = sizeof(Args)};
  if constexpr (requires { args.given; }) {
    launch.given_at =
        static_cast<std::uint32_t>(reinterpret_cast<std::byte*>(&args.given) - reinterpret_cast<std::byte*>(&args));
    launch.values_bytes = sizeof args.given.own;
    static_assert(sizeof args.given == sizeof args.given.own + sizeof(void*));  // the address of a step block behind it
  }
  push(launch, &args);
}

}  // namespace troupe::cuda
