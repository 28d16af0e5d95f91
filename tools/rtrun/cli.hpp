#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "runtime/planning/hypothetical_cluster.hpp"
#include "tools/rttopo/cluster.hpp"

namespace troupe::rtrun {

enum class Verb { train, check, plan, control, timeline };

/// The parsed command line.
struct CommandLine {
  Verb verb = Verb::train;
  std::string file;                    // app.toml
  std::vector<std::string> overrides;  // "a.b=c", in order; includes those of --resume and --trace
  std::vector<std::string> program;    // the words after "--": each rank is this program, with its arguments
  bool quiet = false;
  bool json = false;
  std::string run;                       // control: the run's folder
  std::vector<std::string> request;      // control: the words of the request
  std::string picture;                   // timeline, plan: the file to write; timeline reads the trace from `file`
  std::optional<std::uint64_t> step;     // timeline: the step to draw; nothing: one in the middle
  std::vector<rttopo::FileCount> nodes;  // plan: machines from files; none: this host
  std::uint32_t ranks = 0;               // plan: on all machines together; 0: as the configuration says
  WhatIf what_if;                        // plan
  std::string figures;                   // plan: file of figures from `rttopo bench`; empty: this host's
  std::string compare;                   // plan: the report.json of a run to compare with
};

/// The exit code of a program that has printed its whole answer (--help, --version, completion, a usage error).
struct Answered {
  int exit_code = 0;
};

/// Reads the command line; help, versions and completion scripts go to `out`, usage errors to `err` (exit code 2).
std::variant<CommandLine, Answered> parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                                       std::ostream& err);

}  // namespace troupe::rtrun
