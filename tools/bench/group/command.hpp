#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/bench/group/member.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// What `rtbench group` measures.
struct GroupCase {
  std::string what = "death";         // death, silence, crowd
  std::string how = "stop";           // for silence: stop, cut, pause, load
  std::string between = "processes";  // or namespaces
  std::uint32_t processes = 0;
  std::uint32_t rounds = 0;
  std::uint32_t seconds = 600;  // for load
  std::uint32_t victim_mb = 0;  // additional memory of the process that is killed
  bool victim_talks = false;
  bool table = false;
  MemberCase each;
  std::vector<int> cpus;  // of the processes, in turn; empty: any
};

/// `rtbench group`: starts groups of processes and measures how losses are noticed; prints one JSON line.
class GroupCommand {
 public:
  explicit GroupCommand(CLI::App& app);
  bool parsed() const { return group_->parsed(); }
  /// Returns the exit code: 1 if a required condition did not hold. Throws Error{environment} without UCX, or without
  /// the namespaces that were asked for, and what the measurements throw.
  int run(Blocking& blocking, const rtrun::Signals& signals) const;

 private:
  GroupCase complete() const;
  CLI::App* group_;
  GroupCase case_;
};

}  // namespace troupe::bench
