#pragma once

#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "tools/rttopo/cluster.hpp"

namespace troupe::rttopo {

enum class Verb { show, matrix, bench, diff, explain, doctor, import_file, export_file, env };

/// The parsed command line.
struct CommandLine {
  Verb verb = Verb::show;
  std::vector<FileCount> files;  // none: this host
  bool json = false;
  bool all = false;             // show: every part
  std::string svg;              // show: the file to write
  bool schema = false;          // show: print the schema instead
  std::vector<std::string> of;  // explain: the two parts
  std::string format;           // export: one of json, hwloc, nccl, dot, svg, simgrid
  std::string out;              // import, export: the file to write; empty: stdout
  bool rules = false;           // doctor: list them
  std::string figures;          // show, matrix: file of measured figures; empty: this host's
  std::string run;              // the folder of a run whose machines to show; empty: none
  std::vector<Node> nodes;      // the machines of `run`, when main has asked for them
  // bench
  std::uint32_t repeats = 3;
  std::uint32_t repeat_ms = 60;
  std::string hosts;  // hosts on each of which a process is started; empty: only this host
  std::string remote_shell = "ssh";
  std::vector<std::string> arguments;  // of this program
  int bench_line = -1;                 // for a process that bench started: its socket to it
};

/// The words that `explain` accepts for its two parts.
inline constexpr const char* kPartWords =
    "\"GPU 0\" or gpu0, \"NUMA 1\", a NIC's name, or a PCI bus id such as 0000:3b:00.0, which may be short (3b:00.0, "
    "3b)";

/// The exit code of a program that has printed its whole answer.
struct Answered {
  int exit_code = 0;
};

/// Reads the command line; help and completion scripts go to `out`, usage errors to `err` (exit code 2).
std::variant<CommandLine, Answered> parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                                       std::ostream& err);

/// "" for a shell that is not bash, zsh or fish.
std::string completion_script(std::string_view shell);

}  // namespace troupe::rttopo
