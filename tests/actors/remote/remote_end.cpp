#include "tests/actors/remote/remote_end.hpp"

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <cstring>
#include <map>

#include "actors/caf_error.hpp"

namespace troupe::test {
namespace {

constexpr std::uint64_t kOwnBytes = std::uint64_t{80} << 20;
constexpr std::uint64_t kCommonBytes = std::uint64_t{16} << 20;

struct ServerState {
  static constexpr const char* name = "server";
  std::map<std::uint64_t, std::uint64_t> next;  // by the sender's thread
  std::uint64_t notes = 0;
  std::uint64_t misplaced = 0;
  std::vector<Tensor> kept;
};
using Self = caf::stateful_actor<ServerState>*;

void note(Self self, std::uint64_t thread, std::uint64_t number) {
  auto& s = self->state;
  ++s.notes;
  if (s.next[thread]++ != number) ++s.misplaced;
}

caf::behavior serve(Self self, RemoteEnd* end) {
  const auto sum = [=](const Tensor& tensor) { return digest(end->space, tensor); };
  return {
      [](Echo, std::uint64_t x) { return x; },
      [](Echo, std::string& x) { return std::move(x); },
      [](Echo, std::vector<char>& x) { return std::move(x); },
      [](Echo, const Tensor& x) { return x; },
      [](Echo, const Thorny& x) { return x; },
      [=](Note, std::uint64_t thread, std::uint64_t number) { note(self, thread, number); },
      [=](Note, std::uint64_t thread, std::uint64_t number, const std::vector<char>&) { note(self, thread, number); },
      [=](Note, std::uint64_t thread, std::uint64_t number, const Tensor& x) {
        std::uint64_t stamp = 0;
        std::memcpy(&stamp, end->space.address(x.memory()), sizeof stamp);
        note(self, thread, stamp == number ? number : ~number);
      },
      [=](Noted) { return caf::make_message(self->state.notes, self->state.misplaced); },
      [=](Hang, std::uint64_t) -> caf::result<std::uint64_t> {
        self->make_response_promise();
        return caf::delegated<std::uint64_t>{};
      },
      [=](Hang, const Tensor&) -> caf::result<std::uint64_t> { return caf::delegated<std::uint64_t>{}; },
      [](Where, const Tensor& x) { return caf::make_message(x.memory().arena.value, x.memory().offset); },
      [=](Digest, const Tensor& x) { return sum(x); },
      [=](Digest, const Tensor& x, const Tensor& y, const Tensor& z) {
        return caf::make_message(sum(x), sum(y), sum(z));
      },
      [=](Keep, const Tensor& x) {
        self->state.kept.push_back(x);
        return std::uint64_t{self->state.kept.size()};
      },
      [=](Forget) { self->state.kept.clear(); },
      [=](Worker) -> caf::actor { return self->system().spawn(serve, end); },
      [=](Quit, std::uint8_t code, const std::string& why) {
        self->quit(to_caf(Status{static_cast<Code>(code), why}));
      },
      [=](Last, std::uint64_t bytes) {
        self->quit();
        return end->tensor(bytes, bytes);
      },
      [=](Pass, const caf::actor& other, std::uint64_t x) -> caf::result<std::uint64_t> {
        self->delegate(other, Echo::value, x);
        return caf::delegated<std::uint64_t>{};
      },
      [](Untravelled) { return Unregistered{1}; },
      [=](Publish, const std::string& name) { end->remote->publish(name, caf::actor(self)); },
  };
}

/// With contents from `seed`.
void fill(std::uint32_t* words, std::uint64_t count, std::uint64_t seed) {
  std::uint64_t word = seed;
  for (std::uint64_t i = 0; i < count; ++i)
    words[i] = static_cast<std::uint32_t>(word = word * 6364136223846793005u + 1442695040888963407u);
}

}  // namespace

std::uint64_t digest(const AddressSpace& space, const Tensor& tensor) {
  const Memory memory = tensor.memory();
  if (memory.size_bytes == 0) return 0;
  const auto* bytes = space.address_of<std::uint32_t>(memory);
  std::uint64_t sum = memory.size_bytes;
  for (std::uint64_t i = 0; i < memory.size_bytes / 4; ++i) sum += bytes[i] * (i % 64 + 1);
  return sum;
}

Config::Config() {
  configure_remote(*this);
  add_messages(*this, MessageName<Thorny>{"test.Thorny"});
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", std::size_t{2});
  set("logger.verbosity", caf::atom("quiet"));
}

RemoteEnd::RemoteEnd(Peer number, const MakeTransport& make_transport, RemoteOptions options,
                     const std::optional<FakeOptions>& its_device)
    : self(number), own(Arena::create(arena_id(self, 1), kOwnBytes)), system(config) {
  space.map(own);
  if (self == Peer{0}) {
    common = Arena::create(arena_id(self, 2), kCommonBytes);
    space.map(common);
  }
  if (!options.shares) options.shares = [](Peer, ArenaId arena) { return arena == arena_id(Peer{0}, 2); };
  options.dropped = [this](std::string_view) { ++told_dropped; };
  if (its_device) device = std::make_unique<FakeDevice>(space, *its_device);
  options.device = device.get();
  transport = make_transport(space);
  control = std::make_unique<LaneLoop>(*transport, Lane::control, LaneOptions{}, "control");
  bulk = std::make_unique<LaneLoop>(*transport, Lane::bulk, LaneOptions{}, "bulk");
  remote = std::make_unique<RemoteActors>(system, space, *control, *bulk, self, std::move(options));
  server = system.spawn(serve, this);
  remote->publish("server", server);
}

RemoteEnd::~RemoteEnd() {
  stop();
  caf::anon_send_exit(server, caf::exit_reason::user_shutdown);
  server = {};
  control.reset();
  bulk.reset();
  transport.reset();
  remote.reset();
  system.await_actors_before_shutdown(false);
}

std::vector<std::byte> RemoteEnd::introduction() const {
  const auto address = transport->address();
  const auto identity = remote->identity();
  std::vector<std::byte> bytes(sizeof(ArenaTicket) + 1);
  const bool has_ticket = self == Peer{0};
  bytes[0] = static_cast<std::byte>(identity.size());
  if (has_ticket) {
    const ArenaTicket ticket = common->ticket();
    std::memcpy(bytes.data() + 1, &ticket, sizeof ticket);
  }
  bytes.insert(bytes.end(), identity.begin(), identity.end());
  bytes.insert(bytes.end(), address.begin(), address.end());
  return bytes;
}

void RemoteEnd::meet(Peer peer, std::span<const std::byte> bytes) {
  const auto identity_bytes = static_cast<std::size_t>(bytes[0]);
  if (peer == Peer{0}) {
    ArenaTicket ticket;
    std::memcpy(&ticket, bytes.data() + 1, sizeof ticket);
    common = Arena::open(ticket);
    space.map(common);
  }
  bytes = bytes.subspan(1 + sizeof(ArenaTicket));
  remote->add_peer(peer, bytes.first(identity_bytes));
  transport->connect(peer, bytes.subspan(identity_bytes));
}

void RemoteEnd::start() {
  control->start();
  bulk->start();
}

bool RemoteEnd::stop(Clock::duration within) {
  auto blocking = Blocking::on_thread("test");
  return remote->stop(blocking, Deadline::after(within));
}

Memory RemoteEnd::fresh(std::uint64_t bytes, bool shared) { return (shared ? common : own)->allocate(bytes); }

Tensor RemoteEnd::tensor(std::uint64_t bytes, std::uint64_t seed, bool shared, Point valid_from,
                         std::shared_ptr<const void> owner) {
  const Memory memory = bytes == 0 ? Memory{own->id(), Arena::kPageBytes, 0} : fresh(bytes, shared);
  auto* const words = reinterpret_cast<std::uint32_t*>(space.address(memory));
  fill(words, bytes / 4, seed);
  return {memory, {bytes / 4}, DType::f32, valid_from, std::move(owner)};
}

Tensor RemoteEnd::tensor_on_device(std::uint32_t arena, std::uint64_t bytes, std::uint64_t seed, Point valid_from,
                                   std::shared_ptr<const void> owner) {
  const Memory all = device->allocate(arena_id(self, arena), MemoryKind::device, std::max<std::uint64_t>(bytes, 4));
  const Memory memory = slice(all, 0, bytes);
  fill(device->address_of<std::uint32_t>(all), bytes / 4, seed);
  return {memory, {bytes / 4}, DType::f32, valid_from, std::move(owner), MemoryKind::device};
}

caf::actor at_other_end(RemoteEnd& its, RemoteEnd& other, const caf::actor& actor) {
  const std::string name = "a" + std::to_string(actor.id());
  its.remote->publish(name, actor);
  auto blocking = Blocking::on_thread("test");
  return other.remote->resolve(blocking, its.self, name, Deadline::after(std::chrono::seconds(20)));
}

}  // namespace troupe::test
