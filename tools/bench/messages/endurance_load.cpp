#include "tools/bench/messages/endurance_load.hpp"

#include <array>
#include <atomic>
#include <caf/event_based_actor.hpp>
#include <caf/stateful_actor.hpp>
#include <condition_variable>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "actors/caf_error.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/base/error.hpp"

namespace troupe::bench {
namespace {

using Counted = caf::atom_constant<caf::atom("counted")>;  // how many have come
using Stop = caf::atom_constant<caf::atom("stop")>;
using Freed = caf::atom_constant<caf::atom("freed")>;  // a buffer that was waited for

/// In each arena, of each size; few enough that now and then the source waits for one.
constexpr std::size_t kBuffersOfASize = 8;
/// One message in so many carries bytes.
constexpr std::uint64_t kBytesStride = 64;
constexpr std::uint64_t kMostBytes = 8192;
/// So many messages with tensors follow one another, so that soon after the start both lanes have had as much to carry
/// as they ever will: memory that the transport needs for that is there, then, when it is looked at first.
constexpr std::uint64_t kBurst = 24;
/// Messages with tensors come in threes, and have so many together.
constexpr std::uint64_t kInThree = 5;

std::uint64_t carriers_of(std::uint64_t tensors) { return tensors / kInThree * 3 + tensors % kInThree; }

std::uint64_t stamp_of(std::uint64_t number, std::uint32_t index) { return number * 4 + index + 1; }

/// Where tensors of all sizes lie, in turn. Kept by those that are lent. Threads: take() and lacks() one, the rest any.
class Buffers : public std::enable_shared_from_this<Buffers> {
 public:
  Buffers(AddressSpace& space, Arena& own, Arena& lent) : space_(space) {
    for (const bool lends : {false, true}) {
      for (std::size_t size = 0; size < EnduranceSchedule::kTensorBytes.size(); ++size) {
        auto& free = free_[place(size, lends)];
        free.reserve(kBuffersOfASize);
        for (std::size_t i = 0; i < kBuffersOfASize; ++i) {
          free.push_back((lends ? lent : own).allocate(EnduranceSchedule::kTensorBytes[size]));
          std::memset(space.address(free.back()), 1, free.back().size_bytes);
        }
      }
    }
  }

  /// Whether there is none; then `waiter` is told of the next that comes back.
  bool lacks(std::size_t size, bool lent, const caf::actor& waiter) {
    const std::scoped_lock hold(mutex_);
    const bool none = free_[place(size, lent)].empty();
    if (none) waiter_ = waiter;
    return none;
  }
  bool all_back(const caf::actor& waiter) {
    const std::scoped_lock hold(mutex_);
    if (out_ > 0) waiter_ = waiter;
    return out_ == 0;
  }
  /// One that is there, stamped.
  Tensor take(std::size_t size, bool lent, std::uint64_t stamp) {
    Memory memory;
    {
      const std::scoped_lock hold(mutex_);
      auto& free = free_[place(size, lent)];
      memory = free.back();
      free.pop_back();
      ++out_;
    }
    std::byte* const bytes = space_.address(memory);
    const std::uint64_t last = ~stamp;
    std::memcpy(bytes, &stamp, sizeof stamp);
    std::memcpy(bytes + memory.size_bytes - sizeof last, &last, sizeof last);
    std::shared_ptr<const void> owner{this, [self = shared_from_this(), memory, at = place(size, lent)](const void*) {
                                        self->give_back(memory, at);
                                      }};
    return {memory, {memory.size_bytes / sizeof(float)}, DType::f32, {}, std::move(owner)};
  }

 private:
  static constexpr std::size_t kPlaces = 2 * EnduranceSchedule::kTensorBytes.size();
  static std::size_t place(std::size_t size, bool lent) { return 2 * size + (lent ? 1 : 0); }

  void give_back(Memory memory, std::size_t place) {
    caf::actor waiter;
    {
      const std::scoped_lock hold(mutex_);
      free_[place].push_back(memory);
      --out_;
      std::swap(waiter, waiter_);
    }
    if (waiter) caf::anon_send(waiter, Freed::value);
  }

  AddressSpace& space_;
  std::mutex mutex_;  // guards what follows
  std::array<std::vector<Memory>, kPlaces> free_;
  std::size_t out_ = 0;
  caf::actor waiter_;
};

}  // namespace

EnduranceSchedule::EnduranceSchedule(std::uint64_t messages, std::uint64_t tensors)
    : messages_(messages),
      tensors_(tensors),
      carriers_(carriers_of(tensors)),
      stride_(carriers_ == 0 ? kBurst : messages / carriers_ * kBurst) {
  TROUPE_CHECK(messages > 0 && tensors <= messages, Code::invalid, "cannot send ", tensors, " tensors in ", messages,
               " messages; give more messages");
}

std::uint64_t EnduranceSchedule::carrier_at(std::uint64_t number) const noexcept {
  return number / stride_ * kBurst + number % stride_;
}

std::uint32_t EnduranceSchedule::tensors_in(std::uint64_t number) const noexcept {
  const std::uint64_t carrier = carrier_at(number);
  if (number % stride_ >= kBurst || carrier >= carriers_) return 0;
  return carrier % 3 == 2 && carrier < tensors_ / kInThree * 3 ? 3 : 1;
}

std::uint64_t EnduranceSchedule::bytes_in(std::uint64_t number) const noexcept {
  return number % kBytesStride == kBytesStride / 2 ? 1 + number / kBytesStride * 97 % kMostBytes : 0;
}

std::size_t EnduranceSchedule::size_of(std::uint64_t number, std::uint32_t index) const noexcept {
  return (carrier_at(number) + index) % kTensorBytes.size();
}

bool EnduranceSchedule::lent(std::uint64_t number, std::uint32_t index) const noexcept {
  return (carrier_at(number) / 3 + index) % 2 == 1;
}

struct EnduranceState {
  EnduranceState(AddressSpace& where, Arena& own, Arena& lent, const EnduranceSchedule& what)
      : space(where), schedule(what), buffers(std::make_shared<Buffers>(where, own, lent)) {}

  AddressSpace& space;
  const EnduranceSchedule schedule;
  const std::shared_ptr<Buffers> buffers;
  std::atomic<std::uint64_t> counted{0}, tensors_sent{0}, received{0}, tensors_received{0};

  std::mutex mutex;  // guards what follows
  std::condition_variable news;
  bool finished = false;
  std::string failure;  // the first

  void fail(std::string why) {
    {
      const std::scoped_lock hold(mutex);
      if (failure.empty()) failure = std::move(why);
    }
    news.notify_all();
  }
  void finish() {
    {
      const std::scoped_lock hold(mutex);
      finished = true;
    }
    news.notify_all();
  }

  // The sink's.
  void take(std::uint64_t number, std::uint64_t size_bytes, std::initializer_list<const Tensor*> tensors) {
    const std::uint64_t expected = received.load(std::memory_order_relaxed);
    if (number != expected) {
      fail(text("message ", number, " came where ", expected,
                " was to come: ", number > expected ? "others were lost or overtaken" : "it came twice or late"));
    } else if (tensors.size() != schedule.tensors_in(number) ||
               (tensors.size() == 0 && size_bytes != schedule.bytes_in(number))) {
      fail(text("message ", number, " came with ", tensors.size(), " tensors and ", size_bytes, " bytes"));
    }
    std::uint32_t index = 0;
    for (const Tensor* const tensor : tensors) check(number, index++, tensor->memory());
    received.store(number + 1, std::memory_order_relaxed);
    tensors_received.fetch_add(tensors.size(), std::memory_order_relaxed);
  }
  void check(std::uint64_t number, std::uint32_t index, Memory memory) {
    const std::uint64_t wanted = EnduranceSchedule::kTensorBytes[schedule.size_of(number, index)];
    if (memory.size_bytes != wanted) {
      return fail(text("tensor ", index, " of message ", number, " came with ", memory.size_bytes, " bytes instead of ",
                       wanted));
    }
    const std::byte* const bytes = space.address(memory);
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::memcpy(&first, bytes, sizeof first);
    std::memcpy(&last, bytes + wanted - sizeof last, sizeof last);
    if (first != stamp_of(number, index) || last != ~first)
      fail(text("tensor ", index, " of message ", number, " came with another content"));
  }
};

namespace {

using State = EnduranceState;

caf::behavior sink(caf::event_based_actor*, const std::shared_ptr<State>& state) {
  return {[=](std::uint64_t number) { state->take(number, 0, {}); },
          [=](std::uint64_t number, const Bytes& bytes) { state->take(number, bytes.size(), {}); },
          [=](std::uint64_t number, const Tensor& one) { state->take(number, 0, {&one}); },
          [=](std::uint64_t number, const Tensor& one, const Tensor& two, const Tensor& three) {
            state->take(number, 0, {&one, &two, &three});
          },
          [=](Counted) { return state->received.load(std::memory_order_relaxed); }};
}

struct SourceState {
  static constexpr const char* name = "source";
  std::shared_ptr<State> all;
  caf::actor far;
  std::uint64_t next = 0;     // to be sent
  std::uint64_t asked = 0;    // after so many messages
  std::uint64_t counted = 0;  // have arrived there
  std::uint64_t limit = 0;
  bool going = false;  // until everything was counted and has come back
  bool stopped = false;
};
using Source = caf::stateful_actor<SourceState>*;

/// False: there is no buffer for a tensor of it now.
bool send_next(Source self) {
  auto& s = self->state;
  const EnduranceSchedule& schedule = s.all->schedule;
  const std::uint32_t tensors = schedule.tensors_in(s.next);
  for (std::uint32_t i = 0; i < tensors; ++i)
    if (s.all->buffers->lacks(schedule.size_of(s.next, i), schedule.lent(s.next, i), self)) return false;
  const auto tensor = [&](std::uint32_t i) {
    return s.all->buffers->take(schedule.size_of(s.next, i), schedule.lent(s.next, i), stamp_of(s.next, i));
  };
  if (tensors == 1) {
    self->send(s.far, s.next, tensor(0));
  } else if (tensors == 3) {
    self->send(s.far, s.next, tensor(0), tensor(1), tensor(2));
  } else if (const std::uint64_t bytes = schedule.bytes_in(s.next); bytes > 0) {
    self->send(s.far, s.next, Bytes(bytes, 'x'));
  } else {
    self->send(s.far, s.next);
  }
  s.all->tensors_sent.fetch_add(tensors, std::memory_order_relaxed);
  ++s.next;
  return true;
}

void go_on(Source self);

/// Has the sink tell how many have come: as many as were sent before.
void ask(Source self) {
  auto& s = self->state;
  s.asked = s.next;
  self->request(s.far, caf::infinite, Counted::value)
      .then(
          [self, sent = s.next](std::uint64_t counted) {
            auto& s = self->state;
            if (counted != sent) s.all->fail(text(counted, " messages had arrived where ", sent, " were sent"));
            s.counted = sent;
            s.all->counted.store(sent, std::memory_order_relaxed);
            go_on(self);
          },
          [self](const caf::error& error) {
            self->state.all->fail(text("a request failed: ", from_caf(error).text()));
          });
}

void go_on(Source self) {
  auto& s = self->state;
  while (s.next < s.limit && s.next < s.counted + kCountedAhead && send_next(self)) {
    if (s.next % kCountedAtOnce == 0) ask(self);
  }
  if (s.next == s.limit && s.asked < s.limit) ask(self);
  if (!s.going || s.counted != s.limit || !s.all->buffers->all_back(self)) return;
  s.going = false;
  s.all->finish();
}

caf::behavior source(Source self, const std::shared_ptr<State>& state) {
  self->state.all = state;
  return {[=](Go, const caf::actor& far, std::uint64_t limit) {
            auto& s = self->state;
            s.far = far;
            s.limit = s.stopped ? s.next : limit;
            s.going = true;
            go_on(self);
          },
          [=](Stop) {
            self->state.stopped = true;
            self->state.limit = self->state.next;
            go_on(self);
          },
          [=](Freed) { go_on(self); }};
}

}  // namespace

EnduranceEnd::EnduranceEnd(const Stage& stage, AddressSpace& space, Arena& own, Arena& lent,
                           const EnduranceSchedule& schedule)
    : state_(std::make_shared<EnduranceState>(space, own, lent, schedule)),
      sink_(stage.spawn(bench::sink, state_)),
      source_(stage.spawn(bench::source, state_)) {}

EnduranceEnd::~EnduranceEnd() = default;

const caf::actor& EnduranceEnd::sink() const noexcept { return sink_.get(); }

void EnduranceEnd::go(const caf::actor& far, std::uint64_t limit) {
  {
    const std::scoped_lock hold(state_->mutex);
    state_->finished = false;
  }
  caf::anon_send(source_.get(), Go::value, far, limit);
}

void EnduranceEnd::stop() { caf::anon_send(source_.get(), Stop::value); }

bool EnduranceEnd::wait(Blocking&, Clock::duration patience) {
  std::unique_lock hold(state_->mutex);
  state_->news.wait_for(hold, patience, [&] { return state_->finished || !state_->failure.empty(); });
  TROUPE_CHECK(state_->failure.empty(), Code::corrupt, state_->failure);
  return state_->finished;
}

EnduranceEnd::Done EnduranceEnd::done() const {
  return {state_->counted.load(std::memory_order_relaxed), state_->tensors_sent.load(std::memory_order_relaxed),
          state_->received.load(std::memory_order_relaxed), state_->tensors_received.load(std::memory_order_relaxed)};
}

}  // namespace troupe::bench
