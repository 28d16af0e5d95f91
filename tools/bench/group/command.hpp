#pragma once

#include <CLI/CLI.hpp>

#include "runtime/base/blocking.hpp"
#include "tools/bench/group/measure.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// `rtbench group`: starts groups of processes and measures how they live and die; prints one JSON line.
class GroupCommand {
 public:
  explicit GroupCommand(CLI::App& app);
  /// Whether this run is a process of a group, started by another; then run_as_member() is its main function.
  bool is_member() const { return member_->parsed(); }
  int run_as_member() const { return run_member(member_case_); }
  bool parsed() const { return group_->parsed(); }
  /// The exit code: 1 when what must hold did not. Throws Error{environment} without UCX, or namespaces where they are
  /// asked for, and what the measurements throw.
  int run(Blocking& blocking, const rtrun::Signals& signals) const;

 private:
  GroupCase complete() const;
  CLI::App* group_;
  CLI::App* member_;
  GroupCase case_;
  MemberCase member_case_;
};

}  // namespace troupe::bench
