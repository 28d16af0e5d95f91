#include "devices/fake/fake_device.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "devices/fake/detail/quadratic_replica.hpp"
#include "devices/reference/reference_replica.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/thread.hpp"

namespace troupe {

using fake::RecordedPieces;
using reference::Died;
using reference::Piece;
using reference::PieceKind;
using reference::WordReader;
using reference::Words;

namespace {

constexpr std::uint64_t kLongestDelay = 16;  // in turns

}  // namespace

FakeStream::FakeStream(FakeDevice& device, TimelineId line)
    : LoopStream(device.space_), device_(device), line_(line, [&device] { return device.run_one(); }) {
  device_.space_.bind(line_);
}

FakeStream::~FakeStream() {
  const std::lock_guard no_work{device_.running_};
  const std::lock_guard lock{device_.queues_};
  std::erase(device_.streams_, this);
  // Other streams that wait for this one would wait forever, and its timeline is gone.
  for (FakeStream* const other : device_.streams_) {
    for (Work& work : other->queue_) {
      if (work.awaits != &line_) continue;
      work = {nullptr, 0, [] { fail(Code::aborted, "the stream that was waited for has ended"); }};
    }
  }
  device_.space_.unbind(line_.id());
  device_.space_.end_private_timeline(line_.id());
}

void FakeStream::push(Piece piece) {
  if (captures_)
    captured_.push_back(std::move(piece));
  else
    push_now(piece);
}

void FakeStream::push_now(Work work) {
  {
    const std::lock_guard lock{device_.queues_};
    if (!ended_) queue_.push_back(std::move(work));
  }
  device_.changed_.notify_one();
}

void FakeStream::push_now(const Piece& piece) {
  const std::uint64_t until = piece.awaits != nullptr ? piece.values.all().front() : 0;
  push_now({piece.awaits, until, [run = piece.run, values = piece.values] { run(WordReader{values.all().data()}); }});
}

/// All pieces take their values from one step block.
void FakeStream::push_replay(RecordedPieces& recorded) {
  const auto block = std::make_shared<RecordedPieces::Block>();
  std::vector<std::size_t> first;
  for (const Piece& piece : captured_) {
    first.push_back(block->size());
    block->insert(block->end(), piece.values.all().begin(), piece.values.all().end());
  }
  recorded.began();
  // Freed with the last piece, however the stream ends.
  const std::shared_ptr<void> replay(nullptr, [&recorded](void*) { recorded.ended(); });
  for (std::size_t i = 0; i < recorded.pieces().size(); ++i) {
    const Piece& piece = recorded.pieces()[i];
    const std::uint64_t until = piece.awaits != nullptr ? (*block)[first[i]] : 0;
    push_now(
        {piece.awaits, until, [&piece, block, at = first[i], replay] { piece.run(WordReader{block->data() + at}); }});
  }
}

void FakeStream::enqueue(Programs& programs, const std::function<void()>& work) {
  TROUPE_CHECK(!captures_, Code::invalid, "work that is enqueued as one piece cannot have such a piece inside");
  captured_.clear();
  captures_ = true;
  const auto push_captured = [this] {
    captures_ = false;
    for (const Piece& piece : captured_) push_now(piece);
  };
  try {
    work();
  } catch (...) {
    push_captured();
    throw;
  }
  captures_ = false;
  auto* const known = static_cast<RecordedPieces*>(
      programs.find([this](const Program& one) { return dynamic_cast<const RecordedPieces&>(one).fits(captured_); }));
  if (known != nullptr) {
    push_replay(*known);
    programs.count_replay();
  } else {
    push_captured();
    programs.add(std::make_unique<RecordedPieces>(captured_));
  }
}

/// The caller holds no lock of the device, because the timeline's wakers run in here.
void FakeStream::end(const Status& why) {
  {
    const std::lock_guard lock{device_.queues_};
    ended_ = true;
    queue_.clear();
  }
  line_.poison(why);
}

bool FakeStream::may_run() const {
  if (queue_.empty()) return false;
  const Work& first = queue_.front();
  return first.awaits == nullptr || first.awaits->value() >= first.until || !first.awaits->status().ok();
}

void FakeStream::wait(Point point) {
  if (point.value == 0) return;
  Timeline& line = device_.space_.timeline(point.line);
  push({Words{PieceKind::wait, &line}, Words{point.value},
        [&line](WordReader values) {
          // The value first: a point that was reached before the poison counts as reached.
          if (line.value() >= values.take<std::uint64_t>()) return;
          const Status why = line.status();
          fail(why.code(), std::string{why.text()});
        },
        &line});
}

Point FakeStream::mark() {
  signal({line_.id(), ++marks_});
  return {line_.id(), marks_};
}

void FakeStream::call(std::function<void()> work) {
  push({Words{PieceKind::call, ++calls_}, {}, [work = std::move(work)](WordReader) { work(); }});
}

std::byte* FakeStream::address(const Memory& memory) const { return device_.address(memory); }

std::function<bool(PassMoment, std::uint64_t)> FakeStream::pass_probe() {
  const std::lock_guard lock{device_.queues_};
  return [end = std::exchange(dies_at_, std::nullopt)](PassMoment moment, std::uint64_t block) {
    return !end || end->moment != moment || end->block != block;
  };
}

void FakeStream::die_in_update(PassMoment moment, std::uint64_t block) {
  const std::lock_guard lock{device_.queues_};
  dies_at_ = PassEnd{moment, block};
}

std::size_t FakeStream::count_queued() const {
  const std::lock_guard lock{device_.queues_};
  return queue_.size();
}

FakeDevice::FakeDevice(AddressSpace& space, FakeOptions options)
    : HostMemoryDevice(space),
      space_(space),
      options_(options),
      traits_{"fake", text("fake device, seed ", options.seed), 1, false,
              options.simulated_memory ? MemoryKind::device : MemoryKind::host} {
  if (options.simulated_memory) simulated_ = std::make_unique<SimulatedDeviceMemory>(space);
  if (options.runs_itself) thread_ = start_thread("fake", [this] { keep_running(); });
}

FakeDevice::~FakeDevice() {
  {
    const std::lock_guard lock{queues_};
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Memory FakeDevice::allocate(ArenaId id, MemoryKind kind, std::uint64_t size_bytes) {
  if (kind == MemoryKind::device && simulated_) return simulated_->allocate(id, size_bytes);
  return HostMemoryDevice::allocate(id, kind, size_bytes);
}

RegionTicket FakeDevice::ticket(ArenaId id) const {
  return space_.kind(id) == MemoryKind::device && simulated_ ? simulated_->ticket(id) : HostMemoryDevice::ticket(id);
}

Memory FakeDevice::import(const RegionTicket& ticket) {
  return simulated_ && ticket.kind == MemoryKind::device ? simulated_->import(ticket)
                                                         : HostMemoryDevice::import(ticket);
}

std::byte* FakeDevice::address(const Memory& memory) const {
  return simulated_ ? simulated_->address(memory) : space_.address(memory);
}

/// Streams may wait for timelines that other threads and processes signal without notice, so this polls.
void FakeDevice::keep_running() {
  constexpr std::chrono::microseconds kLookAgain{100};
  for (;;) {
    run_until_idle();
    std::unique_lock lock{queues_};
    if (stop_) return;
    changed_.wait_for(lock, kLookAgain);
  }
}

std::unique_ptr<FakeStream> FakeDevice::fake_stream() {
  std::unique_ptr<FakeStream> stream{new FakeStream{*this, space_.make_private_timeline()}};
  const std::lock_guard lock{queues_};
  streams_.push_back(stream.get());
  return stream;
}

std::unique_ptr<Replica> FakeDevice::compile(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                                             const std::vector<Bucket>& buckets, const ReplicaMemory& memory) {
  if (!options_.computes_graph) return fake::quadratic_replica(*this, layout, batch, buckets, memory);
  return make_reference_replica({[this](const Memory& part) { return address(part); },
                                 [](Stream& stream, const ReplicaCall& call) {
                                   fake::own(stream).run(Words{PieceKind::replica, call.piece, call.object},
                                                         Words{call.batch, call.rows, call.sums},
                                                         [run = call.run](WordReader values) {
                                                           const auto batch = values.take<const std::byte*>();
                                                           const auto rows = values.take<std::uint32_t>();
                                                           run(batch, rows, values.take<StepSums*>());
                                                         });
                                 }},
                                graph, layout, batch, buckets, memory);
}

/// Chooses the next stream by the seed; null if none can continue. The caller holds queues_.
FakeStream* FakeDevice::choose() {
  std::vector<FakeStream*> able;
  std::copy_if(streams_.begin(), streams_.end(), std::back_inserter(able), [](FakeStream* s) { return s->may_run(); });
  while (!able.empty()) {
    const std::size_t pick = random_below(options_.seed, draws_++, able.size());
    FakeStream* chosen = able[pick];
    if (able.size() == 1) return chosen;
    const bool delay = options_.delay_one_in > 0 && random_below(options_.seed, draws_++, options_.delay_one_in) == 0;
    if (chosen->turns_to_skip_ == 0 && !delay) return chosen;
    chosen->turns_to_skip_ =
        delay ? 1 + random_below(options_.seed, draws_++, kLongestDelay) : chosen->turns_to_skip_ - 1;
    able.erase(able.begin() + static_cast<std::ptrdiff_t>(pick));
  }
  return nullptr;
}

std::optional<FakeDevice::Turn> FakeDevice::take_turn() {
  const std::lock_guard lock{queues_};
  FakeStream* stream = choose();
  if (stream == nullptr) return std::nullopt;
  Turn turn{stream, std::move(stream->queue_.front()), false, done_++};
  stream->queue_.pop_front();
  turn.fails = turn.number == options_.fail_at ||
               (options_.fail_one_in > 0 && random_below(options_.seed, draws_++, options_.fail_one_in) == 0);
  return turn;
}

/// `running_` is held while the work runs, so pieces run one at a time and a stream cannot end in the middle of one.
/// `queues_` is not held then: the work may signal timelines, and their wakers may push work or ask for counts.
bool FakeDevice::run_one() {
  const std::lock_guard running{running_};
  std::optional<Turn> turn = take_turn();
  if (!turn) return false;
  try {
    TROUPE_CHECK(!turn->fails, Code::device_fault, "work ", turn->number, " of the fake device was told to fail");
    turn->work.run();
  } catch (const Error& error) {
    turn->stream->end(error.status());
  } catch (const Died&) {
    const std::lock_guard lock{queues_};
    turn->stream->ended_ = true;
    turn->stream->queue_.clear();
  }
  return true;
}

std::size_t FakeDevice::run_until_idle() {
  std::size_t count = 0;
  while (run_one()) ++count;
  return count;
}

std::uint64_t FakeDevice::count_done() const {
  const std::lock_guard lock{queues_};
  return done_;
}

}  // namespace troupe
