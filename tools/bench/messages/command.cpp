#include "tools/bench/messages/command.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "runtime/base/error.hpp"
#include "tools/bench/options.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/crew.hpp"
#include "tools/crew/endurance_load.hpp"
#include "tools/crew/process_usage.hpp"
#include "tools/crew/statistics.hpp"

namespace troupe::bench {
namespace {

/// A measurement: its implementations, and the values that it uses if the command line does not give them.
struct Usual {
  const char* what;
  std::vector<std::string> impls;
  std::uint32_t span_ms;  // how long one implementation is measured in a round
  std::uint32_t spin_us;  // how long the control lane polls when speed is measured; 0: its default
  std::uint32_t rounds;
  std::vector<std::uint64_t> sizes;
};
const std::vector<Usual>& usuals() {
  static const std::vector<Usual> all{
      {"latency",
       {"raw", "raw_best", "inline", "scheduled", "caf_io", "local", "arena"},
       150,
       200,
       9,
       {8, 1024, 64u << 10, 1u << 20, 16u << 20}},
      {"rate", {"raw", "raw_best", "inline", "scheduled", "caf_io", "local"}, 150, 200, 9, {8}},
      {"mixed", {"raw", "inline", "scheduled"}, 1000, 0, 9, {8}},  // raw_best polls with two threads on one core
      {"idle", {"inline", "scheduled", "caf_io"}, 3000, 0, 9, {8}},
      {"endurance", {"inline", "scheduled"}, 150, 0, 1, {8}},
      {"flood", {"inline", "scheduled"}, 150, 0, 1, {100}},
      {"shard", {"raw", "shard"}, 150, 200, 9, {8, 64, 256, 1024, 7'200'000}},
  };
  return all;
}
const Usual& usual(const std::string& what) {
  return *std::ranges::find_if(usuals(), [&](const Usual& each) { return each.what == what; });
}

/// Several payloads of this size fit into the memory of remote actors for payloads.
constexpr std::uint64_t kMostBytes = 64u << 20;

void check(const MessagesCase& what) {
  require_ucx();
  for (const std::uint64_t bytes : what.sizes) {
    if (what.each.floods()) {
      TROUPE_CHECK(bytes >= 8 && bytes <= kMostBytes, Code::invalid, "--sizes has ", bytes, "; a flood takes 8 to ",
                   kMostBytes, " bytes");
      continue;
    }
    const bool sized = what.each.what == "latency" || what.each.what == "shard";
    const bool tensor = bytes > EndCase::kMostInBand || what.each.what == "shard";
    TROUPE_CHECK(bytes >= 1 && (!tensor || bytes % 8 == 0) && bytes <= kMostBytes, Code::invalid, "--sizes has ", bytes,
                 "; give sizes from 1 to ", EndCase::kMostInBand, ", and multiples of 8 up to ", kMostBytes);
    TROUPE_CHECK(bytes == 8 || sized, Code::invalid, "--what ", what.each.what,
                 " is measured with 8 bytes; leave --sizes out");
  }
  if (what.each.endures()) EnduranceSchedule(what.each.messages, what.each.tensors);  // says what is wrong
}

std::vector<std::string> chosen_impls(const MessagesCase& what) {
  TROUPE_CHECK(!what.each.on_gpu() || what.each.what == "latency", Code::invalid,
               "--memory cuda is measured with --what latency, not ", what.each.what);
  const std::vector<std::string> possible =
      what.each.on_gpu() ? std::vector<std::string>{"raw", "memcpy", "arena", "staged"} : usual(what.each.what).impls;
  std::vector<std::string> chosen;
  for (const std::string& impl : what.impls.empty() ? possible : what.impls) {
    TROUPE_CHECK(std::find(possible.begin(), possible.end(), impl) != possible.end(), Code::invalid, "--impl has ",
                 impl, ", which has no measurement of ", what.each.what);
    if (impl == "caf_io" && !io_available()) {
      say("this build has no libcaf_io beside its libcaf_core: caf_io is left out");
    } else {
      chosen.push_back(impl);
    }
  }
  return chosen;
}

/// Longer than it takes on the slowest machine.
Clock::duration most_time(const EndCase& what) {
  return std::chrono::seconds(60) + 40 * what.span() + std::chrono::microseconds(200) * what.messages +
         std::chrono::milliseconds(20) * what.tensors;
}

CrewPlan pair_of(const EndCase& what, const std::vector<int>& cpus) {
  CrewPlan plan{.name = text("a pair that measures ", what.impl, " over ", what.transport, " at ", what.bytes,
                             " bytes (0: the client)"),
                .patience = most_time(what)};
  auto [client, server] = make_line();
  plan.lines.push_back(std::move(client));
  plan.lines.push_back(std::move(server));
  for (const bool is_client : {true, false}) {
    EndCase end = what;
    end.client = is_client;
    end.cpu = is_client ? cpus.front() : cpus.back();
    plan.roles.push_back(end);
  }
  return plan;
}

/// Runs both ends of a case, and returns the client's measurements.
Figures run_pair(Blocking& blocking, const rtrun::Signals& signals, const EndCase& what, const std::vector<int>& cpus) {
  Crew crew(signals, pair_of(what, cpus));
  const Deadline deadline = crew.patience();
  const auto await_figures = [&] { return crew.await(blocking, 0, "figures", deadline).at("figures").get<Figures>(); };
  Figures figures;
  try {
    figures = await_figures();
  } catch (const Error& error) {
    if (error.code() != Code::aborted || !what.endures()) throw;
    for (const std::uint32_t end : {0u, 1u}) crew.tell(end, {{"do", "stop"}});
    figures = await_figures();
  }
  for (const std::uint32_t end : {0u, 1u}) crew.await_end(blocking, end, deadline);
  return figures;
}

/// Returns false if a signal ended a test of endurance early; what it had measured is among the results.
bool measure(Blocking& blocking, const rtrun::Signals& signals, const MessagesCase& what,
             std::vector<Result>& results) {
  EndCase each = what.each;
  for (std::uint32_t round = 1; round <= what.rounds; ++round) {
    for (Result& result : results) {
      each.impl = result.impl;
      each.bytes = result.bytes;
      Figures figures = run_pair(blocking, signals, each, what.cpus);
      if (each.on_gpu()) figures["gb_s"] = static_cast<double>(each.bytes) / figures.at("us") / 1e3;
      for (const auto& [figure, value] : figures) result.rounds[figure].push_back(value);
      if (figures.contains("stopped")) return false;
    }
    say(text("messages: round ", round, " of ", what.rounds));
  }
  return true;
}

constexpr int kFirstColumn = 10;
constexpr int kColumn = 20;

/// The medians of one figure, by size and implementation.
using Medians = std::map<std::uint64_t, std::map<std::string, double>>;

std::string cell(const std::map<std::string, double>& medians, const std::string& impl) {
  const auto value = medians.find(impl);
  if (value == medians.end()) return "-";
  const auto raw = medians.find("raw");
  const std::string figure = digits_of(value->second);
  return raw == medians.end() || raw == value ? figure
                                              : figure + " (" + digits_of(value->second / raw->second, 3) + "x)";
}

}  // namespace

MessagesCommand::MessagesCommand(CLI::App& app)
    : messages_(app.add_subcommand("messages",
                                   "Messages between two processes, each on its own core; several ways to send "
                                   "them are measured by turns")) {
  Options options{*messages_};
  EndCase& each = case_.each;
  std::vector<std::string> whats;
  for (const Usual& usually : usuals()) whats.emplace_back(usually.what);
  options
      .choice("--what", each.what,
              "latency: half of a round trip; rate: messages in one direction; mixed: latency while 16 MB tensors are "
              "sent in both directions; idle: CPU time of two connected processes; endurance: many messages and "
              "tensors in both directions, each of them checked, and the growth of memory; flood: an actor sends "
              "strings for --seconds as fast as it can to a slow one, which then reads the rest: resident memory of "
              "both processes, and whether each message is read, in order, or refused; shard: a push of a stripe's "
              "gradients and a pull of its parameters, up to 1 KB only a pull, by a call",
              whats)
      ->capture_default_str();
  options
      .choice("--transport", each.transport, "shm, or tcp over loopback (caf_io always goes over TCP loopback)",
              {"shm", "tcp"})
      ->capture_default_str();
  options
      .choice("--memory", each.memory,
              "The memory of tensors: host; cuda: that of the first GPU (for the latency of arena and staged; raw and "
              "memcpy use the host's memory, for comparison)",
              {"host", "cuda"})
      ->capture_default_str();
  options.list("--sizes", case_.sizes,
               "Bytes of a message, such as 8,1024. 8: a number; 1024: a trivially copyable struct; other sizes up to "
               "that: a byte vector; larger: a tensor; in a flood: strings. Default: 8, 1 KB, 64 KB, 1 MB and 16 MB "
               "for latency; 8 to 1 KB and 7.2 MB for shard; 100 for flood; otherwise 8");
  options.list("--impl", case_.impls,
               "What to measure: raw (UCX as Troupe's lanes use it), raw_best (UCX with its fastest settings), inline, "
               "scheduled, "
               "caf_io, local (one process), arena (a tensor by reference), shard; with --memory cuda also staged "
               "(copied through "
               "the host's memory) and memcpy (in one process); default: all for which --what has a measurement");
  options.number("--rounds", case_.rounds, "Rounds; default: 9, 1 for endurance and flood", 1, 10000);
  options.number("--messages", each.messages,
                 "For endurance: messages in both directions together; default: 30 million", std::uint64_t{20},
                 std::uint64_t{1} << 40);
  messages_->add_option("--tensors", each.tensors,
                        "For endurance: tensors in these messages, 4 KB to 1 MB each; default: 100,000");
  options.number("--seconds", case_.seconds, "For flood: how long the sender sends", 0.1, 86400.0)
      ->capture_default_str();
  options
      .number("--memory-mb", each.memory_mb,
              "For flood: RemoteOptions::memory_bytes of both processes, in units of 1,000,000", 1, 1'000'000)
      ->capture_default_str();
  options
      .number("--reads", each.reads,
              "For flood: the most messages that the reader reads in a second; it computes between two of them", 1,
              1'000'000)
      ->capture_default_str();
  options.number("--ms", each.span_ms,
                 "Measured time of each round; default: 150, 1000 for mixed, 3000 for idle; not for flood (--seconds)",
                 1, 600000);
  options.number("--spin-us", each.spin_us,
                 "How long the control lane polls; default: 200 for latency, rate and shard, otherwise the lane's own",
                 0, 1000000);
  options.list("--cpus", case_.cpus, "CPUs of the two processes, such as 0,1; default: the first two")->expected(2);
  messages_->add_flag("--table", case_.table, "Also print a table of medians and ratios to raw, on stderr");
}

/// The case with the missing values filled in.
MessagesCase MessagesCommand::complete() const {
  MessagesCase what = case_;
  EndCase& each = what.each;
  const Usual& usually = usual(each.what);
  Options options{*messages_};
  options.fill("--ms", each.span_ms, usually.span_ms);
  options.fill("--spin-us", each.spin_us, usually.spin_us);
  options.fill("--rounds", what.rounds, usually.rounds);
  options.fill("--sizes", what.sizes, usually.sizes);
  options.fill("--messages", each.messages, 30'000'000u);
  options.fill("--tensors", each.tensors, 100'000u);
  if (each.floods()) each.span_ms = static_cast<std::uint32_t>(what.seconds * 1e3);
  if (!each.endures()) each.messages = each.tensors = 0;
  check(what);
  what.cpus = choose_cpus(what.cpus);
  what.impls = chosen_impls(what);
  return what;
}

int MessagesCommand::run(Blocking& blocking, const rtrun::Signals& signals) const {
  const MessagesCase what = complete();
  const int client = what.cpus.front();
  const int server = what.cpus.back();
  say(text("messages: on CPUs ", client, " and ", server, load_average()));
  if (client == server) say("both processes share one CPU: polling then only keeps the other from running");

  std::vector<Result> results;
  for (const std::uint64_t bytes : what.sizes)
    for (const std::string& impl : what.impls) results.push_back({impl, bytes, {}});
  const bool complete = measure(blocking, signals, what, results);
  for (const Result& result : results)
    if (!result.rounds.empty()) std::cout << json_line(what.each, result) << '\n';
  std::cout << std::flush;
  if (what.table) std::cerr << table_of(results) << std::flush;
  return complete ? 0 : exit_code(Code::aborted);
}

std::vector<int> choose_cpus(const std::vector<int>& wanted) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  TROUPE_CHECK_ERRNO(::sched_getaffinity(0, sizeof usable, &usable) == 0, Code::environment, "cannot ask for its CPUs");
  std::vector<int> cpus = wanted;
  for (int cpu = 0; cpu < CPU_SETSIZE && wanted.empty() && cpus.size() < 2; ++cpu)
    if (CPU_ISSET(cpu, &usable)) cpus.push_back(cpu);
  TROUPE_CHECK(!cpus.empty(), Code::environment, "this process may use no CPU below ", CPU_SETSIZE);
  for (const int cpu : cpus) {
    TROUPE_CHECK(cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, &usable), Code::invalid, "--cpus has ", cpu,
                 ", which this process may not use; `taskset -p $$` shows those that it may");
  }
  return cpus;
}

std::string json_line(const EndCase& common, const Result& result) {
  nlohmann::ordered_json line{{"bench", "messages"}};
  if (common.what != "latency") line["what"] = common.what;
  line["impl"] = result.impl;
  line["transport"] = common.transport;
  if (common.on_gpu()) line["memory"] = common.memory;
  line["bytes"] = result.bytes;
  if (common.floods()) {
    line["memory_mb"] = common.memory_mb;
    line["reads"] = common.reads;
    line["seconds"] = rounded(common.span_ms / 1e3);
  }
  for (const auto& [figure, values] : result.rounds) {
    auto& list = line[figure] = nlohmann::json::array();
    for (const double value : values) list.push_back(rounded(value));
  }
  return line.dump();
}

std::string table_of(const std::vector<Result>& results) {
  std::vector<std::string> impls;
  std::map<std::string, Medians> figures;
  for (const Result& result : results) {
    if (std::find(impls.begin(), impls.end(), result.impl) == impls.end()) impls.push_back(result.impl);
    for (const auto& [figure, values] : result.rounds)
      figures[figure][result.bytes][result.impl] = Spread(values).median();
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [figure, sizes] : figures) {
    rows.push_back({figure});
    rows.back().insert(rows.back().end(), impls.begin(), impls.end());
    for (const auto& [bytes, medians] : sizes) {
      rows.push_back({std::to_string(bytes)});
      for (const std::string& impl : impls) rows.back().push_back(cell(medians, impl));
    }
  }
  return crew::table_of(rows, kFirstColumn, kColumn);
}

}  // namespace troupe::bench
