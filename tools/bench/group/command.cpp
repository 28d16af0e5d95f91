#include "tools/bench/group/command.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "runtime/base/error.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/process_usage.hpp"

namespace troupe::bench {
namespace {

/// The values that a measurement uses if the command line does not give them.
struct Usual {
  const char* name;  // of --what, or of --how for silence
  std::uint32_t processes, rounds, dead_ms;
  std::uint32_t numbers;  // of one process; to all partners together about one peer's window
  std::uint32_t blocks, workers, patience_s;
  Measure* measure;
};
constexpr std::array kUsual{
    Usual{"death", 3, 100, 3000, 512, 0, 0, 60, &measure_loss},
    Usual{"crowd", 64, 1, 3000, 512, 0, 1, 300, &measure_crowd},
    Usual{"stop", 3, 10, 1000, 512, 2, 0, 60, &measure_loss},
    Usual{"cut", 2, 10, 1000, 512, 2, 0, 60, &measure_loss},
    Usual{"pause", 3, 10, 3000, 512, 2, 0, 60, &measure_pauses},
    Usual{"load", 8, 10, 3000, 64, 0, 0, 60, &measure_load},
};

const Usual& usual(const GroupCase& what) {
  const std::string& name = what.what == "silence" ? what.how : what.what;
  return *std::ranges::find_if(kUsual, [&](const Usual& each) { return each.name == name; });
}

void check(const GroupCase& what) {
  require_ucx();
  if (what.between == "namespaces") {
    TROUPE_CHECK(what.each.transport == "tcp", Code::invalid,
                 "shared memory does not wake processes of other network namespaces; use --transport tcp");
    TROUPE_CHECK(::geteuid() == 0, Code::environment, "network namespaces need root");
  }
}

}  // namespace

GroupCommand::GroupCommand(CLI::App& app)
    : group_(app.add_subcommand("group",
                                "Groups of processes: how soon a death is noticed, whether a silent process is "
                                "declared lost too early, how fast many processes join")) {
  Options options{*group_};
  MemberCase& each = case_.each;
  options
      .choice("--what", case_.what,
              "death: time from kill -9 to the down message in other processes; silence: see --how; crowd: "
              "many processes join, broadcast, gather and leave",
              {"death", "silence", "crowd"})
      ->capture_default_str();
  options
      .choice("--how", case_.how,
              "For silence: stop: time from SIGSTOP to the down message; cut: the same after a link between "
              "namespaces is cut; pause: SIGCONT follows after 800 ms, and no process may be declared lost; load: all "
              "processes compute and exchange messages, and none may be declared lost",
              {"stop", "cut", "pause", "load"})
      ->capture_default_str();
  options
      .choice("--between", case_.between, "processes: those of one node; namespaces: network namespaces (needs root)",
              {"processes", "namespaces"})
      ->capture_default_str();
  options.choice("--transport", each.transport, "shm or tcp; default: shm, between namespaces tcp", {"shm", "tcp"});
  options.number("--processes", case_.processes, "Processes; default: 3, 2 for cut, 8 for load, 64 for crowd", 2, 1024);
  options.number("--rounds", case_.rounds, "Rounds; default: 100 for death, 1 for crowd, otherwise 10", 1, 100000);
  options.number("--seconds", case_.seconds, "For load: how long it lasts", 1, 1000000)->capture_default_str();
  options.number("--dead-ms", each.dead_ms,
                 "The silence after which a process is declared lost; default: 1000 for stop and cut, otherwise 3000",
                 10, 1000000);
  options.number("--victim-mb", case_.victim_mb, "Additional memory of the process that is killed", 0, 1 << 20)
      ->capture_default_str();
  group_->add_flag(
      "--victim-talks", case_.victim_talks,
      "The process that is killed exchanges messages, too; otherwise only two others do, if there are two");
  options.number("--numbers", each.numbers,
                 "Messages of 8 bytes in transit from each process to each partner; default: 512, 64 for load", 0,
                 100000);
  options.number("--blocks", each.blocks,
                 "Messages of 1 MB in transit in addition; default: 2 for stop, cut and pause, otherwise 0", 0, 64);
  options.number("--workers", each.workers,
                 "CAF's threads in each process; default: 1 for crowd, otherwise CAF's own choice", 0, 256);
  group_->add_flag("--inline", each.inlined, "Run the actors that exchange messages on the control lane");
  options.list("--cpus", case_.cpus, "Pin the processes to these CPUs, in turn; default: not pinned");
  options.number("--patience-s", each.patience_s, "How long joining and leaving may take", 1, 3600)
      ->capture_default_str();
  group_->add_flag("--table", case_.table, "Also print a table of times, on stderr");
}

/// The case with the missing values filled in.
GroupCase GroupCommand::complete() const {
  GroupCase what = case_;
  const Usual& usually = usual(what);
  Options options{*group_};
  if (what.what == "silence" && what.how == "cut") what.between = "namespaces";
  options.fill("--transport", what.each.transport, what.between == "namespaces" ? "tcp" : "shm");
  options.fill("--processes", what.processes, usually.processes);
  options.fill("--rounds", what.rounds, usually.rounds);
  options.fill("--dead-ms", what.each.dead_ms, usually.dead_ms);
  options.fill("--numbers", what.each.numbers, usually.numbers);
  options.fill("--blocks", what.each.blocks, usually.blocks);
  options.fill("--workers", what.each.workers, usually.workers);
  options.fill("--patience-s", what.each.patience_s, usually.patience_s);
  return what;
}

int GroupCommand::run(Blocking& blocking, const rtrun::Signals& signals) const {
  const GroupCase what = complete();
  check(what);
  say(text("group: ", what.processes, " processes on ", ::sysconf(_SC_NPROCESSORS_ONLN), " CPUs", load_average()));
  const GroupRun run(blocking, signals, what);
  if (usual(what).measure(run)) return 0;
  say_error("a process was lost that should not be, or not as it should be; see the line above");
  return 1;
}

}  // namespace troupe::bench
