#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/blocking.hpp"
#include "tools/bench/say.hpp"

namespace troupe::bench {

/// The configuration of one process of a measured group.
struct MemberCase {
  std::string transport = "shm";  // shm, tcp
  std::string device;             // network device of tcp
  std::uint32_t dead_ms = 3000;
  std::uint32_t workers = 0;  // CAF's threads; 0: CAF's default
  // The number of messages of 8 bytes, and of 1 MB, that it sends to each partner; they go back and forth until hushed.
  std::uint32_t numbers = 0;
  std::uint32_t blocks = 0;
  std::uint32_t patience_s = 60;  // to join and to find each other
  bool inlined = false;           // the talker runs on the control lane
  int cpu = -1;                   // it runs only on this one; -1: on any
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemberCase, transport, device, dead_ms, workers, numbers, blocks, patience_s,
                                   inlined, cpu)

/// Joins the group that the environment names, says "joined", then obeys the orders on its line until the line ends:
/// {"do": WORD, ...} is answered by {"say": ...}. Words:
///   watch {peer}: reports "down" {peer, at, code, why} when that process's talker ends; answered "watching".
///   talk {with: [peers]}: exchanges messages with these peers from now on; "talking".
///   hush: sends nothing back any more; "hushed".
///   compute: also keeps a core busy; "computing".  ballast {mb}: allocates that much memory; "heavier".
///   count: "count" {messages, longest_gap_ms}.
///   broadcast {number}: to all processes, and waits until all have received it; "heard" {lookup_ms, ms}.
///   stop {within_ms}: leaves together with the others; "stopped" {clean, text}, and ends.
/// Without an order it says "suspected" {peer}, "recovered" {peer}, "lost" {peer, at, why} and "dropped" {what}. Throws
/// Error.
void run_member(Blocking& blocking, const MemberCase& what, Line& line);

}  // namespace troupe::bench
