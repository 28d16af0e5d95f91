#include "devices/cpu/cpu_stream.hpp"

#include <omp.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "devices/cpu/denormals.hpp"
#include "devices/cpu/program_set.hpp"
#include "devices/cpu/update.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/thread.hpp"
#include "runtime/compute/rules/gradient_check.hpp"

namespace troupe::cpu {
namespace {

/// How often an idle stream that may spin polls before it sleeps: some tens of microseconds.
constexpr int kLooks = 2000;

/// Restores the usual treatment of denormals while a stream's thread does work that is not the stream's.
class UsualNumbers {
 public:
#if defined(__x86_64__)
  UsualNumbers() noexcept : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~0x8040U); }
  ~UsualNumbers() { _mm_setcsr(before_); }
#else
  UsualNumbers() noexcept = default;
#endif
  UsualNumbers(const UsualNumbers&) = delete;
  UsualNumbers& operator=(const UsualNumbers&) = delete;

 private:
#if defined(__x86_64__)
  const unsigned before_;
#endif
};

template <class T>
T* address_of(AddressSpace& space, const Memory& memory, std::uint64_t size_bytes, const char* what) {
  TROUPE_CHECK(memory.size_bytes == size_bytes, Code::invalid, what, " has ", memory.size_bytes, " bytes instead of ",
               size_bytes);
  return space.address_of<T>(memory);
}

/// The slices of a wait. A time in which the process was stopped takes one of them at most.
constexpr int kWaitSlices = 8;

}  // namespace

CpuStream::CpuStream(AddressSpace& space, const CpuDeviceOptions& options)
    : space_(space),
      threads_(options.threads),
      wait_deadline_(options.wait_deadline),
      may_spin_(options.may_spin),
      waits_(options.waits),
      kernels_(best_kernels()),
      own_line_(space),
      line_(own_line_.line()) {
  thread_ = start_thread("cpu-stream", [this] { work(); });
}

CpuStream::~CpuStream() {
  stop_.store(true, std::memory_order_release);
  wake_count_.fetch_add(1, std::memory_order_release);
  wake_count_.notify_one();
  thread_.join();
}

void* CpuStream::operator new(std::size_t size_bytes) {
  void* const pages = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TROUPE_CHECK_ERRNO(pages != MAP_FAILED, Code::out_of_memory, "cannot get ", size_bytes, " bytes for a stream");
  return pages;
}

void CpuStream::operator delete(void* stream, std::size_t size_bytes) noexcept { (void)munmap(stream, size_bytes); }

void CpuStream::pin(const std::vector<std::uint32_t>& cpus) { keep_on(thread_, cpus, "a stream's thread"); }

// ---- The enqueuing side ----

void CpuStream::push(const Operation& operation) {
  if (captures_) return capture_.add(operation, label_);
  push_to_ring(operation, label_);
}

void CpuStream::push_to_ring(const Operation& operation, const WorkLabel& label) {
  TROUPE_CHECK(!ring_.full(), Code::invalid, "a stream has ", OperationRing::kOperations,
               " pieces of work waiting and takes no more: enqueue fewer steps ahead");
  ring_.push(operation, label);
  wake_count_.fetch_add(1, std::memory_order_release);
  wake_count_.notify_one();
}

std::span<const void*> CpuStream::room_for(std::size_t count, Operands& taken, const char* what) {
  TROUPE_CHECK(captures_ || !ring_.full(), Code::invalid, "a stream has ", OperationRing::kOperations,
               " pieces of work waiting and takes no more: enqueue fewer steps ahead");
  const std::span<const void*> room =
      captures_ ? capture_.take_operands(count, taken) : ring_.take_operands(count, taken);
  TROUPE_CHECK(!room.empty(), Code::invalid, what, ": ", count,
               " of them do not fit behind those of the work that waits (", OperationRing::kOperands,
               " in all): enqueue fewer steps ahead");
  return room;
}

Operands CpuStream::resolve(std::span<const Memory> parts, std::uint64_t size_bytes, const char* what) {
  TROUPE_CHECK(!parts.empty(), Code::invalid, what, ": there are none");
  // All parts are checked first: a part that is refused must not leave operands in the ring that no operation releases.
  for (const Memory& part : parts) address_of<std::byte>(space_, part, size_bytes, what);
  Operands taken;
  const std::span<const void*> room = room_for(parts.size(), taken, what);
  for (std::size_t i = 0; i < parts.size(); ++i) room[i] = space_.address(parts[i]);
  return taken;
}

void CpuStream::wait(Point point) {
  if (point.value == 0) return;
  push(AwaitPoint{&space_.timeline(point.line), point.value});
}

Point CpuStream::mark() {
  push(SignalPoint{&line_, marks_ + 1});
  return {line_.id(), ++marks_};
}

void CpuStream::signal(Point point) { push(SignalPoint{&space_.timeline(point.line), point.value}); }

void CpuStream::copy(Memory to, Memory from) {
  const auto* source = space_.address_of<const std::byte>(from);
  push(CopyBytes{address_of<std::byte>(space_, to, from.size_bytes, "the target of a copy"), source, from.size_bytes});
}

void CpuStream::sum_up(Memory total, std::span<const Memory> parts) {
  auto* to = address_of<StepSums>(space_, total, sizeof(StepSums), "the total of sums");
  push(SumUp{to, resolve(parts, sizeof(StepSums), "parts of sums")});
}

void CpuStream::reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) {
  TROUPE_CHECK(to.size_bytes % sizeof(float) == 0, Code::invalid, "a reduction over ", to.size_bytes,
               " bytes, which are not whole f32");
  auto* target = space_.address_of<float>(to);
  auto* found = check.sums.size_bytes == 0
                    ? nullptr
                    : address_of<StepSums>(space_, check.sums, sizeof(StepSums), "the sums of a measured reduction");
  push(Reduce{target, to.size_bytes / sizeof(float), resolve(parts, to.size_bytes, "parts of a reduction"), found,
              check.first_element, check.ranks.data(), check.ranks.size(), check.squares});
}

void CpuStream::weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) {
  TROUPE_CHECK(to.size_bytes % sizeof(float) == 0, Code::invalid, "weights of ", to.size_bytes,
               " bytes, which are not whole f32");
  push(WeightedDelta{space_.address_of<float>(to), address_of<float>(space_, anchor, to.size_bytes, "an anchor"),
                     address_of<float>(space_, from, to.size_bytes, "weights"), to.size_bytes / sizeof(float),
                     address_of<StepSums>(space_, sums, sizeof(StepSums), "the sums of weights")});
}

void CpuStream::convert(const NumberConversion& what) {
  const auto& [to, to_type, from, from_type, residual, adds] = what;
  auto* target = address_of<std::byte>(space_, to, what.count() * size_bytes(to_type), "the target of a conversion");
  auto* kept = residual.size_bytes == 0
                   ? nullptr
                   : address_of<float>(space_, residual, from.size_bytes, "the residual of a conversion");
  push(ConvertElements{target, space_.address(from), what.count(), to_type, from_type, kept, adds});
}

void CpuStream::clear(Memory memory) { push(ClearBytes{space_.address_of<std::byte>(memory), memory.size_bytes}); }

void CpuStream::digest(Memory to, Memory of) {
  auto* result = address_of<std::uint64_t>(space_, to, sizeof(std::uint64_t), "the place of a digest");
  push(Digest{result, space_.address_of<const std::byte>(of), of.size_bytes});
}

UpdateAddresses CpuStream::addresses_of(const RuleStep& rule, const StripeMemory& stripe) const {
  return troupe::addresses_of(rule, stripe, [this](const Memory& memory, std::uint64_t size_bytes, const char* what) {
    return address_of<std::byte>(space_, memory, size_bytes, what);
  });
}

void CpuStream::add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) {
  const std::uint64_t count = stripe.stripe.count;
  if (count == 0) return;
  push(AddUpdateSquares{rule, addresses_of(rule, stripe),
                        address_of<const float>(space_, sum, count * sizeof(float), "a sum of gradients"),
                        address_of<StepSums>(space_, total, sizeof(StepSums), "the total of an update")});
}

void CpuStream::update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                       std::span<const Memory> contributions, Memory total) {
  const std::uint64_t count = stripe.stripe.count;
  if (count == 0) return;
  const UpdateAddresses at = addresses_of(rule, stripe);
  const auto* sums = address_of<StepSums>(space_, total, sizeof(StepSums), "the total of an update");
  push(Update{rule, number, at, resolve(contributions, count * sizeof(float), "contributions to an update"), sums});
}

void CpuStream::run(const RunProgram& part, std::uint32_t bucket) {
  const WorkLabel before = label_;
  if (bucket != WorkLabel::kNoBucket) label_.bucket = bucket;
  push(part);
  label_ = before;
}

void CpuStream::enqueue(Programs& programs, const std::function<void()>& work) {
  TROUPE_CHECK(!captures_, Code::invalid, "work that is enqueued as one piece cannot have such a piece inside");
  capture_.begin();
  captures_ = true;
  try {
    work();
  } catch (...) {
    captures_ = false;
    push_captured();
    throw;
  }
  captures_ = false;
  if (capture_.operations().empty()) return;
  const Form& form = capture_.split(words_);
  auto* const known = static_cast<RecordedWork*>(
      programs.find([&](const Program& one) { return dynamic_cast<const RecordedWork&>(one).form() == form; }));
  RecordedWork::Block* const block = known == nullptr ? nullptr : known->free_block();
  if (block == nullptr) {
    push_captured();
    if (known == nullptr) programs.add(std::make_unique<RecordedWork>(form, words_.size()));
    return;
  }
  std::copy(words_.begin(), words_.end(), block->words.begin());
  block->step = capture_.label(0).step;
  block->busy.store(true, std::memory_order_relaxed);  // published with the operation
  push_to_ring(Replay{known, block}, {.step = block->step});
  programs.count_replay();
}

void CpuStream::push_captured() {
  const std::span<const Operation> operations = capture_.operations();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    Operation operation = operations[i];
    if (Operands* const parts = std::visit([](auto& one) { return operands_of(one); }, operation)) {
      Operands taken;
      const std::span<const void*> room = room_for(parts->count, taken, "operands");
      std::copy(parts->data, parts->data + parts->count, room.begin());
      *parts = taken;
    }
    push_to_ring(operation, capture_.label(i));
  }
}

// ---- The stream's thread ----

bool CpuStream::wait_for_work() {
  if (!ring_.empty()) return true;
  for (int look = 0; may_spin_ && look < kLooks && ring_.empty() && !stop_.load(std::memory_order_acquire); ++look)
    pause_cpu();
  while (ring_.empty()) {
    const std::uint32_t seen = wake_count_.load(std::memory_order_acquire);
    if (!ring_.empty()) break;
    if (stop_.load(std::memory_order_acquire)) return false;
    wake_count_.wait(seen, std::memory_order_acquire);
  }
  meter_.had_nothing();
  return true;
}

void CpuStream::work() {
  flush_denormals();
  omp_set_num_threads(static_cast<int>(threads_));  // of this thread's kernels alone
  while (wait_for_work()) {
    if (const auto* const recorded = std::get_if<Replay>(&ring_.front())) {
      replay(*recorded);
    } else {
      next_ = ring_.second();
      do_operation(ring_.front(), ring_.label());
    }
    ring_.pop();
  }
}

void CpuStream::do_operation(const Operation& operation, const WorkLabel& label) {
  if (!ended_) {
    if (const Status status = execute(operation); !status.ok()) end(status);
  }
  const Clock::time_point begun = meter_.last();
  meter_.did(operation);
  if (row_ != nullptr) note(operation, label, begun);
}

/// Executes the form's operations, each with its values from the block.
void CpuStream::replay(const Replay& replay) {
  auto* const block = static_cast<RecordedWork::Block*>(replay.block);
  const Form& form = replay.work->form();
  const std::uint64_t* words = block->words.data();
  const auto with_values = [&](std::size_t index) {
    Operation operation = form.operations[index];
    std::visit([&](auto& one) { for_values(one, GiveValues{words}); }, operation);
    return operation;
  };
  Operation at_hand = with_values(0);
  for (std::size_t i = 0; i < form.operations.size(); ++i) {
    Operation following = at_hand;
    const bool more = i + 1 < form.operations.size();
    if (more) following = with_values(i + 1);
    next_ = more ? &following : ring_.second();
    do_operation(at_hand, {block->step, form.buckets[i]});
    at_hand = following;
  }
  block->busy.store(false, std::memory_order_release);
}

namespace {

const char* phase_of(const RunProgram& program) noexcept {
  switch (program.part) {
    case ProgramPart::forward:
    case ProgramPart::forward_and_loss: return "forward";
    case ProgramPart::backward: return "backward";
    case ProgramPart::evaluate: return "evaluate";
    case ProgramPart::products: return "products";
    case ProgramPart::no_rows: return "no rows";
  }
  return "program";
}

struct PhaseOf {
  const char* operator()(const AwaitPoint&) const noexcept { return "wait"; }
  const char* operator()(const SignalPoint&) const noexcept { return "signal"; }
  const char* operator()(const CopyBytes&) const noexcept { return "copy"; }
  const char* operator()(const SumUp&) const noexcept { return "sum up"; }
  const char* operator()(const Reduce& o) const noexcept { return o.sums == nullptr ? "reduce" : "reduce with norm"; }
  const char* operator()(const WeightedDelta&) const noexcept { return "weighted delta"; }
  const char* operator()(const ConvertElements& o) const noexcept { return o.adds ? "add converted" : "convert"; }
  const char* operator()(const ClearBytes&) const noexcept { return "clear"; }
  const char* operator()(const Digest&) const noexcept { return "digest"; }
  const char* operator()(const AddUpdateSquares&) const noexcept { return "add update squares"; }
  const char* operator()(const Update&) const noexcept { return "update"; }
  const char* operator()(const RunProgram& program) const noexcept { return phase_of(program); }
  const char* operator()(const Replay&) const noexcept { return "replay"; }
};

}  // namespace

/// Records that `operation` ran from `begun` until now. Shorter ones than a microsecond are left out; there are too
/// many.
void CpuStream::note(const Operation& operation, const WorkLabel& label, Clock::time_point begun) const noexcept {
  constexpr std::chrono::microseconds kLeast{1};
  if (meter_.last() - begun < kLeast) return;
  row_->span(std::visit(PhaseOf{}, operation), begun, meter_.last(), label);
}

void CpuStream::end(const Status& why) noexcept {
  ended_ = true;
  line_.poison(why);
}

namespace {

/// Executes what only works on memory.
struct Compute {
  const Kernels& kernels;

  void operator()(const CopyBytes& operation) const {
    std::memmove(operation.to, operation.from, operation.size_bytes);
  }
  void operator()(const SumUp& operation) const {
    StepSums total;
    for (const StepSums* part : operation.parts.of<StepSums>()) total.add(*part);
    *operation.total = total;
  }
  void operator()(const Reduce& operation) const {
    const std::span<const float* const> parts = operation.parts.of<float>();
    reduce(kernels, operation.to, parts, operation.count);
    if (operation.sums == nullptr) return;
    const double squares = sum_of_squares(operation.to, operation.count, kernels.add_squares);
    note_gradient(*operation.sums, squares, operation.to, parts, operation.count,
                  {{}, operation.first_element, {operation.ranks, operation.count_ranks}, operation.squares});
  }
  void operator()(const WeightedDelta& operation) const {
    const auto samples = static_cast<float>(operation.sums->samples);
    kernels.weighted_delta(operation.to, operation.anchor, operation.from, samples, operation.count);
  }
  void operator()(const ConvertElements& operation) const {
    if (operation.adds && operation.from_type == DType::bf16) {
      kernels.add_widened(static_cast<float*>(operation.to), static_cast<const std::uint16_t*>(operation.from),
                          operation.count);
    } else if (operation.adds) {
      auto* const to = static_cast<float*>(operation.to);
      kernels.add(to, to, static_cast<const float*>(operation.from), operation.count);
    } else if (operation.residual != nullptr && operation.to_type == DType::bf16) {
      kernels.round_with_residual(static_cast<std::uint16_t*>(operation.to), static_cast<const float*>(operation.from),
                                  operation.residual, operation.count);
    } else if (operation.residual != nullptr) {
      convert_elements_with_residual(static_cast<std::byte*>(operation.to), operation.to_type,
                                     static_cast<const float*>(operation.from), operation.residual, operation.count);
    } else if (operation.to_type == operation.from_type) {
      std::memmove(operation.to, operation.from, operation.count * size_bytes(operation.to_type));
    } else if (operation.to_type == DType::bf16) {
      kernels.round(static_cast<std::uint16_t*>(operation.to), static_cast<const float*>(operation.from),
                    operation.count);
    } else {
      kernels.widen(static_cast<float*>(operation.to), static_cast<const std::uint16_t*>(operation.from),
                    operation.count);
    }
  }
  void operator()(const ClearBytes& operation) const { std::memset(operation.at, 0, operation.size_bytes); }
  void operator()(const Digest& operation) const { *operation.to = xxh3({operation.of, operation.size_bytes}); }
  void operator()(const AddUpdateSquares& operation) const {
    add_update_squares(kernels, operation.rule, operation.stripe, operation.sum, *operation.total);
  }
  void operator()(const Update& operation) const {
    update(kernels, operation.rule, operation.number, operation.stripe, operation.contributions.of<float>(),
           *operation.total, NoProbe{});
  }
  void operator()(const RunProgram& operation) const {
    operation.programs->for_rows(operation.computed).run(operation);
  }
  // The stream itself executes these.
  void operator()(const AwaitPoint&) const {}
  void operator()(const SignalPoint&) const {}
  void operator()(const Replay&) const {}
};

}  // namespace

Status CpuStream::execute(const Operation& operation) {
  try {
    if (const auto* const wait = std::get_if<AwaitPoint>(&operation)) return await(*wait);
    if (const auto* const signal = std::get_if<SignalPoint>(&operation))
      raise(*signal);
    else
      std::visit(Compute{kernels_}, operation);
    return {};
  } catch (const Error& error) {
    return error.status();
  } catch (const std::exception& error) {
    return {Code::device_fault, text("a cpu stream: ", error.what())};
  }
}

/// The wait is divided into slices, and one that ends late counts as if it had ended in time: while this process was
/// stopped (by a batch system, or by a container that is paused), its peers probably were, too.
Status CpuStream::await(const AwaitPoint& operation) {
  if (!std::exchange(announced_, false) && operation.line->value() >= operation.value) return {};
  const auto longest = std::max(std::chrono::milliseconds{1}, wait_deadline_ / kWaitSlices);
  for (auto left = wait_deadline_; left.count() > 0;) {
    const auto slice = std::min(left, longest);
    Status status = wait_until(operation, Deadline::after(slice));
    if (status.code() != Code::timeout || !operation.line->status().ok()) return status;
    left -= slice;
  }
  return overdue(operation);
}

Status CpuStream::wait_until(const AwaitPoint& operation, Deadline deadline) {
  constexpr std::string_view what = "a point of a stream";
  Blocking blocking = Blocking::on_thread("cpu-stream");
  if (waits_ == nullptr) return operation.line->wait(blocking, operation.value, deadline, what);
  const UsualNumbers meanwhile;
  return waits_->wait(blocking, *operation.line, operation.value, deadline, what);
}

/// The text begins with the rank that is waited for, since a poisoned line can carry only a short text.
Status CpuStream::overdue(const AwaitPoint& operation) const {
  const TimelineId line = operation.line->id();
  const std::string whom = line.arena.value == 0 ? "this process" : text("rank ", creator_of(line.arena).value);
  return {Code::timeout, text("waited ", wait_deadline_.count(), " ms for ", whom, " (faults.exchange_s) to reach ",
                              operation.value, " on line ", line.index, " of arena ", line.arena.value,
                              " (it stands at ", operation.line->value(), ")")};
}

/// Whether the next operation is a wait that ActiveWait may shorten and that has not been satisfied yet.
bool CpuStream::waits_next() const noexcept {
  const auto* const wait = next_ == nullptr ? nullptr : std::get_if<AwaitPoint>(next_);
  return wait != nullptr && wait->line->id().arena.value == 0 && wait->line->value() < wait->value;
}

void CpuStream::raise(const SignalPoint& operation) {
  if (waits_ != nullptr && waits_next()) {
    waits_->about_to_wait();
    announced_ = true;
  }
  operation.line->signal(operation.value);
}

}  // namespace troupe::cpu
