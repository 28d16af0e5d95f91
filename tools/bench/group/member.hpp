#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/blocking.hpp"
#include "tools/bench/say.hpp"

namespace troupe::bench {

/// How a process of a measured group is set up.
struct MemberCase {
  std::string transport = "shm";  // shm, tcp
  std::string device;             // network device of tcp
  std::uint32_t dead_ms = 3000;
  std::uint32_t workers = 0;  // CAF's threads; 0: as many as it takes by itself
  // What it sends to each that it talks with, to be sent back and forth for ever: messages of 8 bytes, and of 1 MB.
  std::uint32_t numbers = 0;
  std::uint32_t blocks = 0;
  std::uint32_t patience_s = 60;  // for joining and for finding each other
  bool inlined = false;           // the talker runs on the control lane
  int cpu = -1;                   // it runs there alone; -1: wherever there is room
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MemberCase, transport, device, dead_ms, workers, numbers, blocks, patience_s,
                                   inlined, cpu)

/// Joins the group that the environment names, says "joined", then does what it is told on its line until that ends:
/// {"do": WORD, ...} is answered by {"say": ...}. Words:
///   watch {peer}: tells "down" {peer, at, code, why} when that process's talker ends; answered "watching".
///   talk {with: [peers]}: exchanges messages with those from now on; "talking".
///   hush: sends nothing more back; "hushed".
///   compute: keeps a core busy beside that; "computing".  ballast {mb}: takes that much memory; "heavier".
///   count: "count" {messages, longest_gap_ms}.
///   broadcast {number}: to all processes, and waits until all have heard; "heard" {lookup_ms, ms}.
///   stop {within_ms}: leaves together with the others; "stopped" {clean, text}, and ends.
/// By itself it says "suspected" {peer}, "recovered" {peer}, "lost" {peer, at, why} and "dropped" {what}. Throws Error.
void run_member(Blocking& blocking, const MemberCase& what, Line& line);

}  // namespace troupe::bench
