#pragma once

#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "tools/rttopo/cluster.hpp"

namespace troupe::rttopo {

enum class Verb { show, matrix, bench, diff, explain, doctor, import_file, export_file, env };

/// What the user asked for.
struct CommandLine {
  Verb verb = Verb::show;
  std::vector<FileCount> files;  // none: this host
  bool json = false;
  bool all = false;             // show: every part
  std::string svg;              // show: the file to write
  std::vector<std::string> of;  // explain: the two parts
  std::string format;           // export: json, hwloc, nccl, dot, svg, simgrid
  std::string out;              // import, export: the file to write; empty: stdout
  bool rules = false;           // doctor: list them
  std::string figures;          // show, matrix: the file of measured figures; empty: this host's
  std::string run;              // the folder of a run, whose machines are meant; empty: none
  std::vector<Node> nodes;      // those, when main has asked for them
  // bench
  std::uint32_t repeats = 3;
  std::uint32_t repeat_ms = 60;
  std::string hosts;  // a process on each of them; empty: this host alone
  std::string remote_shell = "ssh";
  std::vector<std::string> arguments;  // this program's own
  int message_end = -1;                // this is a process that bench started; its line to it
};

/// What `explain` takes for an end.
inline constexpr const char* kPartWords =
    "\"GPU 0\" or gpu0, \"NUMA 1\", a NIC's name, or a PCI bus id such as 0000:3b:00.0, which may be short (3b:00.0, "
    "3b)";

/// The exit code of a program that has said all there was to say.
struct Answered {
  int exit_code = 0;
};

/// Reads the command line; help and completion scripts go to `out`, usage errors to `err` (exit code 2).
std::variant<CommandLine, Answered> parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                                       std::ostream& err);

/// "" for a shell that is not bash, zsh or fish.
std::string completion_script(std::string_view shell);

}  // namespace troupe::rttopo
