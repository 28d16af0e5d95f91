#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/bench/messages/end.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// What `rtbench messages` measures.
struct MessagesCase {
  EndCase each;                      // of what all have in common
  std::vector<std::string> impls;    // empty: those that such a measurement has
  std::vector<std::uint64_t> sizes;  // in bytes
  std::uint32_t rounds = 9;
  std::vector<int> cpus;  // of the two ends; empty: the first usable
  bool table = false;
};

/// `rtbench messages`: starts pairs of processes that exchange messages in one way or another, by turns, and prints one
/// JSON line for each size and way: the medians of the rounds.
class MessagesCommand {
 public:
  explicit MessagesCommand(CLI::App& app);
  /// Whether this run is one of a pair, started by another; then run_as_end() is its main function.
  bool is_end() const { return end_->parsed(); }
  int run_as_end() const { return run_end(end_case_); }
  bool parsed() const { return messages_->parsed(); }
  /// The exit code: 1 when a signal ended a test of endurance. Throws Error{environment} without UCX, and what run_pair
  /// throws.
  int run(Blocking& blocking, const rtrun::Signals& signals) const;

 private:
  CLI::App* messages_;
  CLI::App* end_;
  MessagesCase case_;
  double seconds_ = 60;  // of a flood
  EndCase end_case_;
};

}  // namespace troupe::bench
