#include "tools/bench/messages/command.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/endurance_load.hpp"
#include "tools/bench/messages/pair.hpp"
#include "tools/bench/messages/results.hpp"
#include "tools/bench/messages/say.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::bench {
namespace {

/// The implementations that have such a measurement.
std::vector<std::string> impls_for(const std::string& what) {
  if (what == "rate") return {"raw", "raw_best", "inline", "scheduled", "caf_io", "local"};
  if (what == "mixed") return {"raw", "inline", "scheduled"};  // raw_best polls in two threads on one core
  if (what == "idle") return {"inline", "scheduled", "caf_io"};
  if (what == "endurance" || what == "flood") return {"inline", "scheduled"};
  if (what == "shard") return {"raw", "shard"};
  return {"raw", "raw_best", "inline", "scheduled", "caf_io", "local", "arena"};
}

constexpr std::uint64_t kEnduranceMessages = 30'000'000;
constexpr std::uint64_t kEnduranceTensors = 100'000;

/// Several fit into the memory that remote actors have for payloads.
constexpr std::uint64_t kMostBytes = 64u << 20;

/// How long one implementation is measured in a round, unless it is said.
std::uint32_t usual_span_ms(const std::string& what) {
  if (what == "mixed") return 1000;
  if (what == "idle") return 3000;
  return 150;
}

/// The control lane polls where speed is asked for; what a program does beside other work is measured as it comes.
std::uint32_t usual_spin_us(const std::string& what) {
  return what == "latency" || what == "rate" || what == "shard" ? 200 : 0;
}

std::vector<std::uint64_t> usual_sizes(const std::string& what) {
  if (what == "shard") return {8, 64, 256, 1024, 7'200'000};
  if (what == "flood") return {100};
  if (what != "latency") return {8};
  return {8, 1024, 64u << 10, 1u << 20, 16u << 20};
}

void add_common(CLI::App& command, EndCase& what) {
  command
      .add_option(
          "--what", what.what,
          "latency; rate: of one-way messages; mixed: latency while 16 MB tensors go to and fro; idle: CPU of "
          "two connected processes; endurance: many messages and tensors both ways, each one checked, and whether "
          "memory grows; flood: an actor sends strings for --seconds as fast as it can to one that is slow, and then "
          "that "
          "one catches up: resident memory of both processes, and whether each message is read, in order, or refused; "
          "shard: a push of a stripe's gradients and a pull of its parameters, up to 1 KB a pull by "
          "a call")
      ->capture_default_str()
      ->check(CLI::IsMember({"latency", "rate", "mixed", "idle", "endurance", "flood", "shard"}));
  command.add_option("--transport", what.transport, "shm, or tcp over loopback (caf_io always goes over TCP loopback)")
      ->capture_default_str()
      ->check(CLI::IsMember({"shm", "tcp"}));
}

void add_end_options(CLI::App& command, EndCase& what) {
  add_common(command, what);
  command.add_option("--impl", what.impl)->required();
  command.add_option("--bytes", what.bytes)->required();
  command.add_option("--ms", what.span_ms)->required();
  command.add_option("--spin-us", what.spin_us)->required();
  command.add_option("--messages", what.messages)->required();
  command.add_option("--tensors", what.tensors)->required();
  command.add_option("--memory-mb", what.memory_mb)->required();
  command.add_option("--reads", what.reads)->required();
  command.add_option("--cpu", what.cpu)->required();
  command.add_option("--line", what.line)->required();
  command.add_flag("--client", what.client);
}

void check(const MessagesCase& what) {
  TROUPE_CHECK(ucx_available(), Code::environment,
               "this build has no UCX, whose messages are measured: install libucx-dev and configure with "
               "TROUPE_WITH_UCX=ON");
  for (const std::uint64_t bytes : what.sizes) {
    if (what.each.floods()) {
      TROUPE_CHECK(bytes >= 8 && bytes <= kMostBytes, Code::invalid, "--sizes has ", bytes, "; a flood takes 8 to ",
                   kMostBytes, " bytes");
      continue;
    }
    const bool tensor = bytes > EndCase::kMostInBand || what.each.what == "shard";
    TROUPE_CHECK(bytes >= 1 && (!tensor || bytes % 8 == 0) && bytes <= kMostBytes, Code::invalid, "--sizes has ", bytes,
                 "; give sizes from 1 to ", EndCase::kMostInBand, ", and multiples of 8 up to ", kMostBytes);
    TROUPE_CHECK(bytes == 8 || what.each.what == "latency" || what.each.what == "shard", Code::invalid, "--what ",
                 what.each.what, " is measured with 8 bytes; leave --sizes out");
  }
}

std::vector<std::string> chosen_impls(const MessagesCase& what) {
  const std::vector<std::string> possible = impls_for(what.each.what);
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

/// Without these the figures say little.
void say_where(PairCpus cpus) {
  std::array<double, 1> load{};
  const bool known = ::getloadavg(load.data(), 1) == 1;
  say(text("messages: on CPUs ", cpus.client, " and ", cpus.server, known ? text(", load average ", load[0]) : ""));
  if (cpus.client == cpus.server) say("both processes share one CPU: polling then only keeps the other from running");
}

/// False: a signal ended a test of endurance, and what it knew by then is among the results.
bool measure(Blocking& blocking, const rtrun::Signals& signals, const MessagesCase& what, PairCpus cpus,
             std::vector<Result>& results) {
  EndCase each = what.each;
  for (std::uint32_t round = 1; round <= what.rounds; ++round) {
    for (Result& result : results) {
      each.impl = result.impl;
      each.bytes = result.bytes;
      const Figures figures = run_pair(blocking, signals, each, cpus);
      for (const auto& [figure, value] : figures) result.rounds[figure].push_back(value);
      if (figures.contains("stopped")) return false;
    }
    say(text("messages: round ", round, " of ", what.rounds));
  }
  return true;
}

}  // namespace

MessagesCommand::MessagesCommand(CLI::App& app)
    : messages_(app.add_subcommand("messages",
                                   "Messages between two processes, each on a core of its own, one way "
                                   "beside another by turns")),
      end_(app.add_subcommand("messages-end")) {
  add_common(*messages_, case_.each);
  messages_
      ->add_option(
          "--sizes", case_.sizes,
          "Bytes of a message, such as 8,1024: 8 a number, 1024 a trivially copyable struct, others up to that "
          "a byte vector, larger ones a tensor, in a flood all strings; default 8, 1 KB, 64 KB, 1 MB and 16 MB for "
          "latency, 100 for flood, 8 else")
      ->delimiter(',');
  messages_
      ->add_option(
          "--impl", case_.impls,
          "Any of raw (UCX as our lanes use it), raw_best (as suits it best), inline, scheduled, caf_io, local "
          "(one process), arena (a tensor by reference), shard; default all that have such a measurement")
      ->delimiter(',');
  messages_->add_option("--rounds", case_.rounds, "Turns; default 9, 1 for endurance and flood")
      ->check(CLI::Range(1, 10000));
  messages_
      ->add_option("--messages", case_.each.messages,
                   "For endurance: messages in both directions together; default 30 million")
      ->check(CLI::Range(std::uint64_t{20}, std::uint64_t{1} << 40));
  messages_->add_option("--tensors", case_.each.tensors, "In these messages, 4 KB to 1 MB each; default 100,000");
  messages_->add_option("--seconds", seconds_, "For flood: how long the sender sends")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0));
  messages_
      ->add_option("--memory-mb", case_.each.memory_mb,
                   "For flood: RemoteOptions::memory_bytes of both processes, in units of 1,000,000")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  messages_
      ->add_option("--reads", case_.each.reads,
                   "For flood: messages that the reader takes in a second at most; it computes for that part of a "
                   "second with each of them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  messages_
      ->add_option("--ms", case_.each.span_ms,
                   "Measured time of each turn; default 150, 1000 for mixed, 3000 for idle; flood has --seconds")
      ->check(CLI::Range(1, 600000));
  messages_
      ->add_option("--spin-us", case_.each.spin_us,
                   "How long the control lane polls; default 200 for latency and rate, else the lane's own")
      ->check(CLI::Range(0, 1000000));
  messages_->add_option("--cpus", case_.cpus, "CPUs of the two processes, such as 0,1; default the first two")
      ->delimiter(',')
      ->expected(2);
  messages_->add_flag("--table", case_.table, "Also a table of medians and ratios to raw, on stderr");
  end_->group("");  // for this program's own use
  add_end_options(*end_, end_case_);
}

int MessagesCommand::run(Blocking& blocking, const rtrun::Signals& signals) const {
  MessagesCase what = case_;
  EndCase& each = what.each;
  check(what);
  if (messages_->count("--ms") == 0) each.span_ms = usual_span_ms(each.what);
  if (messages_->count("--spin-us") == 0) each.spin_us = usual_spin_us(each.what);
  if (each.floods()) each.span_ms = static_cast<std::uint32_t>(seconds_ * 1e3);
  if (messages_->count("--rounds") == 0 && (each.endures() || each.floods())) what.rounds = 1;
  if (each.endures()) {
    if (messages_->count("--messages") == 0) each.messages = kEnduranceMessages;
    if (messages_->count("--tensors") == 0) each.tensors = kEnduranceTensors;
    EnduranceSchedule(each.messages, each.tensors);  // says what is wrong with them
  }
  if (what.sizes.empty()) what.sizes = usual_sizes(each.what);
  const PairCpus cpus = choose_cpus(what.cpus);
  const std::vector<std::string> impls = chosen_impls(what);
  say_where(cpus);

  std::vector<Result> results;
  for (const std::uint64_t bytes : what.sizes)
    for (const std::string& impl : impls) results.push_back({impl, bytes, {}});
  const bool complete = measure(blocking, signals, what, cpus, results);
  for (const Result& result : results)
    if (!result.rounds.empty()) std::cout << json_line(each, result) << '\n';
  std::cout << std::flush;
  if (what.table) std::cerr << table_of(results) << std::flush;
  return complete ? 0 : exit_code(Code::aborted);
}

std::vector<std::string> arguments_of(const EndCase& what) {
  std::vector<std::string> arguments{
      "rtbench",     "messages-end",
      "--what",      what.what,
      "--impl",      what.impl,
      "--transport", what.transport,
      "--bytes",     std::to_string(what.bytes),
      "--ms",        std::to_string(what.span_ms),
      "--spin-us",   std::to_string(what.spin_us),
      "--messages",  std::to_string(what.messages),
      "--tensors",   std::to_string(what.tensors),
      "--memory-mb", std::to_string(what.memory_mb),
      "--reads",     std::to_string(what.reads),
      "--cpu",       std::to_string(what.cpu),
      "--line",      std::to_string(what.line),
  };
  if (what.client) arguments.push_back("--client");
  return arguments;
}

}  // namespace troupe::bench
