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
  EndCase each;                      // the part that all ends have in common
  std::vector<std::string> impls;    // empty: all that the measurement supports
  std::vector<std::uint64_t> sizes;  // in bytes
  std::uint32_t rounds = 0;
  double seconds = 60;    // for flood
  std::vector<int> cpus;  // of the two ends; empty: the first usable ones
  bool table = false;
};

/// `rtbench messages`: starts pairs of processes that exchange messages by several implementations in turn, and prints
/// one JSON line for each size and implementation, with the values of the rounds.
class MessagesCommand {
 public:
  explicit MessagesCommand(CLI::App& app);
  bool parsed() const { return messages_->parsed(); }
  /// Returns the exit code: 1 if a signal ended a test of endurance. Throws Error{environment} without UCX, and what
  /// the measurements throw: Error{aborted} on a signal (in a test of endurance on the second one: after the first it
  /// reports what it has measured), Error{timeout}, and Error{device_fault} if an end failed.
  int run(Blocking& blocking, const rtrun::Signals& signals) const;

 private:
  MessagesCase complete() const;
  CLI::App* messages_;
  MessagesCase case_;
};

/// The CPUs of a pair's ends, the client's first: those in `wanted`; if there are none, the first two that this process
/// may use, or one CPU twice if there is only one. Throws Error{invalid} for a CPU that it may not use.
std::vector<int> choose_cpus(const std::vector<int>& wanted);

/// The result of one implementation for one size.
struct Result {
  std::string impl;
  std::uint64_t bytes = 0;
  std::map<std::string, std::vector<double>> rounds;  // by figure, one value per round
};

/// One JSON line; figures have four digits, except whole numbers.
std::string json_line(const EndCase& common, const Result& result);

/// The medians of the rounds as a table for each figure: a row for each size, a column for each implementation, each
/// value followed by its ratio to `raw` of the same size if that was measured.
std::string table_of(const std::vector<Result>& results);

}  // namespace troupe::bench
