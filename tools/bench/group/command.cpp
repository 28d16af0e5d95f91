#include "tools/bench/group/command.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "runtime/base/error.hpp"
#include "tools/bench/group/nodes.hpp"
#include "tools/bench/messages/say.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::bench {
namespace {

bool is_load(const GroupCase& what) { return what.what == "silence" && what.how == "load"; }
bool is_pause(const GroupCase& what) { return what.what == "silence" && what.how == "pause"; }
bool is_cut(const GroupCase& what) { return what.what == "silence" && what.how == "cut"; }

std::uint32_t usual_processes(const GroupCase& what) {
  if (what.what == "crowd") return 64;
  if (is_load(what)) return 8;
  return is_cut(what) ? 2 : 3;
}

std::uint32_t usual_rounds(const GroupCase& what) {
  if (what.what == "death") return 100;
  return what.what == "crowd" ? 1 : 10;
}

std::uint32_t usual_dead_ms(const GroupCase& what) {
  return what.what == "silence" && !is_load(what) && !is_pause(what) ? 1000 : 3000;
}

/// For all of one process's partners together about as many as one peer's window holds.
std::uint32_t usual_numbers(const GroupCase& what) { return is_load(what) ? 64 : 512; }

/// Without these the figures say little.
void say_where(const GroupCase& what) {
  std::array<double, 1> load{};
  const bool known = ::getloadavg(load.data(), 1) == 1;
  say(text("group: ", what.processes, " processes on ", ::sysconf(_SC_NPROCESSORS_ONLN), " CPUs",
           known ? text(", load average ", load[0]) : ""));
}

void check(const GroupCase& what) {
  TROUPE_CHECK(ucx_available(), Code::environment,
               "this build has no UCX, over which processes talk: install libucx-dev and configure with "
               "TROUPE_WITH_UCX=ON");
  if (what.between == "namespaces") {
    TROUPE_CHECK(what.each.transport == "tcp", Code::invalid,
                 "shared memory does not wake processes of other network namespaces; use --transport tcp");
    TROUPE_CHECK(::geteuid() == 0, Code::environment, "network namespaces need root");
  }
  TROUPE_CHECK(what.processes >= 2, Code::invalid, "--processes ", what.processes, ": a group has at least 2");
}

void add_member_options(CLI::App& command, MemberCase& what) {
  command.add_option("--transport", what.transport)->required();
  command.add_option("--dead-ms", what.dead_ms)->required();
  command.add_option("--workers", what.workers)->required();
  command.add_option("--numbers", what.numbers)->required();
  command.add_option("--blocks", what.blocks)->required();
  command.add_option("--patience-s", what.patience_s)->required();
  command.add_option("--cpu", what.cpu)->required();
  command.add_option("--line", what.line)->required();
  command.add_option("--device", what.device);
  command.add_option("--node", what.node);
  command.add_flag("--inline", what.inlined);
}

void add_load_options(CLI::App& command, GroupCase& what) {
  command
      .add_option("--numbers", what.each.numbers,
                  "Messages of 8 bytes that each process has under way to each that it talks with; default 512, 64 "
                  "for load")
      ->check(CLI::Range(0, 100000));
  command
      .add_option("--blocks", what.each.blocks,
                  "Messages of 1 MB that it has under way besides; default 2 for stop, cut and pause, 0 else")
      ->check(CLI::Range(0, 64));
  command
      .add_option("--workers", what.each.workers,
                  "CAF's threads of each process; default 1 for crowd, CAF's own choice else")
      ->check(CLI::Range(0, 256));
  command.add_flag("--inline", what.each.inlined, "The actors that exchange messages run on the control lane");
  command.add_option("--cpus", what.cpus, "Pins the processes to these CPUs, by turns; default wherever there is room")
      ->delimiter(',');
}

}  // namespace

GroupCommand::GroupCommand(CLI::App& app)
    : group_(app.add_subcommand("group",
                                "Groups of processes: how soon a death is known, that silence is not taken "
                                "for death too early, how many may join")),
      member_(app.add_subcommand("group-member")) {
  group_
      ->add_option("--what", case_.what,
                   "death: from kill -9 to the down message of other processes' monitors; silence: see --how; crowd: "
                   "many processes join, broadcast, gather and leave")
      ->capture_default_str()
      ->check(CLI::IsMember({"death", "silence", "crowd"}));
  group_
      ->add_option("--how", case_.how,
                   "For silence: stop: from SIGSTOP to the down message; cut: the same from a cut link, between "
                   "namespaces; pause: SIGCONT follows after 800 ms, and nobody may be lost; load: everyone computes "
                   "and talks with everyone, and nobody may be lost")
      ->capture_default_str()
      ->check(CLI::IsMember({"stop", "cut", "pause", "load"}));
  group_
      ->add_option("--between", case_.between, "processes of one node, or namespaces: network namespaces (needs root)")
      ->capture_default_str()
      ->check(CLI::IsMember({"processes", "namespaces"}));
  group_->add_option("--transport", case_.each.transport, "shm, tcp; default shm, between namespaces tcp")
      ->check(CLI::IsMember({"shm", "tcp"}));
  group_->add_option("--processes", case_.processes, "Default 3; 2 for cut, 8 for load, 64 for crowd")
      ->check(CLI::Range(2, 1024));
  group_->add_option("--rounds", case_.rounds, "Default 100 for death, 1 for crowd, 10 else")
      ->check(CLI::Range(1, 100000));
  group_->add_option("--seconds", case_.seconds, "How long load lasts")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  group_
      ->add_option("--dead-ms", case_.each.dead_ms,
                   "Silence of so long is taken for death; default 1000 for stop and cut, 3000 else")
      ->check(CLI::Range(10, 1000000));
  group_->add_option("--victim-mb", case_.victim_mb, "Further memory of the process that is killed")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  group_->add_flag("--victim-talks", case_.victim_talks,
                   "Who is killed exchanges messages, too; else two others do, if there are any");
  add_load_options(*group_, case_);
  group_->add_option("--patience-s", case_.each.patience_s, "How long joining and leaving may take")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  group_->add_flag("--table", case_.table, "Also a table of times, on stderr");
  member_->group("");  // for this program's own use
  add_member_options(*member_, member_case_);
}

/// With what was not said.
GroupCase GroupCommand::complete() const {
  GroupCase what = case_;
  const auto given = [this](const char* option) { return group_->count(option) > 0; };
  if (is_cut(what)) what.between = "namespaces";
  if (!given("--transport")) what.each.transport = what.between == "namespaces" ? "tcp" : "shm";
  if (!given("--processes")) what.processes = usual_processes(what);
  if (!given("--rounds")) what.rounds = usual_rounds(what);
  if (!given("--dead-ms")) what.each.dead_ms = usual_dead_ms(what);
  if (!given("--numbers")) what.each.numbers = usual_numbers(what);
  if (!given("--blocks")) what.each.blocks = what.what == "silence" && !is_load(what) ? 2 : 0;
  if (!given("--workers")) what.each.workers = what.what == "crowd" ? 1 : 0;
  if (!given("--patience-s") && what.what == "crowd") what.each.patience_s = 300;
  return what;
}

int GroupCommand::run(Blocking& blocking, const rtrun::Signals& signals) const {
  const GroupCase what = complete();
  check(what);
  say_where(what);
  const auto measure = what.what == "death" ? measure_death : what.what == "crowd" ? measure_crowd : measure_silence;
  if (measure(blocking, signals, what)) return 0;
  say_error("a process was lost that should not be, or not as it should be; see the line above");
  return 1;
}

}  // namespace troupe::bench
