#include "devices/fake/fake_device.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "devices/fake/detail/quadratic_replica.hpp"
#include "devices/reference/plain_loops.hpp"
#include "devices/reference/reference_replica.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/thread.hpp"

namespace troupe {

using fake::Piece;
using fake::RecordedPieces;
using fake::WordReader;
using fake::Words;

namespace {

/// The first word of the forms of a replica's work.
constexpr std::uint64_t kReplicaWork = 1000;

constexpr std::uint64_t kLongestDelay = 16;  // in turns

void check_size(const Memory& part, std::uint64_t size_bytes, const char* what) {
  TROUPE_CHECK(part.size_bytes == size_bytes, Code::invalid, what, " has ", part.size_bytes, " bytes, ", size_bytes,
               " are needed");
}

/// The kind of a piece of work, the first word of its form; replicas use other numbers.
enum class Kind : std::uint64_t {
  wait,
  signal,
  copy,
  copy_sums,
  sum_up,
  reduce,
  reduce_with_norm,
  weighted_delta,
  clear,
  convert,
  convert_with_residual,
  add_converted,
  digest,
  add_update_squares,
  update,
  call,
};

/// Ends a stream from inside without poison, like a killed process.
struct Died {};

}  // namespace

FakeStream::FakeStream(FakeDevice& device, TimelineId line)
    : device_(device), line_(line, [&device] { return device.run_one(); }) {
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
  push({Words{Kind::wait, &line}, Words{point.value},
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

void FakeStream::signal(Point point) {
  Timeline& line = device_.space_.timeline(point.line);
  push({Words{Kind::signal, &line}, Words{point.value},
        [&line](WordReader values) { line.signal(values.take<std::uint64_t>()); }});
}

void FakeStream::copy(Memory to, Memory from) {
  check_size(from, to.size_bytes, "the source of a copy");
  std::byte* target = device_.address(to);
  const std::byte* source = device_.address(from);
  const std::uint64_t bytes = to.size_bytes;
  if (bytes == sizeof(StepSums)) {  // in a ring: another address in each step
    return push({Words{Kind::copy_sums}, Words{target, source}, [](WordReader values) {
                   auto* const place = values.take<std::byte*>();
                   std::memmove(place, values.take<const std::byte*>(), sizeof(StepSums));
                 }});
  }
  push({Words{Kind::copy, target, source, bytes}, {}, [=](WordReader) { std::memmove(target, source, bytes); }});
}

template <class T>
std::vector<const T*> FakeStream::resolve(std::span<const Memory> parts, std::uint64_t size_bytes) const {
  TROUPE_CHECK(!parts.empty(), Code::invalid, "a stream was given no parts to add up");
  std::vector<const T*> pointers;
  for (const Memory& part : parts) {
    check_size(part, size_bytes, "a part");
    pointers.push_back(device_.address_of<const T>(part));
  }
  return pointers;
}

void FakeStream::sum_up(Memory total, std::span<const Memory> parts) {
  check_size(total, sizeof(StepSums), "a total");
  Words values{device_.address_of<StepSums>(total)};
  for (const StepSums* part : resolve<StepSums>(parts, sizeof(StepSums))) values.put(part);
  push({Words{Kind::sum_up, parts.size()}, std::move(values), [count = parts.size()](WordReader given) {
          auto* const to = given.take<StepSums*>();
          StepSums sums;
          for (std::size_t i = 0; i < count; ++i) sums.add(*given.take<const StepSums*>());
          *to = sums;
        }});
}

void FakeStream::reduce(Memory to, std::span<const Memory> parts) {
  auto* sum = device_.address_of<float>(to);
  const std::uint64_t count = to.size_bytes / sizeof(float);
  const auto from = resolve<float>(parts, to.size_bytes);
  Words form{Kind::reduce, sum, count};
  for (const float* part : from) form.put(part);
  push({std::move(form), {}, [=](WordReader) { reference::reduce(sum, from, count); }});
}

void FakeStream::reduce_with_norm(Memory to, std::span<const Memory> parts, const NormCheck& what) {
  check_size(what.sums, sizeof(StepSums), "the sums of a measured reduction");
  auto* sum = device_.address_of<float>(to);
  const std::uint64_t count = to.size_bytes / sizeof(float);
  const auto from = resolve<float>(parts, to.size_bytes);
  Words form{Kind::reduce_with_norm, sum,         count, what.first_element, what.ranks.data(),
             what.ranks.size(),      what.squares};
  for (const float* part : from) form.put(part);
  push({std::move(form), Words{device_.address_of<StepSums>(what.sums)},
        [=](WordReader values) { reference::reduce_with_norm(sum, from, count, *values.take<StepSums*>(), what); }});
}

void FakeStream::weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) {
  check_size(anchor, to.size_bytes, "an anchor");
  check_size(from, to.size_bytes, "weights");
  check_size(sums, sizeof(StepSums), "the sums of weights");
  auto* target = device_.address_of<float>(to);
  const auto* left = device_.address_of<const float>(anchor);
  const auto* right = device_.address_of<const float>(from);
  const std::uint64_t count = to.size_bytes / sizeof(float);
  push({Words{Kind::weighted_delta, target, left, right, count}, Words{device_.address_of<const StepSums>(sums)},
        [=](WordReader values) {
          const auto samples = static_cast<float>(values.take<const StepSums*>()->samples);
          reference::weighted_delta(target, left, right, samples, count);
        }});
}

void FakeStream::clear(Memory memory) {
  auto* at = device_.address_of<std::byte>(memory);
  const std::uint64_t bytes = memory.size_bytes;
  push({Words{Kind::clear, at, bytes}, {}, [=](WordReader) { std::fill_n(at, bytes, std::byte{}); }});
}

void FakeStream::convert(Memory to, DType to_type, Memory from, DType from_type) {
  const std::uint64_t count = from.size_bytes / size_bytes(from_type);
  check_size(to, count * size_bytes(to_type), "the target of a conversion");
  std::byte* target = device_.address(to);
  const std::byte* source = device_.address(from);
  push({Words{Kind::convert, target, to_type, source, from_type, count}, {}, [=](WordReader) {
          convert_elements(target, to_type, source, from_type, count);
        }});
}

void FakeStream::convert_with_residual(Memory to, DType to_type, Memory from, Memory residual) {
  const std::uint64_t count = from.size_bytes / sizeof(float);
  check_size(to, count * size_bytes(to_type), "the target of a conversion");
  check_size(residual, from.size_bytes, "the residual of a conversion");
  std::byte* target = device_.address(to);
  const auto* source = device_.address_of<const float>(from);
  auto* kept = device_.address_of<float>(residual);
  push({Words{Kind::convert_with_residual, target, to_type, source, kept, count}, {}, [=](WordReader) {
          convert_elements_with_residual(target, to_type, source, kept, count);
        }});
}

void FakeStream::add_converted(Memory to, Memory from, DType from_type) {
  const std::uint64_t count = from.size_bytes / size_bytes(from_type);
  check_size(to, count * sizeof(float), "what converted numbers are added to");
  auto* target = device_.address_of<float>(to);
  const std::byte* source = device_.address(from);
  push({Words{Kind::add_converted, target, source, from_type, count}, {}, [=](WordReader) {
          add_converted_elements(target, source, from_type, count);
        }});
}

void FakeStream::digest(Memory to, Memory of) {
  const auto* bytes = device_.address_of<const std::byte>(of);
  const std::uint64_t count = of.size_bytes;
  push({Words{Kind::digest, bytes, count}, Words{device_.address_of<std::uint64_t>(to)}, [=](WordReader values) {
          *values.take<std::uint64_t*>() = xxh3({bytes, count});
        }});
}

UpdateAddresses FakeStream::addresses_of(const RuleStep& rule, const StripeMemory& stripe) const {
  return troupe::addresses_of(rule, stripe, [this](const Memory& memory, std::uint64_t size_bytes, const char* what) {
    check_size(memory, size_bytes, what);
    return device_.address(memory);
  });
}

namespace {

/// Adds the addresses of an update to a form.
void put(Words& form, const UpdateAddresses& at) {
  form.put(at.count);
  form.put(at.parameters);
  form.put(at.half);
  for (float* const state : at.state) form.put(state);
  form.put(at.journal);
  form.put(at.first_element);
  form.put(at.no_decay.data());
  form.put(at.no_decay.size());
  form.put(at.scaled.data());
  form.put(at.scaled.size());
  form.put(at.squares);
}

}  // namespace

void FakeStream::add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) {
  if (stripe.stripe.count == 0) return;
  check_size(sum, stripe.stripe.count * sizeof(float), "a sum of gradients");
  check_size(total, sizeof(StepSums), "a total");
  const UpdateAddresses at = addresses_of(rule, stripe);
  const auto* from = device_.address_of<const float>(sum);
  Words form{Kind::add_update_squares, from};
  put(form, at);
  push({std::move(form), Words{rule, device_.address_of<const StepSums>(total)}, [=](WordReader values) {
          const auto step = values.take<RuleStep>();
          reference::add_update_squares(step, at, from, *values.take<const StepSums*>());
        }});
}

void FakeStream::update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                        std::span<const Memory> contributions, Memory total) {
  const std::uint64_t count = stripe.stripe.count;
  if (count == 0) return;
  const UpdateAddresses at = addresses_of(rule, stripe);
  check_size(total, sizeof(StepSums), "a total");
  const auto from = resolve<float>(contributions, count * sizeof(float));
  Words form{Kind::update};
  put(form, at);
  for (const float* part : from) form.put(part);
  push({std::move(form), Words{rule, number, device_.address_of<const StepSums>(total)},
        [this, at, from](WordReader values) {
          std::optional<PassEnd> end;
          {
            const std::lock_guard lock{device_.queues_};
            std::swap(end, dies_at_);
          }
          const auto go_on = [&](PassMoment moment, std::uint64_t block) {
            return !end || end->moment != moment || end->block != block;
          };
          const auto step = values.take<RuleStep>();
          const auto its_number = values.take<std::uint64_t>();
          if (!reference::update(step, its_number, at, from, *values.take<const StepSums*>(), go_on)) throw Died{};
        }});
}

void FakeStream::call(std::function<void()> work) {
  push({Words{Kind::call, ++calls_}, {}, [work = std::move(work)](WordReader) { work(); }});
}

void FakeStream::run(Words form, Words values, std::function<void(WordReader)> work) {
  push({std::move(form), std::move(values), std::move(work)});
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
                                   fake::own(stream).run(Words{kReplicaWork, call.piece, call.object},
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
