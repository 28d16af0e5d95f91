#include "devices/cuda/cuda_stream.hpp"

#include <algorithm>
#include <cstring>

#include "devices/cuda/kernel_image.hpp"
#include "devices/cuda/profiler.hpp"
#include "devices/cuda/short_work_list.hpp"

namespace troupe::cuda {
namespace {

constexpr std::uint64_t kCountBytes = 64;  // of a count of times: lines of their own for what lanes write

Stored stored(DType type) {
  TROUPE_CHECK(type != DType::i32, Code::unsupported, "a cuda device converts f32, bf16 and f16, not i32");
  return stored_of(type);
}

std::uint64_t whole_floats(const Memory& memory, const char* what) {
  TROUPE_CHECK(memory.size_bytes % sizeof(float) == 0, Code::invalid, what, " has ", memory.size_bytes,
               " bytes, which are not whole f32");
  return memory.size_bytes / sizeof(float);
}

template <class T>
void fill_parts(MemoryMap& memory, std::span<const Memory> parts, std::uint64_t size_bytes, const char* what,
                std::span<T*> to) {
  TROUPE_CHECK(!parts.empty(), Code::invalid, what, ": there are none");
  TROUPE_CHECK(parts.size() <= to.size(), Code::unsupported, what, ": ", parts.size(), " are more than the ", to.size(),
               " that a cuda device takes");
  for (std::size_t p = 0; p < parts.size(); ++p) to[p] = memory.address_of<T>(parts[p], size_bytes, what);
}

}  // namespace

CudaStream::CudaStream(DeviceState& device)
    : device_(device),
      gpu_(device.gpu()),
      line_(device.make_line()),
      state_(gpu_, sizeof(StreamState) + kLanes * kCountBytes),
      square_scratch_(gpu_, kLanes * sizeof(SquareScratch)),
      lanes_(gpu_),
      profiler_(attached_profiler()),
      notes_{std::make_unique<Notes>(gpu_), std::make_unique<Notes>(gpu_)} {
  watch_ = std::make_unique<StreamWatch>(*gpu_, lanes_.of(Lane::main), line_.report(), line_.line(),
                                         std::array{&notes_[0]->timer, &notes_[1]->timer}, device.wait_deadline());
  device.notifier().add(*watch_);
}

CudaStream::~CudaStream() {
  const Driver& driver = gpu_->driver();
  (void)driver.ctx_set_current(gpu_->context());
  (void)driver.stream_synchronize(lanes_.of(Lane::aside));  // the main lane tells what has failed there
  const Result beside = driver.stream_synchronize(lanes_.of(Lane::beside));
  const Result main = driver.stream_synchronize(lanes_.of(Lane::main));
  const Result result = main != Result::success ? main : beside;
  device_.notifier().remove(*watch_);
  watch_->look(false);
  if (result != Result::success) watch_->end(failed_call(driver, result, gpu_->name()));
  for (const RangeList& list : lists_) device_.stream_memory().give_back(lanes_.of(Lane::main), list.device);
  (void)driver.stream_synchronize(lanes_.of(Lane::main));
}

// ---- Launches ----

void CudaStream::push(const Launch& launch, const void* args) {
  Launch placed = launch;
  placed.lane = lane_;
  if (captures_) return captured_.add(placed, args);
  expect_times();
  LaunchList one;
  one.add(placed, args);
  launch_all(one);
}

void CudaStream::launch_now(const Launch& launch, void* args, const StreamLanes& lanes) {
  if (launch.border == Launch::Border::fork) return lanes.fork(launch.other);
  if (launch.border == Launch::Border::join) return lanes.join(launch.other);
  const StreamHandle stream = lanes.of(launch.lane);
  if (launch.library != nullptr)
    return launch.library->enqueue(stream, {static_cast<const std::byte*>(args), launch.args_bytes});
  TROUPE_CUDA(
      gpu_->driver(),
      launch_kernel(gpu_->function(launch.kernel), launch.blocks, 1, 1, kBlockThreads, 1, 1, 0, stream, &args, nullptr),
      "kernel ", kKernelNames[static_cast<std::size_t>(launch.kernel)], " on ", gpu_->name());
}

/// What the driver does not take ends the stream, as what a GPU cannot do.
void CudaStream::launch_all(LaunchList& list, const LaunchRanges& ranges) {
  if (watch_->has_ended()) return;
  try {
    gpu_->use();
    LaunchRanges::Teller teller{ranges, profiler_};
    for (std::size_t l = 0; l < list.launches.size(); ++l) {
      teller.come_to(l);
      launch_now(list.launches[l], list.bytes.data() + list.launches[l].args_at, lanes_);
    }
    teller.come_to(list.launches.size());
  } catch (const Error& error) {
    note_failure(error);
  }
}

void CudaStream::note_failure(const Error& error) { watch_->end(error.status()); }

// ---- Times ----

TimesPlace CudaStream::times_place() noexcept {
  return {notes().timer.ring(),
          state_.as<std::uint64_t>(sizeof(StreamState) + static_cast<std::uint64_t>(lane_) * kCountBytes)};
}

void CudaStream::note_time(const TimedWork& ended) {
  notes().ended.push_back(ended);
  NoteTimeArgs args{nullptr, times_place()};
  launch_blocks(args, 1);
}

void CudaStream::begin_work(WorkKind kind, const char* phase, bool begins_batch) {
  TROUPE_CHECK(lane_ != Lane::aside, Code::invalid, "work aside has no times of its own");
  const auto ended = notes().borders.begin({TimedWork::Role::work, kind, begins_batch, phase, label_});
  if (ended) note_time(*ended);
}

/// Around work that is enqueued as one piece: so it has the same times whenever it is enqueued.
void CudaStream::end_open_work() {
  if (const auto ended = notes().borders.end_open()) note_time(*ended);
  notes().borders.rest();
}

/// Before the launches that note them. A stream that has ended notes none.
void CudaStream::expect_times() {
  for (const auto& lane : notes_) {
    if (!watch_->has_ended()) lane->timer.expect(lane->ended);
    lane->ended.clear();
  }
}

// ---- The lane beside ----

Point CudaStream::beside(const std::function<void()>& work) {
  TROUPE_CHECK(lane_ == Lane::main, Code::invalid, "work beside cannot have such work inside");
  push_border(Launch::Border::fork, Lane::beside);
  if (is_profiled())
    begin_range(label_.bucket == WorkLabel::kNoBucket ? "exchange" : text("exchange bucket ", label_.bucket));
  lane_ = Lane::beside;
  forked_ = true;
  try {
    work();
    end_open_work();
  } catch (...) {
    lane_ = Lane::main;
    if (is_profiled()) end_range();
    throw;
  }
  lane_ = Lane::main;
  if (is_profiled()) end_range();
  return {line_.line().id(), marks_ + 1};
}

/// The time until the lane beside is done is what the main one could not hide.
void CudaStream::join_beside() {
  if (!forked_) return;
  begin_work(WorkKind::exchange, "wait for exchange");
  push_border(Launch::Border::join, Lane::beside);
  forked_ = false;
}

void CudaStream::aside(const std::function<void()>& work) {
  TROUPE_CHECK(lane_ == Lane::main, Code::invalid, "work aside cannot have such work inside");
  push_border(Launch::Border::fork, Lane::aside);
  has_aside_ = true;
  lane_ = Lane::aside;
  try {
    work();
  } catch (...) {
    lane_ = Lane::main;
    throw;
  }
  lane_ = Lane::main;
}

void CudaStream::join_aside() {
  if (std::exchange(has_aside_, false)) push_border(Launch::Border::join, Lane::aside);
}

// ---- Ranges ----

void CudaStream::begin_range(std::string name) {
  if (captures_)
    captured_ranges_.begin(captured_.launches.size(), std::move(name));
  else
    profiler_->begin_range(name.c_str());
}

void CudaStream::end_range() {
  if (captures_)
    captured_ranges_.end(captured_.launches.size());
  else
    profiler_->end_range();
}

// ---- Recorded work ----

void CudaStream::enqueue(Programs& programs, const std::function<void()>& work) {
  TROUPE_CHECK(!captures_, Code::invalid, "work that is enqueued as one piece cannot have such a piece inside");
  join_beside();
  end_open_work();
  captured_.clear();
  captured_ranges_.clear();
  captures_ = true;
  try {
    work();
    join_beside();
    end_open_work();
  } catch (...) {
    join_aside();
    captures_ = false;
    expect_times();
    launch_all(captured_, captured_ranges_);
    throw;
  }
  captures_ = false;
  expect_times();
  if (captured_.launches.empty()) return;
  const LaunchList form = captured_.form(words_);
  auto* const known = static_cast<RecordedWork*>(
      programs.find([&](const Program& one) { return dynamic_cast<const RecordedWork&>(one).form() == form; }));
  if (known == nullptr || !known->has_space() || watch_->has_ended()) {
    launch_all(captured_, captured_ranges_);
    if (known != nullptr || watch_->has_ended()) return;
    try {
      if (auto recorded = record(form)) programs.add(std::move(recorded));
    } catch (const Error& error) {
      note_failure(error);
    }
    return;
  }
  try {
    gpu_->use();
    known->replay(lanes_.of(Lane::main), words_);
  } catch (const Error& error) {
    note_failure(error);
  }
  programs.count_replay();
}

/// Null: its values do not fit a step block, or none is free.
std::unique_ptr<RecordedWork> CudaStream::record(const LaunchList& form) {
  StepBlocks::Block* const block = words_.size() <= StepBlocks::kWords ? device_.step_blocks()->take() : nullptr;
  if (block == nullptr) return nullptr;
  try {
    return std::make_unique<RecordedWork>(gpu_, device_.step_blocks(), *block, form, words_.size(),
                                          instantiate(form, *block));
  } catch (...) {
    device_.step_blocks()->give_back(*block);
    throw;
  }
}

GraphExec CudaStream::instantiate(const LaunchList& form, const StepBlocks::Block& block) {
  const Driver& driver = gpu_->driver();
  gpu_->use();
  const Recorder::Use recorder{device_.recorder()};
  const StreamHandle origin = recorder.lanes().of(Lane::main);
  TROUPE_CUDA(driver, stream_begin_capture(origin, CaptureMode::thread_local_), "recording a step on ", gpu_->name());
  GraphHandle graph = nullptr;
  try {
    capture(recorder.lanes(), form, block);
  } catch (...) {
    (void)driver.stream_end_capture(origin, &graph);
    if (graph != nullptr) (void)driver.graph_destroy(graph);
    throw;
  }
  TROUPE_CUDA(driver, stream_end_capture(origin, &graph), "recording a step on ", gpu_->name());
  GraphExec exec = nullptr;
  const Result made = driver.graph_instantiate_with_flags(&exec, graph, kGraphUseNodePriority);
  (void)driver.graph_destroy(graph);
  if (made != Result::success) fail_call(driver, made, text("recording a step on ", gpu_->name()));
  return exec;
}

/// Its launches, each with its values in the step block, and short work that follows each other in one kernel.
void CudaStream::capture(const StreamLanes& recorder, const LaunchList& form, const StepBlocks::Block& block) {
  const auto* const state = state_.as<StreamState>();
  ShortWorkList short_works{state};
  const auto flush = [&] {
    short_works.flush(
        [&](KernelId kernel, void* args) { launch_now({.kernel = kernel, .blocks = 1}, args, recorder); });
  };
  static_assert(kCallHashBits == LibraryCall::kHashBits);
  short_works.begin(
      {state, block.count, block.ring, block.words, StepBlocks::kSlots, static_cast<std::uint32_t>(words_.size())});
  const std::uint64_t* values = block.words;
  LaunchList pointing = form;
  for (const Launch& one : pointing.launches) {
    std::byte* const args = pointing.bytes.data() + one.args_at;
    if (one.values_bytes != 0) {
      std::memcpy(args + one.given_at + one.values_bytes, &values, sizeof values);
      values += (one.values_bytes + 7) / 8;
    }
    if (short_works.add(one, args)) continue;
    flush();
    if (!short_works.add(one, args)) launch_now(one, args, recorder);
  }
  const EndStepBlockArgs end{state, block.count, block.done};
  if (!short_works.add(end)) {
    flush();
    (void)short_works.add(end);
  }
  flush();
}

// ---- Work ----

void CudaStream::wait(Point point) {
  if (point.value == 0) return;
  TROUPE_CHECK(lane_ != Lane::aside, Code::invalid, "work aside waits for nothing");
  if (point.line == line_.line().id()) {  // what was marked is done by now
    if (point.value > marks_ && lane_ == Lane::main) join_beside();
    return;
  }
  const LinePlace place = device_.place_to_wait(point);
  watch_->waits(place.word, *place.line);
  notes().ended.push_back(notes().borders.end_at_wait());
  notes().ended.push_back({.role = TimedWork::Role::wait, .phase = "wait", .label = label_});
  WaitArgs args{};
  args.times = times_place();
  args.deadline_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds{device_.wait_deadline()}.count());
  args.given.own = {place.word, point.value};
  launch_blocks(args, 1);
}

Point CudaStream::mark() {
  const Point point{line_.line().id(), ++marks_};
  signal(point);
  return point;
}

void CudaStream::signal(Point point) {
  TROUPE_CHECK(lane_ == Lane::main, Code::invalid, "work beside signals nothing");
  join_beside();
  const LinePlace place = device_.place_to_signal(point.line);
  watch_->expects(place.word, *place.line, point.value, place.carried);
  if (notes().borders.rests()) begin_work(WorkKind::exchange, "signal");
  notes().ended.push_back(notes().borders.end_at_signal(label_));
  SignalArgs args{};
  args.times = times_place();
  args.given.own = {place.word, point.value};
  launch_blocks(args, 1);
  if (!captures_) notes().borders.rest();
  device_.notifier().ring();
}

/// A word that other processes read while the GPU writes it.
std::uint64_t* CudaStream::call_word(TimelineId line) {
  std::uint64_t* const word = device_.memory().word(line);
  TROUPE_CHECK(word != nullptr, Code::invalid, "the lines of a library's calls must lie in an arena");
  return word;
}

void CudaStream::call(LibraryCalls& library, const LibraryCall& call) {
  begin_work(WorkKind::exchange, "collective");
  const std::uint64_t ranks = call.ranks.size();
  TROUPE_CHECK(ranks <= kMostCallRanks && call.rank < ranks, Code::unsupported, "a library's call among ", ranks,
               " ranks: a cuda device compares at most ", kMostCallRanks);
  auto* const heads = device_.memory().address_of<std::uint64_t>(call.heads, ranks * 8, "the heads of a call");
  const CallHead head{call.number << kCallHashBits | call.hash};
  BeginCallArgs begin{};
  begin.progress = call_word(call.progress);
  begin.head = heads + call.rank;
  begin.given.own = head;
  EndCallArgs end{};
  end.progress = begin.progress;
  end.ended = call_word(call.ended);
  end.heads = heads;
  end.ranks = static_cast<std::uint32_t>(ranks);
  for (std::size_t r = 0; r < ranks; ++r) end.names[r] = call.ranks[r].value;
  end.given.own = head;
  watch_->waits(end.ended, device_.space().timeline(call.ended));
  launch_blocks(begin, 1);
  launch_library(library, call.what);
  launch_blocks(end, 1);
}

void CudaStream::launch_library(LibraryCalls& library, std::span<const std::byte> what) {
  push({.args_bytes = static_cast<std::uint32_t>(what.size()), .library = &library}, what.data());
}

void CudaStream::copy(Memory to, Memory from) {
  auto* const source = device_.memory().address(from);
  auto* const target = device_.memory().address_of<std::byte>(to, from.size_bytes, "the target of a copy");
  const auto addresses = reinterpret_cast<std::uintptr_t>(source) | reinterpret_cast<std::uintptr_t>(target);
  if (from.size_bytes == sizeof(StepSums) &&
      addresses % alignof(StepSums) == 0) {  // in a ring: another place each time
    CopySumsArgs args{};
    args.given.own = {reinterpret_cast<StepSums*>(target), reinterpret_cast<const StepSums*>(source)};
    return launch_blocks(args, 1);  // too short for times of its own
  }
  begin_work(WorkKind::copy, "copy");
  CopyArgs args{nullptr, target, source, from.size_bytes};
  launch(args, (from.size_bytes + 15) / 16);
}

void CudaStream::clear_at(std::byte* at, std::uint64_t size_bytes) {
  ClearArgs args{nullptr, at, size_bytes};
  launch(args, (size_bytes + 15) / 16);
}

void CudaStream::clear(Memory memory) {
  begin_work(WorkKind::exchange, "clear");
  clear_at(device_.memory().address(memory), memory.size_bytes);
}

void CudaStream::sum_up(Memory total, std::span<const Memory> parts) {
  begin_work(WorkKind::exchange, "sum up");
  SumUpArgs args{};
  args.count_parts = parts.size();
  args.given.own.total = device_.memory().address_of<StepSums>(total, sizeof(StepSums), "the total of sums");
  fill_parts<const StepSums>(device_.memory(), parts, sizeof(StepSums), "parts of sums", args.given.own.parts);
  launch_blocks(args, 1);
}

void CudaStream::reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) {
  const bool reports = check.sums.size_bytes != 0;
  begin_work(WorkKind::exchange, reports ? "reduce with norm" : "reduce");
  ReduceArgs args{};
  args.count = whole_floats(to, "the target of a reduction");
  args.to = device_.memory().address_of<float>(to, to.size_bytes, "the target of a reduction");
  args.count_parts = parts.size();
  fill_parts<const float>(device_.memory(), parts, to.size_bytes, "parts of a reduction", args.parts);
  if (!reports) return launch(args, args.count);
  CheckGradientArgs found{};
  found.given.own.sums =
      device_.memory().address_of<StepSums>(check.sums, sizeof(StepSums), "the sums of a measured reduction");
  found.sum = args.to;
  found.count = args.count;
  found.first_element = check.first_element;
  found.count_parts = static_cast<std::uint32_t>(parts.size());
  found.squares = check.squares ? 1 : 0;
  std::copy_n(args.parts, parts.size(), found.parts);
  for (std::size_t p = 0; p < parts.size(); ++p) found.ranks[p] = static_cast<std::uint32_t>(check.rank_of(p));
  if (parts.size() > 1 || args.parts[0] != args.to) launch(args, args.count);
  if (!check.squares) return launch(found, found.count);
  found.scratch = square_scratch();
  if (const std::uint64_t pieces = count_square_pieces(found.count); pieces != 0)
    launch_blocks(found, static_cast<std::uint32_t>(std::min<std::uint64_t>(pieces, kGradientBlocks)));
}

/// Of the lane on which work is enqueued.
SquareScratch* CudaStream::square_scratch() const {
  TROUPE_CHECK(lane_ != Lane::aside, Code::invalid, "no squares are added up on the lane aside");
  return square_scratch_.as<SquareScratch>() + static_cast<std::size_t>(lane_);
}

void CudaStream::adapt_loss_scale(Memory state, const LossScaling& how, ScaleVerdict verdict, Memory sums,
                                  std::uint32_t updates) {
  begin_work(WorkKind::update, "adapt loss scale");
  AdaptLossScaleArgs args{};
  args.state = device_.memory().address_of<LossScaleState>(state, sizeof(LossScaleState), "a loss scale");
  args.fixed = how.fixed, args.growth_steps = how.growth_steps;
  args.verdict = verdict, args.updates = updates;
  args.given.own.sums = device_.memory().address_of<StepSums>(sums, sizeof(StepSums), "the sums of a loss scale");
  launch_blocks(args, 1);
}

void CudaStream::leave_out_bad(Memory gradients, Memory sums) {
  begin_work(WorkKind::update, "leave out");
  auto* const found = device_.memory().address_of<StepSums>(sums, sizeof(StepSums), "the sums of a gradient");
  LeaveOutGradientArgs args{};
  args.count = whole_floats(gradients, "a gradient");
  args.gradients = device_.memory().address_of<float>(gradients, gradients.size_bytes, "a gradient");
  args.given.own.sums = found;
  launch(args, args.count);
  LeaveOutSumsArgs none{};
  none.given.own.sums = found;
  launch_blocks(none, 1);
}

void CudaStream::weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) {
  begin_work(WorkKind::update, "weighted delta");
  WeightedDeltaArgs args{};
  args.count = whole_floats(to, "weights");
  args.to = device_.memory().address_of<float>(to, to.size_bytes, "weights");
  args.anchor = device_.memory().address_of<float>(anchor, to.size_bytes, "an anchor");
  args.from = device_.memory().address_of<float>(from, to.size_bytes, "weights");
  args.given.own.sums = device_.memory().address_of<StepSums>(sums, sizeof(StepSums), "the sums of weights");
  launch(args, args.count);
}

void CudaStream::convert(const NumberConversion& what) {
  begin_work(WorkKind::exchange, what.adds ? "add converted" : "convert");
  const std::uint64_t count = what.count();
  auto* const to =
      device_.memory().address_of<std::byte>(what.to, count * size_bytes(what.to_type), "the target of a conversion");
  const std::byte* const from = device_.memory().address(what.from);
  const Stored to_type = stored(what.to_type), from_type = stored(what.from_type);
  if (what.adds) {
    AddConvertedArgs args{nullptr, reinterpret_cast<float*>(to), from, count, from_type, 0};
    launch(args, count);
  } else if (what.residual.size_bytes != 0) {
    auto* const residual =
        device_.memory().address_of<float>(what.residual, what.from.size_bytes, "the residual of a conversion");
    ConvertWithResidualArgs args{nullptr, to, reinterpret_cast<const float*>(from), residual, count, to_type, 0};
    launch(args, count);
  } else {
    ConvertArgs args{nullptr, to, from, count, to_type, from_type};
    launch(args, count);
  }
}

void CudaStream::digest(Memory to, Memory of) {
  begin_work(WorkKind::copy, "digest");
  DigestArgs args{};
  args.given.own.to = device_.memory().address_of<std::uint64_t>(to, sizeof(std::uint64_t), "the place of a digest");
  args.of = device_.memory().address(of);
  args.size_bytes = of.size_bytes;
  launch_blocks(args, 1);
}

/// Written once for each list of the same ranges, on the main lane, before what reads it on either.
const Layout::Entry* CudaStream::on_device(std::span<const Layout::Entry> ranges) {
  constexpr std::size_t kMostLists = 256;
  if (ranges.empty()) return nullptr;
  const auto is_same = [&](const RangeList& list) {
    return std::equal(list.ranges.begin(), list.ranges.end(), ranges.begin(), ranges.end(),
                      [](const auto& a, const auto& b) { return a.first == b.first && a.count == b.count; });
  };
  const auto known = std::find_if(lists_.begin(), lists_.end(), is_same);
  if (known != lists_.end()) return reinterpret_cast<Layout::Entry*>(known->device);
  TROUPE_CHECK(lists_.size() < kMostLists, Code::out_of_memory, "a cuda stream keeps at most ", kMostLists,
               " lists of elements without weight decay, or of tensors");
  lists_.push_back(
      {{ranges.begin(), ranges.end()}, device_.stream_memory().take(lanes_.of(Lane::main), ranges.size_bytes())});
  auto* const to = reinterpret_cast<Layout::Entry*>(lists_.back().device);
  LaunchList now;
  for (std::size_t first = 0; first < ranges.size(); first += WriteRangesArgs::kMost) {
    const auto some = ranges.subspan(first, std::min<std::size_t>(ranges.size() - first, WriteRangesArgs::kMost));
    WriteRangesArgs args{.stream = state_.as<StreamState>(), .to = to + first, .count = some.size(), .ranges = {}};
    std::copy(some.begin(), some.end(), args.ranges);
    now.add({.kernel = KernelId::write_ranges, .blocks = 1, .args_bytes = sizeof args}, &args);
  }
  if (lane_ == Lane::beside && !captures_) now.add({.border = Launch::Border::fork, .other = Lane::beside}, this);
  launch_all(now);
  return to;
}

void CudaStream::fill(UpdateArgs& args, const RuleStep& rule, const StripeMemory& stripe) {
  MemoryMap& memory = device_.memory();
  const std::uint64_t count = stripe.stripe.count, bytes = count * sizeof(float);
  const std::size_t slots = state_slots(rule);
  args.count = count;
  args.first_element = stripe.stripe.first;
  args.parameters = memory.address_of<float>(stripe.parameters, bytes, "a stripe's parameters");
  if (stripe.half.size_bytes != 0)
    args.half =
        memory.address_of<std::uint16_t>(stripe.half, count * sizeof(std::uint16_t), "a stripe's copy in 16 bits");
  args.copy_type = stored(stripe.copy_type);
  if (stripe.loss_scale.size_bytes != 0)
    args.loss_scale = memory.address_of<LossScaleState>(stripe.loss_scale, sizeof(LossScaleState), "a loss scale");
  for (std::size_t s = 0; s < slots; ++s)
    args.state[s] = memory.address_of<float>(stripe.state[s], bytes, "a stripe's optimizer state");
  if (rule.average > 0) args.average = args.state[slots - 1];
  if (stripe.journal.size_bytes != 0) {
    TROUPE_CHECK(stripe.journal.size_bytes >= journal_bytes(slots), Code::invalid, "a stripe's journal has ",
                 stripe.journal.size_bytes, " bytes, ", name_of(rule.kind), " needs ", journal_bytes(slots));
    args.journal = reinterpret_cast<UpdateJournal*>(memory.address(stripe.journal));
  }
  args.no_decay = on_device(stripe.no_decay);
  args.count_no_decay = stripe.no_decay.size();
  if (!needs_tensor_norms(rule.kind) || stripe.scaled.empty()) return;
  args.scaled = on_device(stripe.scaled);
  args.count_scaled = stripe.scaled.size();
  args.squares = memory.address_of<TensorSquares>(stripe.squares, stripe.scaled.size() * sizeof(TensorSquares),
                                                  "the squares of tensors");
}

void CudaStream::add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) {
  if (stripe.stripe.count == 0) return;
  begin_work(WorkKind::update, "add update squares");
  UpdateArgs at{};
  fill(at, rule, stripe);
  AddUpdateSquaresArgs args{};
  args.sum = device_.memory().address_of<float>(sum, at.count * sizeof(float), "a sum of gradients");
  args.given.own = {rule, 0, device_.memory().address_of<StepSums>(total, sizeof(StepSums), "the total of an update")};
  args.parameters = at.parameters;
  std::copy_n(at.state, kMaxStateSlots, args.state);
  args.count = at.count;
  args.first_element = at.first_element;
  args.no_decay = at.no_decay;
  args.count_no_decay = at.count_no_decay;
  args.loss_scale = at.loss_scale;
  args.scratch = square_scratch();
  for (std::uint64_t first = 0; first < at.count_scaled; first += kMostScaled) {
    args.scaled = at.scaled + first;
    args.count_scaled = std::min<std::uint64_t>(at.count_scaled - first, kMostScaled);
    args.squares = const_cast<TensorSquares*>(at.squares) + first;
    launch_blocks(args, static_cast<std::uint32_t>(args.count_scaled) * kTensorBlocks);
  }
}

void CudaStream::update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                        std::span<const Memory> contributions, Memory total) {
  if (stripe.stripe.count == 0) return;
  begin_work(WorkKind::update, "update");
  UpdateArgs args{};
  fill(args, rule, stripe);
  args.given.own = {rule, number,
                    device_.memory().address_of<StepSums>(total, sizeof(StepSums), "the total of an update")};
  args.count_parts = contributions.size();
  fill_parts<const float>(device_.memory(), contributions, args.count * sizeof(float), "contributions to an update",
                          args.parts);
  // No more blocks than run at once: each begins with a chain of reads that the others would have to wait for.
  if (args.journal == nullptr) return launch(args, args.count / kPack + 2, 3 * gpu_->processors());
  const std::uint64_t blocks = (args.count + UpdateJournal::kBlockElements - 1) / UpdateJournal::kBlockElements;
  TROUPE_CHECK(number > 0 && number < (std::uint64_t{1} << 40) && blocks < (1U << kJournalBits) - 1, Code::invalid,
               "update ", number, " of ", blocks,
               " blocks does not fit the journal: numbers count from 1 to 2^40, blocks to 2^24");
  launch_blocks(args, 1);
}

}  // namespace troupe::cuda
