#include <atomic>
#include <cstring>

#include "actors/plain_messages.hpp"
#include "runtime/error.hpp"
#include "runtime/lane_loop.hpp"
#include "tools/bench/messages/block.hpp"
#include "tools/bench/messages/say.hpp"
#include "tools/bench/messages/stage.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::bench {
namespace {

constexpr Peer kClient{0};
constexpr Peer kServer{1};
constexpr std::uint32_t kTensorArena = 1;

struct Config final : caf::actor_system_config {
  Config() {
    configure_remote(*this);
    configure_one_worker(*this);
    add_plain_messages(*this, MessageName<Block>{Block::name});
  }
};

RemoteOptions options_of(const EndCase& what) {
  RemoteOptions options;
  options.dropped = [](std::string_view why) { say(text("a message was dropped: ", why)); };
  options.slow = [](caf::actor_id, Clock::duration, bool moved) {
    if (moved) say("a measured actor held the control lane up and goes on in the scheduler: not inline any more");
  };
  // Who does nothing but send keeps the lane for as long as it sends.
  if (what.what == "rate") options.inline_limit = std::chrono::seconds(1);
  if (what.impl == "arena") {
    options.shares = [](Peer, ArenaId arena) {
      return arena == arena_id(kClient, kTensorArena) || arena == arena_id(kServer, kTensorArena);
    };
  }
  return options;
}

std::uint64_t tensor_bytes(const EndCase& what) { return what.what == "mixed" ? kStreamedBytes : what.bytes; }

/// Remote actors as a program puts them together, with one peer.
class Side {
 public:
  Side(Blocking& blocking, const EndCase& what, Line& line)
      : what_(what),
        self_(what.client ? kClient : kServer),
        there_(what.client ? kServer : kClient),
        arena_(Arena::create(arena_id(self_, kTensorArena), tensor_bytes(what))),
        system_(config_) {
    space_.map(arena_);
    UcxOptions ucx{.self = self_, .means = what.tcp() ? UcxMeans::tcp : UcxMeans::shm};
    if (what.tcp()) ucx.network_device = "lo";
    transport_ = make_ucx_transport(space_, ucx);
    control_ = std::make_unique<LaneLoop>(*transport_, Lane::control, control_lane(what), "control");
    bulk_ = std::make_unique<LaneLoop>(*transport_, Lane::bulk, LaneOptions{}, "bulk");
    remote_ = std::make_unique<RemoteActors>(system_, space_, *control_, *bulk_, self_, options_of(what));
    remote_->add_peer(there_, line.swap(blocking, remote_->identity()));
    transport_->connect(there_, line.swap(blocking, transport_->address()));
    if (what.impl == "arena") share_arenas(blocking, line);
    control_->start();
    bulk_->start();
  }
  ~Side() {
    Blocking blocking = Blocking::on_thread("main");
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    remote_->stop(blocking, deadline);
    control_->stop(deadline);
    bulk_->stop(deadline);
    control_.reset();
    bulk_.reset();
    transport_.reset();
    remote_.reset();
    system_.await_actors_before_shutdown(false);
  }

  /// Where the measured actors run.
  Stage stage() { return {system_, what_.impl == "scheduled" ? nullptr : remote_.get()}; }
  template <class Handle>
  void publish(const std::string& name, const Handle& actor) {
    remote_->publish(name, actor);
  }
  caf::actor find(Blocking& blocking, const std::string& name, Clock::duration patience) {
    return remote_->resolve(blocking, there_, name, Deadline::after(patience));
  }
  /// All of this end's arena, filled; equal at both ends.
  Tensor tensor() {
    const Memory memory = arena_->allocate(tensor_bytes(what_));
    auto* const words = space_.address_of<std::uint32_t>(memory);
    const std::uint64_t count = memory.size_bytes / sizeof(std::uint32_t);
    for (std::uint64_t i = 0; i < count; ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761u + 1);
    return {memory, {count}, DType::f32, {}, arena_};
  }
  bool same(const Tensor& one, const Tensor& other) const {
    const Memory memory = one.memory();
    return memory.size_bytes == other.memory().size_bytes &&
           std::memcmp(space_.address(memory), space_.address(other.memory()), memory.size_bytes) == 0;
  }

 private:
  void share_arenas(Blocking& blocking, Line& line) {
    ArenaTicket ticket = arena_->ticket();
    const auto told = line.swap(blocking, std::as_bytes(std::span(&ticket, 1)));
    TROUPE_CHECK(told.size() == sizeof ticket, Code::corrupt, "the other end told no arena");
    std::memcpy(&ticket, told.data(), sizeof ticket);
    space_.map(Arena::open(ticket));
  }

  const EndCase what_;
  const Peer self_;
  const Peer there_;
  AddressSpace space_;
  std::shared_ptr<Arena> arena_;
  Config config_;
  caf::actor_system system_;
  std::unique_ptr<RemoteActors> remote_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<LaneLoop> control_;
  std::unique_ptr<LaneLoop> bulk_;
};

std::shared_ptr<Bounce<Tensor>> tensor_bounce(Side& side, const caf::actor& far) {
  auto bounce = std::make_shared<Bounce<Tensor>>();
  bounce->echo = far;
  bounce->first = side.tensor();
  bounce->same = [&side, first = bounce->first](const Tensor& x) { return side.same(x, first); };
  return bounce;
}

Figures tensor_latency(Blocking& blocking, Side& side, const EndCase& what, const caf::actor& far,
                       Clock::duration patience) {
  const auto trips = std::make_shared<RoundTrips>(latency_plan(what));
  const auto bounce = tensor_bounce(side, far);
  // A tensor that came by reference is the other end's: to send that back would lend out what is lent.
  bounce->first_again = what.impl == "arena";
  bounce->again = [trips] { return trips->again(); };
  trips->begin();
  run_bounce(blocking, side.stage(), bounce, patience);
  return latency_figures(*trips);
}

/// What streams beside the small messages.
struct Load {
  std::atomic<std::uint64_t> echoes{0};
  std::atomic<bool> over{false};
};

/// Numbers to one actor while tensors go to another.
Figures mixed_latency(Blocking& blocking, Side& side, const EndCase& what, Clock::duration patience) {
  const caf::actor small = side.find(blocking, "far", patience);
  const auto load = std::make_shared<Load>();
  const auto stream = tensor_bounce(side, side.find(blocking, "bulk", patience));
  stream->again = [load] {
    ++load->echoes;
    return !load->over.load();
  };
  const Ending streaming(side.stage().spawn(bounce<Tensor>, stream));
  caf::anon_send(streaming.get(), Go::value);

  const auto trips = std::make_shared<RoundTrips>(RoundTrips::Plan{1, what.span()});
  const auto bounce = std::make_shared<Bounce<std::uint64_t>>();
  bounce->echo = small;
  bounce->again = [trips] { return trips->again(); };
  bounce->same = [](std::uint64_t x) { return x == 0; };
  const Throughput throughput(load->echoes);
  trips->begin();
  run_bounce(blocking, side.stage(), bounce, patience);
  Figures figures = spread_figures(*trips);
  figures["gb_s"] = throughput.gb_s();
  load->over = true;
  stream->finish.wait(blocking, patience);
  TROUPE_CHECK(stream->intact, Code::corrupt, "a tensor came back with other content");
  return figures;
}

bool has_tensor(const EndCase& what) { return what.impl == "arena" || what.as_tensor(); }

Figures run_client(Blocking& blocking, Side& side, const EndCase& what, Line& line) {
  const Clock::duration patience = line.patience();
  if (what.what == "mixed") return mixed_latency(blocking, side, what, patience);
  const caf::actor far = side.find(blocking, "far", patience);
  if (what.what == "idle") return idle_cores(blocking, what, line);
  if (has_tensor(what)) return tensor_latency(blocking, side, what, far, patience);
  return measure_near(blocking, side.stage(), what, far, patience);
}

}  // namespace

Figures run_actors(Blocking& blocking, const EndCase& what, Line& line) {
  Side side(blocking, what, line);
  Figures figures;
  if (what.client) {
    figures = run_client(blocking, side, what, line);
    line.meet(blocking);
  } else {
    const Stage stage = side.stage();
    const std::optional<Tensor> own = what.impl == "arena" ? std::optional{side.tensor()} : std::nullopt;
    const bool tensors = what.what == "latency" && has_tensor(what);
    const Ending far(tensors ? stage.spawn(echo<Tensor>, own) : spawn_far(stage, what));
    const Ending bulk(stage.spawn(echo<Tensor>, std::optional<Tensor>{}));
    side.publish("far", far.get());
    side.publish("bulk", bulk.get());
    if (what.what == "idle") idle_cores(blocking, what, line);
    line.meet(blocking);
  }
  return figures;
}

}  // namespace troupe::bench
