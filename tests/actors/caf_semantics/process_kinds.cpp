// The far and the third side in child processes, this program executed again, over shared memory and over TCP.
#include <signal.h>

#include <caf/event_based_actor.hpp>
#include <cstring>
#include <deque>

#include "tests/actors/caf_semantics/roles.hpp"
#include "tests/actors/caf_semantics/sides.hpp"
#include "tests/support/process.hpp"
#include "tests/transports/bootstrap_ranks.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::test::semantics {
namespace {

constexpr const char* kChildMark = "--far-side";
/// The reason of an ender whose process leaves the group; for any other reason it stops with the others.
constexpr auto kLeaves = caf::exit_reason::out_of_workers;

std::unique_ptr<Group> join(Blocking& blocking, caf::actor_system& system, LaunchPlace place, const std::string& kind) {
  GroupOptions options;
  options.place = std::move(place);
  options.deadline = Deadline::after(kLong);
  options.hello.ucx_version = ucx_version();
  options.remote.dropped = [](std::string_view) {};
  options.make_transport = [kind](const TransportContext& at) {
    UcxOptions ucx{.self = at.self, .means = kind == "tcp" ? UcxMeans::tcp : UcxMeans::shm};
    if (kind == "tcp") ucx.network_devices = "lo";
    return make_ucx_transport(at.space, ucx);
  };
  return Group::join(blocking, system, std::move(options));
}

class ThreeProcesses final : public Sides {
 public:
  explicit ThreeProcesses(const std::string& kind) {
    far = Peer{1};
    third = Peer{2};
    const testing::Listener listener;
    for (const Peer peer : {far, third}) {
      const std::string rank = std::to_string(peer.value);
      children_.emplace_back(testing::ProgramStart{.arguments = {"/proc/self/exe", kChildMark, kind},
                                                   .environment = {{"RANK", rank},
                                                                   {"WORLD_SIZE", "3"},
                                                                   {"LOCAL_RANK", rank},
                                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                                   {"MASTER_PORT", std::to_string(listener.port())}},
                                                   .unset = {"TROUPE_SECRET_FILE", "TROUPE_LISTEN_FD"}});
    }
    LaunchPlace place = testing::rank_options(listener, 0, 3).place;
    place.secret.clear();
    auto blocking = Blocking::on_thread("test");
    near.group = join(blocking, near.system, std::move(place), kind);
    for (const Peer peer : {far, third})
      enders_.push_back(near.group->lookup(blocking, peer, "ender", Deadline::after(kLong)));
  }
  ~ThreeProcesses() override {
    auto blocking = Blocking::on_thread("test");
    for (const caf::actor& ender : enders_) caf::anon_send_exit(ender, caf::exit_reason::user_shutdown);
    enders_.clear();
    near.group->stop(blocking, Deadline::after(killed_ ? std::chrono::milliseconds(1) : kLong));
    near.group.reset();
    for (auto& child : children_) child.signal(SIGKILL);
  }
  void kill_far() override {
    killed_ = true;
    children_.front().signal(SIGKILL);
  }
  void leave_far() override { caf::anon_send_exit(enders_.front(), kLeaves); }

 private:
  bool killed_ = false;
  std::deque<testing::Program> children_;
  std::vector<caf::actor> enders_;  // each child lives as long as its own
};

}  // namespace

std::vector<std::string> Sides::kinds() {
  return ucx_available() ? std::vector<std::string>{"shm", "tcp"} : std::vector<std::string>{};
}
std::vector<std::string> Sides::mortal_kinds() { return kinds(); }

std::unique_ptr<Sides> Sides::make(const std::string& kind) { return std::make_unique<ThreeProcesses>(kind); }

std::optional<int> run_as_far_side(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], kChildMark) != 0) return {};
  Side side;
  auto blocking = Blocking::on_thread("far side");
  side.group = join(blocking, side.system, launch_place_from_environment().value(), argv[2]);
  caf::actor ender = side.system.spawn([]() -> caf::behavior { return {[](std::int32_t x) { return x; }}; });
  publish_typed_actors(*side.group);
  side.group->publish("ender", ender);
  caf::scoped_actor self(side.system);
  self->monitor(ender);
  ender = {};
  bool leaves = false;
  self->receive([&](const caf::down_msg& down) { leaves = down.reason == kLeaves; });
  if (leaves) return side.group->leave(blocking, Deadline::after(kLong)).clean() ? 0 : 1;
  return side.group->stop(blocking, Deadline::after(kLong)).clean() ? 0 : 1;
}

}  // namespace troupe::test::semantics
