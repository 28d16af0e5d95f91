#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
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
  std::uint32_t rounds = 0;
  double seconds = 60;    // of a flood
  std::vector<int> cpus;  // of the two ends; empty: the first usable
  bool table = false;
};

/// `rtbench messages`: starts pairs of processes that exchange messages in one way or another, by turns, and prints one
/// JSON line for each size and way: the values of the rounds.
class MessagesCommand {
 public:
  explicit MessagesCommand(CLI::App& app);
  bool parsed() const { return messages_->parsed(); }
  /// The exit code: 1 when a signal ended a test of endurance. Throws Error{environment} without UCX, and what the
  /// measurements throw: Error{aborted} when a signal came first (of a test of endurance, when a second one came: the
  /// first has it tell what it knows), Error{timeout}, and Error{device_fault} when an end failed.
  int run(Blocking& blocking, const rtrun::Signals& signals) const;

 private:
  MessagesCase complete() const;
  CLI::App* messages_;
  MessagesCase case_;
};

/// The CPUs of a pair's ends, the client's first: those two; when there are none, the first two that this process may
/// use, twice the same where there is only one. Throws Error{invalid} for one that it may not use.
std::vector<int> choose_cpus(const std::vector<int>& wanted);

/// What one implementation reached at one size.
struct Result {
  std::string impl;
  std::uint64_t bytes = 0;
  std::map<std::string, std::vector<double>> rounds;  // by figure, one value a round
};

/// One JSON line; figures to four digits, but for whole numbers.
std::string json_line(const EndCase& common, const Result& result);

/// The medians of the rounds, a table for each figure: sizes down, implementations across, behind each its ratio to
/// `raw` of the same size where that was measured.
std::string table_of(const std::vector<Result>& results);

}  // namespace troupe::bench
