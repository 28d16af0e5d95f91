#include "tools/bench/messages/actors.hpp"

#include <algorithm>
#include <caf/actor_cast.hpp>
#include <caf/event_based_actor.hpp>
#include <functional>
#include <vector>

#include "actors/exchange/messages.hpp"
#include "actors/plain_messages.hpp"
#include "devices/cuda/cuda_device.hpp"
#include "runtime/base/error.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/endurance_load.hpp"

namespace troupe::bench {
namespace {

using Bytes = std::vector<char>;

constexpr std::uint32_t kOwnArena = 1;
constexpr std::uint32_t kCopies = 2;
constexpr std::uint32_t kApart = 3;
constexpr std::chrono::seconds kCopyTime{30};
/// The number of copies of a stripe that a shard or its worker has.
constexpr std::uint64_t kStripeCopies = 4;

std::uint64_t arena_bytes(const EndCase& what) {
  if (what.endures()) return EnduranceEnd::kArenaBytes;
  if (what.floods()) return 4096;  // it has no tensors
  return what.what == "mixed" ? kStreamedBytes : what.bytes;
}

GroupOptions options_of(const EndCase& what, AddressSpace& space) {
  GroupOptions options;
  options.space = &space;
  options.heartbeats = false;
  options.control = control_lane(what);
  if (what.impl == "arena" || what.endures()) options.arena_bytes = arena_bytes(what);
  RemoteOptions& remote = options.remote;
  remote.dropped = [](std::string_view why) { say(text("a message was dropped: ", why)); };
  remote.slow = [](caf::actor_id, Clock::duration, bool moved) {
    if (moved)
      say("a measured actor blocked the control lane; the scheduler runs it now, so it is not inline any more");
  };
  if (what.floods()) {
    remote.memory_bytes = what.memory_mb * std::uint64_t{1'000'000};
    remote.dropped = [](std::string_view) {};  // only counted
    remote.slow = {};                          // the flood keeps its lane busy by intention
  }
  // An actor that only sends keeps the lane as long as it sends.
  if (what.what == "rate" || what.endures()) remote.inline_limit = std::chrono::seconds(1);
  // Small, so that tensors fill it too.
  if (what.endures()) remote.unhandled_bytes = 8u << 20;
  return options;
}

/// Sends back every message, or always `own` if there is one.
template <class Payload>
caf::behavior echo(caf::event_based_actor*, const std::optional<Payload>& own) {
  if (own) return {[answer = *own](const Payload&) { return answer; }};
  return {[](Payload& x) { return std::move(x); }};
}

/// The state of a bouncer.
template <class Payload>
struct Bounce {
  caf::actor echo;
  Payload first;
  std::function<bool()> again;               // called after each round trip: whether to start another
  std::function<bool(const Payload&)> same;  // whether the received payload is the one that was sent
  bool first_again = false;                  // send `first` again instead of the received payload
  bool intact = true;
  Finish finish;
};

/// Sends every payload that the echo returns to the echo again.
template <class Payload>
caf::behavior bounce(caf::event_based_actor* self, const std::shared_ptr<Bounce<Payload>>& what) {
  return {[=](Go) { self->send(what->echo, what->first); },
          [=](Payload& x) {
            if (what->again()) {
              if (what->first_again) return self->send(what->echo, what->first);
              return self->send(what->echo, std::move(x));
            }
            what->intact = what->same(x);
            what->finish.tell();
          }};
}

/// Makes round trips until `what->again` returns false.
template <class Payload>
void run_bounce(Blocking& blocking, const Stage& stage, const std::shared_ptr<Bounce<Payload>>& what,
                Clock::duration patience) {
  const Ending near(stage.spawn(bounce<Payload>, what));
  caf::anon_send(near.get(), Go::value);
  what->finish.wait(blocking, patience);
  TROUPE_CHECK(what->intact, Code::corrupt, "an echo came back with other content");
}

template <class Payload>
Figures run_latency(Blocking& blocking, const Stage& stage, const EndCase& what, Bounce<Payload> bounced,
                    Clock::duration patience) {
  const auto trips = std::make_shared<RoundTrips>(what);
  const auto bounce = std::make_shared<Bounce<Payload>>(std::move(bounced));
  bounce->again = [trips] { return trips->again(); };
  trips->begin();
  run_bounce(blocking, stage, bounce, patience);
  return trips->figures();
}

template <class Payload>
Bounce<Payload> bounce_to(const caf::actor& far, Payload first) {
  return {far, first, {}, [first](const Payload& x) { return x == first; }};
}

Bounce<Tensor> tensor_bounce(PairSide& side, const caf::actor& far) {
  const Tensor first = side.tensor();
  return {far, first, {}, [&side, first](const Tensor& x) { return side.same(x, first); }};
}

Figures tensor_latency(Blocking& blocking, PairSide& side, const EndCase& what, const caf::actor& far,
                       Clock::duration patience) {
  auto bounce = tensor_bounce(side, far);
  // A tensor that arrived by reference is in the other end's memory, which cannot be lent again.
  // One that was copied has arrived in the host's.
  bounce.first_again = what.impl == "arena" || what.is_staged();
  return run_latency(blocking, side.stage(), what, std::move(bounce), patience);
}

/// Sends numbers to one actor and, at the same time, tensors to another.
Figures mixed_latency(Blocking& blocking, PairSide& side, const EndCase& what, Clock::duration patience) {
  const caf::actor small = side.find(blocking, "far", patience);
  const auto mixture = std::make_shared<Mixture>();
  const auto stream = std::make_shared<Bounce<Tensor>>(tensor_bounce(side, side.find(blocking, "bulk", patience)));
  stream->again = [mixture] {
    ++mixture->echoes;
    return !mixture->over.load();
  };
  const Ending streaming(side.stage().spawn(bounce<Tensor>, stream));
  caf::anon_send(streaming.get(), Go::value);

  const auto trips = std::make_shared<RoundTrips>(1, what.span());
  const auto bounce = std::make_shared<Bounce<std::uint64_t>>(bounce_to(small, std::uint64_t{0}));
  bounce->again = [trips] { return trips->again(); };
  mixture->begin();
  trips->begin();
  run_bounce(blocking, side.stage(), bounce, patience);
  const Figures figures = mixture->figures(*trips);
  mixture->over = true;
  stream->finish.wait(blocking, patience);
  TROUPE_CHECK(stream->intact, Code::corrupt, "a tensor came back with other content");
  return figures;
}

/// Counts messages, and acknowledges some of them.
caf::behavior counter(caf::event_based_actor* self) {
  return {[self, count = std::uint64_t{0}](std::uint64_t) mutable {
    if (++count % kCountedAtOnce == 0) self->send(caf::actor_cast<caf::actor>(self->current_sender()), count);
  }};
}

struct Count {
  caf::actor counter;
  Rate rate;
  std::uint64_t sent = 0;
  bool over = false;
  Finish finish;
};

/// Sends numbers as fast as they are acknowledged, until the measured time is over and all have arrived.
caf::behavior count(caf::event_based_actor* self, const std::shared_ptr<Count>& what) {
  const auto send_up_to = [=](std::uint64_t limit) {
    for (; what->sent < limit; ++what->sent) self->send(what->counter, what->sent);
  };
  return {[=](Go) { send_up_to(kCountedAhead); },
          [=](std::uint64_t counted) {
            what->over = what->over || !what->rate.again(counted);
            if (!what->over) return send_up_to(counted + kCountedAhead);
            if (counted == what->sent) what->finish.tell();
          }};
}

Figures measure_rate(Blocking& blocking, const Stage& stage, const EndCase& what, const caf::actor& far,
                     Clock::duration patience) {
  const auto counting = std::make_shared<Count>(far, Rate(what.span()));
  const Ending near(stage.spawn(count, counting));
  counting->rate.begin();
  caf::anon_send(near.get(), Go::value);
  counting->finish.wait(blocking, patience);
  return counting->rate.figures();
}

template <class Array>
Array filled(Array bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 167);
  return bytes;
}

bool is_number(const EndCase& what) { return what.bytes == sizeof(std::uint64_t); }
bool is_block(const EndCase& what) { return what.bytes == sizeof(Block); }

struct LocalConfig final : caf::actor_system_config {
  LocalConfig() { configure_workers(*this, 1); }
};

}  // namespace

PairSide::PairSide(Blocking& blocking, const EndCase& what) : what_(what), there_(what.client ? kServer : kClient) {
  if (what.impl != "arena") {
    own_ = Arena::create(arena_id(what.client ? kClient : kServer, kOwnArena),
                         arena_bytes(what) * (what.what == "shard" ? kStripeCopies : 1));
    space_.map(own_);
  }
  GroupOptions options = options_of(what, space_);
  if (what.on_gpu()) {
    device_ = make_cuda_device(space_, {.products = "own", .convolutions = "own"});  // libraries would take seconds
    copies_.emplace(*device_, space_, arena_id(what.client ? kClient : kServer, kCopies), kCopyTime);
    if (what.is_staged()) {
      options.remote.device = device_.get();
      apart_ = device_->allocate(arena_id(what.client ? kClient : kServer, kApart), MemoryKind::device, what.bytes);
    } else {
      options.device = device_.get();
      options.device_bytes = what.bytes;
    }
  }
  process_.emplace(blocking, Means{what.transport, what.tcp() ? "lo" : "", 1}, std::move(options),
                   [](caf::actor_system_config& config) {
                     configure_exchange(config);
                     add_plain_messages(config, MessageName<Block>{Block::name});
                   });
  arena_ = own_ ? own_.get() : &lent();
}

void PairSide::end(Blocking& blocking, Line& line) {
  line.barrier(blocking);
  process_->group().stop(blocking, Deadline::after(std::chrono::seconds(5)));
}

Tensor PairSide::tensor() {
  const Memory memory = what_.is_staged() ? apart_
                        : device_         ? process_->group().device_memory()
                                          : arena_->allocate(arena_bytes(what_));
  const auto fill = [](std::span<std::byte> bytes) {
    const auto words = numbers<std::uint32_t>(bytes);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761u + 1);
  };
  if (copies_)
    copies_->write(memory, fill);
  else
    fill({space_.address(memory), memory.size_bytes});
  return {memory, {memory.size_bytes / sizeof(std::uint32_t)}, DType::f32, {}, own_, space_.kind(memory.arena)};
}

std::vector<std::byte> PairSide::bytes_at(const Memory& memory) {
  std::vector<std::byte> bytes(memory.size_bytes);
  const auto keep = [&](std::span<const std::byte> from) { std::ranges::copy(from, bytes.begin()); };
  if (copies_)
    copies_->read(memory, keep);
  else
    keep({space_.address(memory), memory.size_bytes});
  return bytes;
}

bool PairSide::same(const Tensor& one, const Tensor& other) {
  return bytes_at(one.memory()) == bytes_at(other.memory());
}

caf::actor spawn_far(const Stage& stage, const EndCase& what) {
  if (what.what == "rate") return stage.spawn(counter);
  if (is_number(what)) return stage.spawn(echo<std::uint64_t>, std::optional<std::uint64_t>{});
  if (is_block(what)) return stage.spawn(echo<Block>, std::optional<Block>{});
  return stage.spawn(echo<Bytes>, std::optional<Bytes>{});
}

Figures measure_near(Blocking& blocking, const Stage& stage, const EndCase& what, const caf::actor& far,
                     Clock::duration patience) {
  if (what.what == "rate") return measure_rate(blocking, stage, what, far, patience);
  if (is_number(what)) return run_latency(blocking, stage, what, bounce_to(far, std::uint64_t{42}), patience);
  if (is_block(what)) return run_latency(blocking, stage, what, bounce_to(far, Block{filled(Block{}.bytes)}), patience);
  return run_latency(blocking, stage, what, bounce_to(far, filled(Bytes(what.bytes))), patience);
}

Figures run_actors(Blocking& blocking, const EndCase& what, Line& line) {
  PairSide side(blocking, what);
  const Clock::duration patience = line.patience();
  Figures figures;
  if (!what.client) {
    const bool keeps_own = what.impl == "arena" || what.is_staged();
    const std::optional<Tensor> own = keeps_own ? std::optional{side.tensor()} : std::nullopt;
    const bool tensors = what.what == "latency" && what.as_tensor();
    const Ending far(tensors ? side.stage().spawn(echo<Tensor>, own) : spawn_far(side.stage(), what));
    const Ending bulk(side.stage().spawn(echo<Tensor>, std::optional<Tensor>{}));
    side.publish("far", far.get());
    side.publish("bulk", bulk.get());
    if (what.what == "idle") idle_cores(blocking, what, line);
    side.end(blocking, line);
    return figures;
  }
  const caf::actor far = side.find(blocking, "far", patience);
  if (what.what == "mixed")
    figures = mixed_latency(blocking, side, what, patience);
  else if (what.what == "idle")
    figures = idle_cores(blocking, what, line);
  else if (what.as_tensor())
    figures = tensor_latency(blocking, side, what, far, patience);
  else
    figures = measure_near(blocking, side.stage(), what, far, patience);
  side.end(blocking, line);
  return figures;
}

Figures run_local(Blocking& blocking, const EndCase& what, Line& line) {
  if (!what.client) return {};  // both actors are at the other end
  LocalConfig config;
  caf::actor_system system(config);
  const Stage stage{system};
  const Ending far(spawn_far(stage, what));
  return measure_near(blocking, stage, what, far.get(), line.patience());
}

}  // namespace troupe::bench
