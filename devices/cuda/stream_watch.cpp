#include "devices/cuda/stream_watch.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::cuda {
namespace {

using std::chrono::microseconds;

constexpr microseconds kShortest{10}, kLongest{400};  // between two looks

std::uint64_t read(const std::uint64_t& word) noexcept {
  return std::atomic_ref{const_cast<std::uint64_t&>(word)}.load(std::memory_order_acquire);
}

}  // namespace

void StreamWatch::expects(const std::uint64_t* word, Timeline& line, std::uint64_t value, bool carries) {
  const std::lock_guard lock{mutex_};
  if (!has_ended()) signals_.push_back({word, &line, value, carries});
}

void StreamWatch::waits(const std::uint64_t* word, Timeline& line) {
  const std::lock_guard lock{mutex_};
  waited_[reinterpret_cast<std::uintptr_t>(word)] = &line;
}

void StreamWatch::end(const Status& why) noexcept {
  {
    const std::lock_guard lock{mutex_};
    ended_.store(true, std::memory_order_release);
    signals_.clear();
  }
  std::atomic_ref{report_.end}.store(1, std::memory_order_release);  // a wait that is under way ends, too
  // What the driver lacks now it had when the stream began: the device has failed.
  own_.poison(why.code() == Code::environment ? Status{Code::device_fault, std::string{why.text()}} : why);
}

Status StreamWatch::why_not_reached(StreamFault fault) const {
  Timeline* line = nullptr;
  {
    const std::lock_guard lock{mutex_};
    const auto found = waited_.find(static_cast<std::uintptr_t>(report_.word));
    if (found != waited_.end()) line = found->second;
  }
  if (line == nullptr) return {Code::device_fault, "a GPU's stream waited for a line that nobody named"};
  if (fault == StreamFault::poisoned) return line->status();
  const TimelineId id = line->id();
  const std::string whom = id.arena.value == 0 ? "this process" : text("rank ", creator_of(id.arena).value);
  return {Code::timeout, text("waited ", deadline_.count(), " ms for ", whom, " (faults.exchange_s) to reach ",
                              report_.value, " on line ", id.index, " of arena ", id.arena.value,
                              " (cuda stream; it stands at ", line->value(), ")")};
}

Status StreamWatch::why() const {
  const auto fault = static_cast<StreamFault>(read(report_.fault));
  switch (fault) {
    case StreamFault::none: return {};
    case StreamFault::poisoned:
    case StreamFault::overdue: return why_not_reached(fault);
    case StreamFault::ended: return {Code::aborted, "a GPU's stream was ended while it waited"};
    case StreamFault::bad_label:
      return {Code::corrupt, text("row ", report_.value, " of a batch has label ", report_.word,
                                  ", which is no class of the model: check the data set's labels")};
    case StreamFault::bad_target:
      return {Code::corrupt, text("row ", report_.value, " of a batch has ", report_.word,
                                  " targets above 1; targets are 0 to 1, or below 0 where none is known")};
    case StreamFault::bad_token:
      return {Code::corrupt, text("place ", report_.value, " of a batch has token ", report_.word,
                                  ", which is not in the model's vocabulary: check the data set")};
    case StreamFault::rank_failed:
      return {Code::peer_lost,
              text("rank ", report_.value, "'s stream had failed before an exchange: its last call was number ",
                   report_.word >> kCallHashBits)};
    case StreamFault::rank_differs:
      return {Code::invalid, text("rank ", report_.value, " makes another exchange than this rank as call number ",
                                  report_.word >> kCallHashBits, "; all ranks need the same plan")};
    case StreamFault::foreign_journal:
      return {Code::corrupt,
              text("update ", report_.value, ": the journal tells of update ", report_.word >> kJournalBits, " with ",
                   (report_.word & ((1U << kJournalBits) - 1)) - 1, " blocks done")};
  }
  return {Code::device_fault, text("a GPU's stream reports ", static_cast<std::uint32_t>(fault))};
}

StreamWatch::Seen StreamWatch::look(bool asks) noexcept {
  for (StreamTimer* const timer : timers_) timer->take();
  if (has_ended()) return Seen::nothing;
  const Status reason = why();  // first: what the stream signalled before it failed is carried on, too
  const bool progress = carry_on();
  if (!reason.ok()) {
    end(reason);
    return Seen::progress;
  }
  if (asks) {
    (void)gpu_.driver().ctx_set_current(gpu_.context());
    const Result result = gpu_.driver().stream_query(stream_);
    if (result != Result::success && result != Result::not_ready) {
      end(failed_call(gpu_.driver(), result, gpu_.name()));
      return Seen::progress;
    }
  }
  if (progress) return Seen::progress;
  const std::lock_guard lock{mutex_};
  return signals_.empty() ? Seen::nothing : Seen::waiting;
}

/// Whether there was something.
bool StreamWatch::carry_on() noexcept {
  bool progress = false;
  for (;;) {
    Signal next{};
    {
      const std::lock_guard lock{mutex_};
      if (signals_.empty()) return progress;
      next = signals_.front();
      if ((read(*next.word) & ~Timeline::kPoisonedWord) < next.value) return progress;
      signals_.pop_front();
    }
    progress = true;
    if (next.carries)
      next.line->signal(next.value);
    else
      next.line->add(0);  // wakes sleepers
    // A GPU cannot set a value without the risk of taking back the bit of a poison that comes in the same moment.
    if (const Status poison = next.line->status(); !poison.ok()) next.line->poison(poison);
  }
}

Notifier::Notifier() {
  thread_ = start_thread("cuda-notifier", [this] { run(); });
}

Notifier::~Notifier() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Notifier::add(StreamWatch& watch) {
  const std::lock_guard lock{mutex_};
  watches_.push_back(&watch);
}

void Notifier::remove(StreamWatch& watch) {
  const std::lock_guard lock{mutex_};
  std::erase(watches_, &watch);
}

void Notifier::ring() noexcept {
  if (!sleeps_.load(std::memory_order_seq_cst)) return;
  {
    const std::lock_guard lock{mutex_};
    sleeps_.store(false, std::memory_order_seq_cst);
  }
  changed_.notify_one();
}

void Notifier::run() {
  constexpr int kAsksEvery = 64;  // looks
  microseconds pause = kShortest;
  int looks = 0;
  std::unique_lock lock{mutex_};
  while (!stop_) {
    // Before the look: whoever adds something after it rings.
    sleeps_.store(true, std::memory_order_seq_cst);
    auto seen = StreamWatch::Seen::nothing;
    const bool asks = ++looks % kAsksEvery == 0;
    for (StreamWatch* const watch : watches_) seen = std::max(seen, watch->look(asks));
    if (seen == StreamWatch::Seen::nothing) {
      changed_.wait(lock, [this] { return stop_ || !sleeps_.load(std::memory_order_seq_cst); });
      pause = kShortest;
      continue;
    }
    pause = seen == StreamWatch::Seen::progress ? kShortest : std::min(2 * pause, kLongest);
    changed_.wait_for(lock, pause, [this] { return stop_; });
  }
}

}  // namespace troupe::cuda
