#include "tools/bench/group/member.hpp"

#include <unistd.h>

#include <array>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "actors/group/group.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/thread.hpp"
#include "tools/bench/group/control_line.hpp"
#include "tools/bench/group/talk.hpp"
#include "tools/bench/messages/say.hpp"
#include "tools/bench/pin.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::bench {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Config final : caf::actor_system_config {
  explicit Config(std::uint32_t workers) {
    configure_group(*this);
    if (workers > 0) set("scheduler.max-threads", std::size_t{workers});
    set("logger.verbosity", caf::atom("quiet"));
  }
};

/// Becomes the same program in a network namespace, with this pid; `ip` shows it the namespace's devices, too.
[[noreturn]] void enter(MemberCase what) {
  const std::string node = std::exchange(what.node, "");
  std::error_code error;
  std::vector<std::string> arguments{"ip", "netns", "exec", node,
                                     std::filesystem::read_symlink("/proc/self/exe", error)};
  const auto own = arguments_of(what);
  arguments.insert(arguments.end(), own.begin() + 1, own.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  fail_errno(Code::environment, text("cannot enter the network namespace ", node, " by `ip netns exec`"));
}

/// UCX lists devices that are up when it starts; a fresh one may take a moment.
void await_device(Blocking&, const std::string& device) {
  const Deadline deadline = Deadline::after(seconds(10));
  const std::string file = "/sys/class/net/" + device + "/operstate";
  for (std::string state; state != "up" && state != "unknown"; ::usleep(2000)) {
    std::ifstream(file) >> state;
    TROUPE_CHECK(!deadline.passed(), Code::environment, "the network device ", device, " does not come up (", file,
                 " says \"", state, "\")");
  }
}

/// A thread that computes until it ends.
class Computation {
 public:
  Computation() : thread_(start_thread("compute", [this] { run(); })) {}
  ~Computation() {
    over_ = true;
    thread_.join();
  }

 private:
  void run() {
    std::array<float, 4096> values{};
    for (float step = 1; !over_.load(std::memory_order_relaxed); step = step * 0.5f + 1)
      for (float& value : values) value = value * 0.99f + step;
    result_ = values.front();  // so that it is computed at all
  }
  std::atomic<bool> over_{false};
  std::atomic<float> result_{0};
  std::thread thread_;
};

GroupOptions options_of(const MemberCase& what, const ControlLine& line) {
  GroupOptions options{.place = launch_place_from_environment()};
  TROUPE_CHECK(options.place, Code::invalid, "a process of a measured group is started by rtbench group");
  options.deadline = Deadline::after(seconds(what.patience_s));
  options.hello.ucx_version = ucx_version();
  options.make_transport = [&what](const TransportSite& site) {
    UcxOptions ucx{.self = site.self,
                   .means = what.transport == "tcp" ? UcxMeans::tcp : UcxMeans::shm,
                   .hosts = hosts_of(site.hellos)};
    ucx.network_device = what.device;
    return make_ucx_transport(site.space, ucx);
  };
  options.remote.heartbeats = FailureDetectorOptions::with_dead(milliseconds(what.dead_ms));
  options.remote.suspected = [&line](Peer peer, bool suspected) {
    line.say({{"say", suspected ? "suspected" : "recovered"}, {"peer", peer.value}});
  };
  options.remote.dropped = [&line](std::string_view dropped) { line.say({{"say", "dropped"}, {"what", dropped}}); };
  options.lost = [&line](Peer peer, const Status& why) {
    line.say({{"say", "lost"}, {"peer", peer.value}, {"at", nanoseconds_of(Clock::now())}, {"why", why.text()}});
  };
  return options;
}

class Member {
 public:
  Member(Blocking& blocking, const MemberCase& what, ControlLine& line)
      : blocking_(blocking), what_(what), line_(line), config_(what.workers), system_(config_) {
    group_ = Group::join(blocking, system_, options_of(what, line));
    const Load load{what.numbers, what.blocks};
    adopt(what.inlined ? group_->remote().spawn_inline(talker, load, heard_) : system_.spawn(talker, load, heard_));
    group_->publish("talker", actors_.back());
    adopt(system_.spawn(listener));
    group_->publish("listener", actors_.back());
    line_.say({{"say", "joined"}, {"at", nanoseconds_of(Clock::now())}});
  }
  ~Member() {
    for (const caf::actor& actor : actors_) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void obey() {
    // Waits without a deadline: who measures has one, and this process dies with it.
    for (bool more = true; more;) {
      const auto order = line_.hear();
      if (!order) return;
      more = order->at("do") != "stop";
      line_.say(more ? answer(*order) : stop(*order));
    }
  }

 private:
  json answer(const json& order) {
    const std::string word = order.at("do");
    if (word == "watch") return watch(order.at("peer"));
    if (word == "talk") return talk(order.at("with"));
    if (word == "hush") {
      caf::anon_send(actors_.front(), Hush::value);
      return {{"say", "hushed"}};
    }
    if (word == "compute") {
      if (!computation_) computation_ = std::make_unique<Computation>();
      return {{"say", "computing"}};
    }
    if (word == "ballast") {
      ballast_.assign(order.at("mb").get<std::size_t>() << 20, 1);
      return {{"say", "heavier"}};
    }
    if (word == "count") {
      const auto gap = static_cast<double>(heard_->longest_gap_ns.load()) / 1e6;
      return {{"say", "count"}, {"messages", heard_->messages.load()}, {"longest_gap_ms", gap}};
    }
    TROUPE_CHECK(word == "broadcast", Code::invalid, "a measured process is told to \"", word, "\"");
    return broadcast(order.at("number"));
  }

  json watch(std::uint32_t peer) {
    const Ended ended = [this, peer](Clock::time_point at, const Status& why) {
      line_.say({{"say", "down"},
                 {"peer", peer},
                 {"at", nanoseconds_of(at)},
                 {"code", name_of(why.code())},
                 {"why", why.text()}});
    };
    adopt(system_.spawn(watcher, find(peer), ended));
    return {{"say", "watching"}};
  }

  json talk(const std::vector<std::uint32_t>& with) {
    std::vector<caf::actor> partners;
    for (const std::uint32_t peer : with) partners.push_back(find(peer));
    caf::anon_send(actors_.front(), TalkWith::value, std::move(partners));
    return {{"say", "talking"}};
  }

  json broadcast(std::uint64_t number) {
    const auto begin = Clock::now();
    const Mesh all = group_->lookup_all(blocking_, "listener", patience());
    const auto found = Clock::now();
    all.broadcast(caf::make_message(News::value, number));
    const auto answers = all.gather<std::uint64_t>(blocking_, caf::make_message(Answer::value, number), patience());
    const auto heard = Clock::now();
    const bool right = answers == std::vector<std::uint64_t>(group_->size(), number);
    TROUPE_CHECK(right, Code::corrupt, "not everyone answered with what was broadcast");
    return {{"say", "heard"},
            {"lookup_ms", milliseconds_since(begin, nanoseconds_of(found))},
            {"ms", milliseconds_since(found, nanoseconds_of(heard))}};
  }

  json stop(const json& order) {
    const StopReport report =
        group_->stop(blocking_, Deadline::after(milliseconds(order.at("within_ms").get<std::uint32_t>())));
    return {{"say", "stopped"}, {"clean", report.clean()}, {"text", report.text()}};
  }

  caf::actor find(std::uint32_t peer) { return group_->lookup(blocking_, Peer{peer}, "talker", patience()); }
  Deadline patience() const { return Deadline::after(seconds(what_.patience_s)); }
  void adopt(caf::actor actor) { actors_.push_back(std::move(actor)); }

  Blocking& blocking_;
  const MemberCase& what_;
  ControlLine& line_;
  const std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  std::unique_ptr<Computation> computation_;
  std::vector<char> ballast_;
  Config config_;
  caf::actor_system system_;
  std::unique_ptr<Group> group_;
  std::vector<caf::actor> actors_;  // the talker first; end with this
};

}  // namespace

std::vector<std::string> arguments_of(const MemberCase& what) {
  std::vector<std::string> arguments{
      "rtbench",      "group-member",
      "--transport",  what.transport,
      "--dead-ms",    std::to_string(what.dead_ms),
      "--workers",    std::to_string(what.workers),
      "--numbers",    std::to_string(what.numbers),
      "--blocks",     std::to_string(what.blocks),
      "--patience-s", std::to_string(what.patience_s),
      "--cpu",        std::to_string(what.cpu),
      "--line",       std::to_string(what.line),
  };
  if (!what.device.empty()) arguments.insert(arguments.end(), {"--device", what.device});
  if (!what.node.empty()) arguments.insert(arguments.end(), {"--node", what.node});
  if (what.inlined) arguments.push_back("--inline");
  return arguments;
}

int run_member(const MemberCase& what) {
  try {
    if (!what.node.empty()) enter(what);
    Blocking blocking = Blocking::on_thread("main");
    if (what.cpu >= 0) pin_to(what.cpu);
    if (!what.device.empty()) await_device(blocking, what.device);
    ControlLine line{Fd{what.line}};
    Member(blocking, what, line).obey();
    return 0;
  } catch (const Error& error) {
    say_error(error.what());
    return exit_code(error.code());
  }
}

}  // namespace troupe::bench
