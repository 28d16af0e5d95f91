#include "tools/bench/messages/side.hpp"

#include <cstring>

#include "actors/exchange/messages.hpp"
#include "actors/plain_messages.hpp"
#include "runtime/base/error.hpp"
#include "tools/bench/messages/block.hpp"
#include "tools/bench/messages/endurance_load.hpp"
#include "tools/bench/messages/say.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::bench {
namespace {

constexpr Peer kClient{0};
constexpr Peer kServer{1};
constexpr std::uint32_t kOwnArena = 1;
constexpr std::uint32_t kLentArena = 2;

RemoteOptions options_of(const EndCase& what) {
  RemoteOptions options;
  options.dropped = [](std::string_view why) { say(text("a message was dropped: ", why)); };
  options.slow = [](caf::actor_id, Clock::duration, bool moved) {
    if (moved) say("a measured actor held the control lane up and goes on in the scheduler: not inline any more");
  };
  if (what.floods()) {
    options.memory_bytes = what.memory_mb * std::uint64_t{1'000'000};
    options.dropped = {};  // counted
    options.slow = {};     // it is
  }
  // Who does nothing but send keeps the lane for as long as it sends.
  if (what.what == "rate" || what.endures()) options.inline_limit = std::chrono::seconds(1);
  // So small that tensors fill it too.
  if (what.endures()) options.unhandled_bytes = 8u << 20;
  if (what.impl == "arena" || what.endures()) {
    options.shares = [](Peer, ArenaId arena) {
      return arena == arena_id(kClient, kLentArena) || arena == arena_id(kServer, kLentArena);
    };
  }
  return options;
}

std::uint64_t arena_bytes(const EndCase& what) {
  if (what.endures()) return EnduranceEnd::kArenaBytes;
  if (what.floods()) return 4096;  // no tensors
  return what.what == "mixed" ? kStreamedBytes : what.bytes;
}

/// Of all that a shard, or its worker, has.
constexpr std::uint64_t kStripeCopies = 4;

}  // namespace

Side::Config::Config() {
  configure_remote(*this);
  configure_exchange(*this);
  configure_one_worker(*this);
  add_plain_messages(*this, MessageName<Block>{Block::name});
}

Side::Side(Blocking& blocking, const EndCase& what, Line& line)
    : what_(what),
      self_(what.client ? kClient : kServer),
      there_(what.client ? kServer : kClient),
      arena_(Arena::create(arena_id(self_, what.impl == "arena" ? kLentArena : kOwnArena),
                           arena_bytes(what) * (what.what == "shard" ? kStripeCopies : 1))),
      system_(config_) {
  space_.map(arena_);
  if (what.impl == "arena") lent_ = arena_;
  if (what.endures()) {
    lent_ = Arena::create(arena_id(self_, kLentArena), arena_bytes(what));
    space_.map(lent_);
  }
  UcxOptions ucx{.self = self_, .means = what.tcp() ? UcxMeans::tcp : UcxMeans::shm};
  if (what.tcp()) ucx.network_device = "lo";
  transport_ = make_ucx_transport(space_, ucx);
  control_ = std::make_unique<LaneLoop>(*transport_, Lane::control, control_lane(what), "control");
  bulk_ = std::make_unique<LaneLoop>(*transport_, Lane::bulk, LaneOptions{}, "bulk");
  remote_ = std::make_unique<RemoteActors>(system_, space_, *control_, *bulk_, self_, options_of(what));
  remote_->add_peer(there_, line.swap(blocking, remote_->identity()));
  transport_->connect(there_, line.swap(blocking, transport_->address()));
  if (lent_) share_arena(blocking, line);
  control_->start();
  bulk_->start();
}

Side::~Side() {
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

Tensor Side::tensor() {
  const Memory memory = arena_->allocate(arena_bytes(what_));
  auto* const words = space_.address_of<std::uint32_t>(memory);
  const std::uint64_t count = memory.size_bytes / sizeof(std::uint32_t);
  for (std::uint64_t i = 0; i < count; ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761u + 1);
  return {memory, {count}, DType::f32, {}, arena_};
}

bool Side::same(const Tensor& one, const Tensor& other) const {
  const Memory memory = one.memory();
  return memory.size_bytes == other.memory().size_bytes &&
         std::memcmp(space_.address(memory), space_.address(other.memory()), memory.size_bytes) == 0;
}

void Side::share_arena(Blocking& blocking, Line& line) {
  ArenaTicket ticket = lent_->ticket();
  const auto told = line.swap(blocking, std::as_bytes(std::span(&ticket, 1)));
  TROUPE_CHECK(told.size() == sizeof ticket, Code::corrupt, "the other end told no arena");
  std::memcpy(&ticket, told.data(), sizeof ticket);
  space_.map(Arena::open(ticket));
}

}  // namespace troupe::bench
