#include "tools/crew/endurance_load.hpp"

#include <atomic>
#include <caf/event_based_actor.hpp>
#include <caf/stateful_actor.hpp>
#include <condition_variable>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/caf_error.hpp"
#include "actors/remote/tensor.hpp"
#include "runtime/base/error.hpp"

namespace troupe::crew {
namespace {

using Counted = caf::atom_constant<caf::atom("counted")>;  // how many messages have arrived
using Stop = caf::atom_constant<caf::atom("stop")>;
using Freed = caf::atom_constant<caf::atom("freed")>;  // a buffer that the source waited for
using Bytes = std::vector<char>;
using TensorPlace = EnduranceContent::TensorPlace;

/// In each arena, for each size; few, so that the source sometimes waits for one.
constexpr std::size_t kBuffersOfASize = 8;
/// One in this number of messages carries bytes.
constexpr std::uint64_t kBytesStride = 64;
constexpr std::uint64_t kMostBytes = 8192;
/// This number of messages with tensors follow one another. Thus both lanes soon carry as much as they ever will, and
/// the transport has allocated the memory for that before memory is read for the first time.
constexpr std::uint64_t kBurst = 24;
/// Messages with tensors come in groups of three, and such a group has this number of tensors.
constexpr std::uint64_t kInThree = 5;

std::uint64_t carriers_of(std::uint64_t tensors) { return tensors / kInThree * 3 + tensors % kInThree; }

std::uint64_t stamp_of(std::uint64_t number, std::size_t index) { return number * 4 + index + 1; }

/// Buffers for tensors of all sizes. Lent tensors keep it alive. Threads: any.
class Buffers : public std::enable_shared_from_this<Buffers> {
 public:
  Buffers(AddressSpace& space, Arena& own, Arena& lent) : space_(space) {
    for (std::size_t size = 0; size < EnduranceContent::kTensorBytes.size(); ++size) {
      for (std::size_t i = 0; i < 2 * kBuffersOfASize; ++i) {
        const bool lends = i % 2 == 1;
        const Memory memory = (lends ? lent : own).allocate(EnduranceContent::kTensorBytes[size]);
        std::memset(space.address(memory), 1, memory.size_bytes);
        free_[slot({size, lends})].push_back(memory);
      }
    }
  }

  /// A free buffer, with the stamp written into it; absent: there is none, and `waiter` gets a message when one
  /// returns.
  std::optional<Tensor> take(TensorPlace place, std::uint64_t stamp, const caf::actor& waiter) {
    Memory memory;
    {
      const std::scoped_lock hold(mutex_);
      auto& free = free_[slot(place)];
      if (free.empty()) {
        waiter_ = waiter;
        return {};
      }
      memory = free.back();
      free.pop_back();
      ++out_;
    }
    std::byte* const bytes = space_.address(memory);
    const std::uint64_t last = ~stamp;
    std::memcpy(bytes, &stamp, sizeof stamp);
    std::memcpy(bytes + memory.size_bytes - sizeof last, &last, sizeof last);
    std::shared_ptr<const void> owner{
        this, [self = shared_from_this(), memory, place](const void*) { self->give_back(memory, place); }};
    return Tensor{memory, {memory.size_bytes / sizeof(float)}, DType::f32, {}, std::move(owner)};
  }
  bool all_back(const caf::actor& waiter) {
    const std::scoped_lock hold(mutex_);
    if (out_ > 0) waiter_ = waiter;
    return out_ == 0;
  }

 private:
  static std::size_t slot(TensorPlace place) { return 2 * place.size + (place.lent ? 1 : 0); }

  void give_back(Memory memory, TensorPlace place) {
    caf::actor waiter;
    {
      const std::scoped_lock hold(mutex_);
      free_[slot(place)].push_back(memory);
      --out_;
      std::swap(waiter, waiter_);
    }
    if (waiter) caf::anon_send(waiter, Freed::value);
  }

  AddressSpace& space_;
  std::mutex mutex_;  // guards the members below
  std::array<std::vector<Memory>, 2 * EnduranceContent::kTensorBytes.size()> free_;
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

EnduranceContent EnduranceSchedule::at(std::uint64_t number) const noexcept {
  EnduranceContent content;
  const std::uint64_t carrier = number / stride_ * kBurst + number % stride_;  // if it has tensors
  if (number % stride_ < kBurst && carrier < carriers_) {
    content.tensors = carrier % 3 == 2 && carrier < tensors_ / kInThree * 3 ? 3 : 1;
    for (std::size_t i = 0; i < content.tensors; ++i)
      content.places[i] = {(carrier + i) % EnduranceContent::kTensorBytes.size(), (carrier / 3 + i) % 2 == 1};
  } else if (number % kBytesStride == kBytesStride / 2) {
    content.bytes = 1 + number / kBytesStride * 97 % kMostBytes;
  }
  return content;
}

struct EnduranceState {
  EnduranceState(AddressSpace& where, Arena& own, Arena& lent, const EnduranceSchedule& what)
      : space(where), schedule(what), buffers(std::make_shared<Buffers>(where, own, lent)) {}

  AddressSpace& space;
  const EnduranceSchedule schedule;
  const std::shared_ptr<Buffers> buffers;
  std::atomic<std::uint64_t> counted{0}, tensors_sent{0}, received{0}, tensors_received{0};

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  bool finished = false;
  std::string failure;  // the first one

  void finish(std::string why = {}) {
    {
      const std::scoped_lock hold(mutex);
      if (why.empty()) finished = true;
      if (failure.empty()) failure = std::move(why);
    }
    changed.notify_all();
  }

  // Called by the sink.
  void take(std::uint64_t number, std::uint64_t size_bytes, std::initializer_list<const Tensor*> tensors) {
    const std::uint64_t expected = received.load(std::memory_order_relaxed);
    const EnduranceContent content = schedule.at(number);
    if (number != expected) {
      finish(text("message ", number, " came where ", expected,
                  " was to come: ", number > expected ? "others were lost or overtaken" : "it came twice or late"));
    } else if (tensors.size() != content.tensors || size_bytes != content.bytes) {
      finish(text("message ", number, " came with ", tensors.size(), " tensors and ", size_bytes, " bytes"));
    } else {
      for (std::size_t i = 0; i < tensors.size(); ++i) check(number, i, content, tensors.begin()[i]->memory());
    }
    received.store(number + 1, std::memory_order_relaxed);
    tensors_received.fetch_add(tensors.size(), std::memory_order_relaxed);
  }
  void check(std::uint64_t number, std::size_t index, const EnduranceContent& content, Memory memory) {
    const std::uint64_t wanted = EnduranceContent::kTensorBytes[content.places[index].size];
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    if (memory.size_bytes == wanted) {
      const std::byte* const bytes = space.address(memory);
      std::memcpy(&first, bytes, sizeof first);
      std::memcpy(&last, bytes + wanted - sizeof last, sizeof last);
    }
    if (first != stamp_of(number, index) || last != ~first) {
      finish(text("tensor ", index, " of message ", number, " came with another content, or with ", memory.size_bytes,
                  " bytes instead of ", wanted));
    }
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
  std::vector<Tensor> held;   // of the next message, as far as there were buffers
  std::uint64_t next = 0;     // number of the next message
  std::uint64_t asked = 0;    // number of messages sent before the last question
  std::uint64_t counted = 0;  // number of messages that have arrived
  std::uint64_t limit = 0;
  bool going = false;  // until all were counted and all tensors have returned
  bool stopped = false;
};
using Source = caf::stateful_actor<SourceState>*;

/// False: there is no free buffer for one of its tensors now.
bool send_next(Source self) {
  auto& s = self->state;
  const EnduranceContent content = s.all->schedule.at(s.next);
  for (std::size_t i = s.held.size(); i < content.tensors; ++i) {
    auto tensor = s.all->buffers->take(content.places[i], stamp_of(s.next, i), self);
    if (!tensor) return false;
    s.held.push_back(std::move(*tensor));
  }
  if (content.tensors == 1) {
    self->send(s.far, s.next, s.held[0]);
  } else if (content.tensors == 3) {
    self->send(s.far, s.next, s.held[0], s.held[1], s.held[2]);
  } else if (content.bytes > 0) {
    self->send(s.far, s.next, Bytes(content.bytes, 'x'));
  } else {
    self->send(s.far, s.next);
  }
  s.held.clear();
  s.all->tensors_sent.fetch_add(content.tensors, std::memory_order_relaxed);
  ++s.next;
  return true;
}

void go_on(Source self);

/// Asks the sink how many messages have arrived; it must be all that were sent before.
void ask(Source self) {
  auto& s = self->state;
  s.asked = s.next;
  self->request(s.far, caf::infinite, Counted::value)
      .then(
          [self, sent = s.next](std::uint64_t counted) {
            auto& s = self->state;
            if (counted != sent) s.all->finish(text(counted, " messages had arrived where ", sent, " were sent"));
            s.counted = sent;
            s.all->counted.store(sent, std::memory_order_relaxed);
            go_on(self);
          },
          [self](const caf::error& error) {
            self->state.all->finish(text("a request failed: ", from_caf(error).text()));
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
            auto& s = self->state;
            s.stopped = true;
            s.limit = s.next;
            s.held.clear();
            go_on(self);
          },
          [=](Freed) { go_on(self); }};
}

}  // namespace

EnduranceEnd::EnduranceEnd(const Stage& stage, AddressSpace& space, Arena& own, Arena& lent,
                           const EnduranceSchedule& schedule)
    : state_(std::make_shared<EnduranceState>(space, own, lent, schedule)),
      sink_(stage.spawn(crew::sink, state_)),
      source_(stage.spawn(crew::source, state_)) {}

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
  state_->changed.wait_for(hold, patience, [&] { return state_->finished || !state_->failure.empty(); });
  TROUPE_CHECK(state_->failure.empty(), Code::corrupt, state_->failure);
  return state_->finished;
}

EnduranceEnd::Done EnduranceEnd::done() const {
  return {state_->counted.load(std::memory_order_relaxed), state_->tensors_sent.load(std::memory_order_relaxed),
          state_->received.load(std::memory_order_relaxed), state_->tensors_received.load(std::memory_order_relaxed)};
}

}  // namespace troupe::crew
