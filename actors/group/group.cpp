#include "actors/group/group.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <future>
#include <iostream>
#include <mutex>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/group/detail/alone_transport.hpp"
#include "actors/group/detail/broadcaster.hpp"
#include "actors/group/detail/member.hpp"
#include "actors/group/detail/peer_table.hpp"
#include "actors/group/detail/process_agent.hpp"
#include "actors/group/detail/questions.hpp"
#include "actors/group/detail/shared_arenas.hpp"
#include "actors/remote/network_module.hpp"
#include "actors/remote/wire.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/base/words.hpp"

namespace troupe {
namespace {

using std::chrono::milliseconds;

/// How long the end of a membership may take if its deadline has passed.
constexpr milliseconds kParting{500};
constexpr Peer kFirst{0};
constexpr std::chrono::seconds kJoining{60};
/// Longer than a busy machine keeps a process from running, but shorter than a person would wait.
constexpr milliseconds kSilence{10'000};

/// For CAF, a time of 0 means no limit.
milliseconds request_time(Deadline deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline.left()), milliseconds(1));
}

std::vector<std::string> names_of(const std::vector<Peer>& peers) {
  std::vector<std::string> names;
  for (const Peer peer : peers) names.push_back(text("peer ", peer.value));
  return names;
}

GroupOptions with_defaults(GroupOptions options) {
  if (!options.remote.dropped) {
    options.remote.dropped = [](std::string_view what) { std::cerr << text("troupe: ", what, "\n"); };
  }
  if (!options.heartbeats)
    options.remote.heartbeats.reset();
  else if (!options.remote.heartbeats)
    options.remote.heartbeats = FailureDetectorOptions::with_dead(kSilence);
  return options;
}

}  // namespace

Hello own_hello(Hello given, const LaunchPlace& place, const caf::actor_system_config& config) {
  given.rank = place.rank;
  given.troupe_version = TROUPE_VERSION;
  given.protocol = wire::kVersion;
  given.caf_version = text(CAF_MAJOR_VERSION, '.', CAF_MINOR_VERSION, '.', CAF_PATCH_VERSION);
  given.type_table_hash = message_table_hash(config);
  given.pid = ::getpid();
  given.pid_namespace = pid_namespace();
  NodeIdentity& node = given.topology.identity;
  if (node.boot_id.empty()) node = {boot_id(), network_namespace()};
  if (given.topology.host.empty()) given.topology.host = host_name();
  return given;
}

std::string StopReport::text() const {
  std::string parts;
  const auto add = [&](const std::string& what, const std::vector<std::string>& whom) {
    parts += troupe::text(parts.empty() ? "" : "; ", what, whom.empty() ? "" : ": ", joined(whom));
  };
  if (!running.empty()) add("not stopped in time", names_of(running));
  if (!lost.empty()) add("lost before", names_of(lost));
  if (!actors.empty()) add("actors that run on", actors);
  if (!drained) add("not everything was sent", {});
  return parts.empty() ? "everything finished" : parts;
}

struct Group::State {
  State(caf::actor_system& home, GroupOptions given)
      : options(with_defaults(std::move(given))),
        deadline(options.deadline.value_or(Deadline::after(kJoining))),
        place(options.place.value_or(LaunchPlace{})),
        self{place.rank},
        system(home),
        space(options.space != nullptr ? *options.space : own_space),
        bootstrap(std::move(options.joined)) {}
  ~State();

  void find_others(Blocking& blocking);
  void connect();
  void spawn_servants();
  void exchange_addresses(Blocking& blocking);
  void share_arenas(Blocking& blocking, const std::vector<group::Member>& members);
  void go(Blocking& blocking);
  void await_others(Deadline deadline, StopReport& report);
  std::vector<std::string> retire(Deadline deadline);
  void say_goodbye(Deadline deadline);
  void end(Blocking& blocking, Deadline deadline, StopReport report, bool others_go_on);
  StopReport depart();
  void check(Peer peer) const;
  std::vector<Peer> everyone() const;
  std::vector<caf::actor> find(Blocking& blocking, const std::string& name, const std::vector<Peer>& at,
                               Deadline deadline, bool one_will_do, const std::set<std::string>& takes = {});
  caf::actor agent_of(Peer peer) const { return peer == self ? agent : peer_table->agent(peer); }

  GroupOptions options;
  const Deadline deadline;  // of joining
  const LaunchPlace place;
  const Peer self;
  caf::actor_system& system;
  std::mutex keeping;  // guards `kept` and `session`
  std::vector<std::shared_ptr<void>> kept;
  std::weak_ptr<void> session;  // begin_session()'s
  AddressSpace own_space;
  AddressSpace& space;
  std::vector<Hello> hellos;
  std::shared_ptr<group::SharedArenas> arenas = std::make_shared<group::SharedArenas>();
  std::shared_ptr<group::PeerTable> peer_table;
  caf::actor broadcaster;
  caf::actor agent;
  const std::shared_ptr<std::promise<void>> agent_ended = std::make_shared<std::promise<void>>();
  std::unique_ptr<RemoteActors> remote;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<LaneLoop> control;
  std::unique_ptr<LaneLoop> bulk;
  std::unique_ptr<Bootstrap> bootstrap;  // its thread calls `remote` on losses, so it ends first
  bool running = false;                  // the lanes are running
  std::uint64_t gathered = 0;            // number of all_gather calls
  std::uint32_t numbers = 0;             // the last result of next_number()
  std::optional<StopReport> ended;
};

Group::State::~State() {
  auto blocking = Blocking::on_thread("the end of a group");
  if (!ended) end(blocking, Deadline::after(Clock::duration::zero()), {}, false);
  bootstrap.reset();
  transport.reset();  // before the memory from which it may still send
  // Before the lanes, which have stopped: streams in it may still be returning from a call of theirs.
  while (!kept.empty()) kept.pop_back();
}

void Group::State::find_others(Blocking& blocking) {
  if (place.world_size > 1) {
    TROUPE_CHECK(options.make_transport, Code::invalid, "a group of ", place.world_size,
                 " processes needs GroupOptions::make_transport");
  }
  Hello mine = bootstrap ? Hello{} : own_hello(std::move(options.hello), place, system.config());
  if (!bootstrap && place.world_size > 1) bootstrap = Bootstrap::join(blocking, place, mine, deadline, options.waiting);
  hellos = bootstrap ? bootstrap->hellos() : std::vector{std::move(mine)};
}

void Group::State::connect() {
  transport = place.world_size > 1 ? options.make_transport({space, self, hellos}) : group::make_alone_transport();
  TROUPE_CHECK(transport != nullptr, Code::invalid, "GroupOptions::make_transport made none");
  control = std::make_unique<LaneLoop>(*transport, Lane::control, options.control, "lane-control");
  bulk = std::make_unique<LaneLoop>(*transport, Lane::bulk, options.bulk, "lane-bulk");
  if (options.arena_bytes > 0) arenas->create(space, self, options.arena_bytes);
  if (options.device != nullptr) arenas->use(*options.device, self, options.device_bytes);
  RemoteOptions given = options.remote;
  given.shares = [arenas = arenas, others = options.remote.shares](Peer peer, ArenaId arena) {
    return arenas->shares(peer, arena) || (others && others(peer, arena));
  };
  if (given.device == nullptr) given.device = options.device;
  given.lost = [this, others = options.remote.lost](Peer peer, const Status& why) {
    if (others) others(peer, why);
    if (peer_table->shutting_down()) {  // stopped peers close connections: only the report lists losses
      if (self == kFirst) caf::anon_send(agent, group::Silent::value, peer.value, std::string(why.text()));
      return;
    }
    peer_table->report_lost(peer, why);
    caf::anon_send(agent, group::Silent::value, peer.value, std::string(why.text()));
  };
  remote = std::make_unique<RemoteActors>(system, space, *control, *bulk, self, std::move(given));
}

void Group::State::spawn_servants() {
  TROUPE_CHECK(!system.registry().get<caf::strong_actor_ptr>(group::kBroadcaster), Code::invalid,
               "this actor system is in a group already; give every group a system of its own");
  peer_table = std::make_shared<group::PeerTable>(self, options.remote.dropped);
  if (options.lost) peer_table->add_listener(options.lost);
  broadcaster = system.spawn<group::Broadcaster, caf::hidden>(peer_table);
  agent = system.spawn<group::ProcessAgent, caf::hidden>(peer_table);
  system.registry().put(group::kBroadcaster, broadcaster);
  // CAF calls attached functions in reverse order: this one is called after those that inform the other processes.
  agent->attach_functor([end = agent_ended] { end->set_value(); });
  for (const caf::actor& own_actor : {broadcaster, agent}) system.registry().put(own_actor.id(), own_actor);
}

/// Exchanges the addresses of all processes.
void Group::State::exchange_addresses(Blocking& blocking) {
  std::vector<group::Member> members(hellos.size());
  members[self.value] = {.transport = transport->address(),
                         .actor_node = remote->identity(),
                         .broadcaster = broadcaster.id(),
                         .agent = agent.id(),
                         .arena = arenas->ticket()};
  if (bootstrap) {
    const auto blobs = bootstrap->all_gather(blocking, "members", encode(members[self.value]), deadline);
    for (std::uint32_t peer = 0; peer < blobs.size(); ++peer) {
      if (peer == self.value) continue;
      members[peer] = group::decode_member(blobs[peer]);
      transport->connect({peer}, members[peer].transport);
      remote->add_peer({peer}, members[peer].actor_node);
    }
  }
  share_arenas(blocking, members);
  std::vector<group::PeerTable::Entry> entries;
  for (std::uint32_t peer = 0; peer < members.size(); ++peer) {
    const group::Member& member = members[peer];
    entries.push_back(
        {RemoteActors::node_in(member.actor_node), member.broadcaster, member.agent, hellos[peer].topology.host});
  }
  peer_table->enroll(*remote, std::move(entries));
}

/// Every process maps the arenas that it can reach, and reports which.
void Group::State::share_arenas(Blocking& blocking, const std::vector<group::Member>& members) {
  std::vector<std::vector<std::byte>> tickets;
  for (const group::Member& member : members) tickets.push_back(member.arena);
  const bool any = std::any_of(tickets.begin(), tickets.end(), [](const auto& ticket) { return !ticket.empty(); });
  if (!bootstrap || !any) return;
  arenas->learn(bootstrap->all_gather(blocking, "arenas", arenas->map(space, tickets), deadline));
}

void Group::State::go(Blocking& blocking) {
  control->start();
  bulk->start();
  running = true;
  if (!bootstrap) return;
  bootstrap->all_gather(blocking, "ready", {}, deadline);
  // Heartbeats begin with a first message: peer 0 and all others watch each other, as do peers that exchange messages.
  if (self != kFirst) peer_table->agent(kFirst);
  bootstrap->watch([this](Peer peer, const Status& why) {
    remote->lost(peer, why);
    caf::anon_send(agent, group::Lost::value, peer.value);
    peer_table->report_lost(peer, why);
  });
}

/// Adds the processes that had not finished by the deadline to the report.
void Group::State::await_others(Deadline deadline, StopReport& report) {
  if (hellos.size() == 1) return;
  caf::scoped_actor asking(system);
  // Peer 0 answers somewhat before the deadline, so that its answer arrives in time.
  const auto within = static_cast<std::uint64_t>(request_time(deadline).count()) * 9 / 10;
  asking->request(agent_of(kFirst), request_time(deadline), group::Finish::value, self.value, within)
      .receive(
          [&](const group::Unfinished& unfinished) {
            for (const std::uint32_t peer : unfinished.running) report.running.push_back(Peer{peer});
            for (const std::uint32_t peer : unfinished.lost) report.lost.push_back(Peer{peer});
          },
          [&](const caf::error& error) {
            const bool died = from_caf(error).code() == Code::peer_lost;
            (died ? report.lost : report.running).push_back(kFirst);
          });
}

std::vector<std::string> Group::State::retire(Deadline deadline) {
  std::vector<std::string> running;
  caf::scoped_actor asking(system);
  const auto within = static_cast<std::uint64_t>(request_time(deadline).count());
  asking->request(agent, request_time(deadline) + kParting, group::Retire::value, within)
      .receive([&](std::vector<std::string>& names) { running = std::move(names); },
               [&](const caf::error&) { running.push_back("the group's process agent: no thread of CAF's is free"); });
  return running;
}

/// Tells the other processes that this one leaves, after all its messages have arrived. It does not need CAF's threads,
/// which may all be busy.
void Group::State::say_goodbye(Deadline deadline) {
  caf::scoped_actor asking(system);
  using Asked = decltype(asking->request(agent, milliseconds(1), group::Leaving::value, self.value));
  std::vector<Asked> asked;
  const milliseconds within = request_time(Deadline::after(deadline.left() / 2));
  for (const Peer peer : everyone()) {
    if (peer != self)
      asked.push_back(asking->request(peer_table->agent(peer), within, group::Leaving::value, self.value));
  }
  for (Asked& each : asked) each.receive([] {}, [](const caf::error&) {});  // without an answer, a peer finds out later
  caf::anon_send_exit(agent, caf::exit_reason::user_shutdown);
  agent_ended->get_future().wait_until(deadline.at());
}

/// Ends first the actors that serve others, then the messages in transit, then the lanes.
void Group::State::end(Blocking& blocking, Deadline deadline, StopReport report, bool others_go_on) {
  const Deadline last = Deadline::after(std::max<Clock::duration>(deadline.left(), kParting));
  if (peer_table) peer_table->begin_shutdown();
  if (agent) report.actors = retire(last);
  if (broadcaster) system.registry().erase(group::kBroadcaster);
  if (running && others_go_on) say_goodbye(last);
  if (running) report.drained = remote->stop(blocking, last);
  if (control) control->stop(last);
  if (bulk) bulk->stop(last);
  if (peer_table) peer_table->close();
  for (caf::actor* own_actor : {&broadcaster, &agent}) {
    if (*own_actor) caf::anon_send_exit(*own_actor, caf::exit_reason::user_shutdown);
  }
  ended = std::move(report);
}

StopReport Group::State::depart() {
  if (bootstrap) bootstrap->leave();
  return *ended;
}

void Group::State::check(Peer peer) const {
  TROUPE_CHECK(peer.value < hellos.size(), Code::invalid, "there is no peer ", peer.value, "; the group has ",
               hellos.size(), ", numbered from 0");
}

std::vector<Peer> Group::State::everyone() const {
  std::vector<Peer> all;
  for (std::uint32_t peer = 0; peer < hellos.size(); ++peer) all.push_back(Peer{peer});
  return all;
}

/// The actors of that name at those peers, or one of them. Throws an error that names the peers without one.
std::vector<caf::actor> Group::State::find(Blocking& blocking, const std::string& name, const std::vector<Peer>& at,
                                           Deadline deadline, bool one_will_do, const std::set<std::string>& takes) {
  std::vector<caf::actor> directories;
  for (const Peer peer : at) directories.push_back(remote->directory(peer));
  const auto replies = group::ask_all(blocking, system,
                                      {.whom = std::move(directories),
                                       .question = caf::make_message(RemoteActors::Find::value, name, takes),
                                       .within = deadline.left(),
                                       .first_answer_ends = one_will_do});
  std::vector<caf::actor> found;
  std::vector<std::string> lacking;
  Code code = Code::ok;  // the most severe if all are needed, the least severe if one is enough
  for (std::size_t i = 0; i < replies.size(); ++i) {
    const Status& status = replies[i].status;
    if (status.ok()) {
      found.push_back(replies[i].what.get_as<caf::actor>(0));
      continue;
    }
    const bool late = status.code() == Code::timeout;
    if (code == Code::ok || late == one_will_do) code = status.code();
    lacking.push_back(peer_table->describe(at[i]) + (late ? "" : text(" (", status.text(), ")")));
  }
  const bool enough = one_will_do ? !found.empty() : lacking.empty();
  TROUPE_CHECK(enough, code, "no actor named \"", name, "\" was published in time at ", joined(lacking));
  return found;
}

Group::Group(std::unique_ptr<State> state) : state_(std::move(state)) {}
Group::~Group() = default;

std::unique_ptr<Group> Group::join(Blocking& blocking, caf::actor_system& system, GroupOptions options) {
  TROUPE_CHECK(system.node(), Code::invalid,
               "this actor system has no node id: call configure_group(config) before it is made");
  auto state = std::make_unique<State>(system, std::move(options));
  state->find_others(blocking);
  state->connect();
  state->spawn_servants();
  state->exchange_addresses(blocking);
  state->go(blocking);
  return std::unique_ptr<Group>(new Group(std::move(state)));
}

caf::actor Group::lookup(Blocking& blocking, Peer peer, const std::string& name, Deadline deadline) {
  state_->check(peer);
  return state_->find(blocking, name, {peer}, deadline, false).front();
}

caf::actor Group::lookup(Blocking& blocking, const std::string& name, Deadline deadline) {
  return state_->find(blocking, name, state_->everyone(), deadline, true).front();
}

caf::actor Group::lookup_as(Blocking& blocking, Peer peer, const std::string& name, const std::set<std::string>& takes,
                            Deadline deadline) {
  state_->check(peer);
  return state_->find(blocking, name, {peer}, deadline, false, takes).front();
}

Mesh Group::lookup_all(Blocking& blocking, const std::string& name, Deadline deadline) {
  return {{{"peer", size()}}, state_->find(blocking, name, state_->everyone(), deadline, false)};
}

caf::actor Group::spawn_at(Blocking&, Peer peer, const std::string& type, const caf::message& args, Deadline deadline) {
  state_->check(peer);
  group::check_travels(system(), args);
  caf::scoped_actor asking(system());
  caf::actor made;
  Status status;
  asking->request(state_->agent_of(peer), request_time(deadline), Spawn::value, type, args)
      .receive([&](caf::actor& actor) { made = std::move(actor); },
               [&](const caf::error& error) { status = from_caf(error); });
  TROUPE_CHECK(status.code() != Code::timeout, Code::timeout, state_->peer_table->describe(peer),
               " did not spawn an actor of type \"", type, "\" in time");
  TROUPE_CHECK(status.ok(), status.code(), "no actor of type \"", type, "\" at ", state_->peer_table->describe(peer),
               ": ", status.text());
  return made;
}

caf::expected<caf::actor> Group::try_spawn_as(Blocking&, Peer peer, const std::string& type, const caf::message& args,
                                              const std::set<std::string>& takes, Deadline deadline) {
  state_->check(peer);
  try {
    group::check_travels(system(), args);
  } catch (const Error& error) {
    return to_caf(error);
  }
  caf::scoped_actor asking(system());
  caf::expected<caf::actor> made = caf::make_error(caf::sec::request_timeout);
  asking->request(state_->agent_of(peer), request_time(deadline), Spawn::value, type, args, takes)
      .receive([&](caf::actor& actor) { made = std::move(actor); },
               [&](caf::error& error) { made = std::move(error); });
  return made;
}

caf::actor Group::spawner(Peer peer) const {
  state_->check(peer);
  return state_->agent_of(peer);
}

std::vector<std::vector<std::byte>> Group::all_gather(Blocking& blocking, const std::string& what,
                                                      std::span<const std::byte> mine, Deadline deadline) {
  const auto* const first = reinterpret_cast<const char*>(mine.data());
  const std::uint64_t number = ++state_->gathered;
  caf::anon_send(state_->agent, group::Offer::value, number, what, std::vector<char>(first, first + mine.size()));
  std::vector<caf::actor> agents;
  for (const Peer peer : state_->everyone()) agents.push_back(state_->agent_of(peer));
  const auto within = deadline.left();
  const auto replies = group::ask_all(
      blocking, system(),
      {.whom = std::move(agents), .question = caf::make_message(group::Gather::value, number, what), .within = within});
  std::vector<std::vector<std::byte>> all;
  for (std::uint32_t peer = 0; peer < replies.size(); ++peer) {
    const Status& status = replies[peer].status;
    TROUPE_CHECK(status.code() != Code::timeout, Code::timeout, state_->peer_table->describe({peer}),
                 " gave nothing for '", what, "' within ", seconds(within));
    TROUPE_CHECK(status.ok(), status.code(), state_->peer_table->describe({peer}), " gave nothing for '", what,
                 "': ", status.text());
    const auto& bytes = replies[peer].what.get_as<std::vector<char>>(0);
    const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
    all.emplace_back(begin, begin + bytes.size());
  }
  return all;
}

namespace {

class Listener final : public Group::LossListener {
 public:
  Listener(std::shared_ptr<group::PeerTable> peer_table, Bootstrap::Lost lost)
      : peer_table_(std::move(peer_table)), number_(peer_table_->add_listener(std::move(lost))) {}
  ~Listener() override { peer_table_->remove_listener(number_); }

 private:
  const std::shared_ptr<group::PeerTable> peer_table_;
  const std::uint64_t number_;
};

}  // namespace

std::unique_ptr<Group::LossListener> Group::listen(Bootstrap::Lost lost) {
  return std::make_unique<Listener>(state_->peer_table, std::move(lost));
}

void Group::keep(std::shared_ptr<void> parts) {
  const std::lock_guard lock(state_->keeping);
  state_->kept.push_back(std::move(parts));
}

std::shared_ptr<void> Group::begin_session() {
  const std::lock_guard lock(state_->keeping);
  TROUPE_CHECK(state_->session.expired(), Code::invalid,
               "a group has one session at a time: another one has not ended in this process; start this one after its "
               "run() or finish() has returned, or in a group of its own");
  auto begun = std::make_shared<char>();
  state_->session = begun;
  return begun;
}

std::uint32_t Group::next_number() noexcept { return ++state_->numbers; }

StopReport Group::stop(Blocking& blocking, Deadline deadline) {
  if (state_->ended) return *state_->ended;
  StopReport report;
  state_->peer_table->begin_shutdown();
  state_->await_others(deadline, report);
  const bool others_go_on = !report.running.empty();
  state_->end(blocking, deadline, std::move(report), others_go_on);
  return state_->depart();
}

StopReport Group::leave(Blocking& blocking, Deadline deadline) {
  if (state_->ended) return *state_->ended;
  state_->end(blocking, deadline, {}, true);
  return state_->depart();
}

Peer Group::self() const noexcept { return state_->self; }
std::uint32_t Group::size() const noexcept { return static_cast<std::uint32_t>(state_->hellos.size()); }
caf::actor_system& Group::system() const noexcept { return state_->system; }
AddressSpace& Group::space() const noexcept { return state_->space; }
Arena& Group::arena() const {
  TROUPE_CHECK(state_->arenas->own(), Code::invalid, "this group has no arena; set GroupOptions::arena_bytes");
  return *state_->arenas->own();
}
Memory Group::device_memory() const {
  const Memory memory = state_->arenas->device_memory();
  TROUPE_CHECK(memory.size_bytes > 0, Code::invalid,
               "this group has no memory of a device; set GroupOptions::device and device_bytes");
  return memory;
}
RemoteActors& Group::remote() const noexcept { return *state_->remote; }
Transport& Group::transport() const noexcept { return *state_->transport; }
LaneLoop& Group::control() const noexcept { return *state_->control; }
LaneLoop& Group::bulk() const noexcept { return *state_->bulk; }
const std::vector<Hello>& Group::hellos() const noexcept { return state_->hellos; }

}  // namespace troupe
