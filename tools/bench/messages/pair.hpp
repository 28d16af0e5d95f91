#pragma once

#include "tools/bench/messages/end.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// The CPUs of a pair's ends, the client's first.
struct PairCpus {
  int client = 0;
  int server = 0;
};

/// Those two; when there are none, the first two that this process may use, twice the same where there is only one.
/// Throws Error{invalid} for one that it may not use.
PairCpus choose_cpus(const std::vector<int>& wanted);

/// Runs both ends of a case in processes of their own, this program executed again, and returns what the client
/// measured. What they print on stderr goes to this process's. Throws Error{aborted} when a signal came first (of a
/// test of endurance, when a second one came: the first has it tell what it knows), Error{timeout}, and
/// Error{device_fault} when an end failed.
Figures run_pair(Blocking& blocking, const rtrun::Signals& signals, EndCase what, PairCpus cpus);

/// How an end is told of its case: the arguments of its command line, and the other way.
std::vector<std::string> arguments_of(const EndCase& what);

}  // namespace troupe::bench
