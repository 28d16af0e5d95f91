#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::bench {

/// How a process of a measured group is set up.
struct MemberCase {
  std::string transport = "shm";  // shm, tcp
  std::string device;             // network device of tcp
  std::string node;               // network namespace to enter; empty: none
  std::uint32_t dead_ms = 3000;
  std::uint32_t workers = 0;  // CAF's threads; 0: as many as it takes by itself
  std::uint32_t numbers = 0;  // see Load
  std::uint32_t blocks = 0;
  std::uint32_t patience_s = 60;  // for joining and for finding each other
  bool inlined = false;           // the talker runs on the control lane
  int cpu = -1;                   // it runs there alone; -1: wherever there is room
  int line = -1;                  // a socket to who measures
};

/// The arguments of its command line, and the other way.
std::vector<std::string> arguments_of(const MemberCase& what);

/// Joins the group that the environment names, tells so on its line, then does what it is told there until the line
/// ends: {"do": WORD, ...} is answered by {"say": ...}. Words:
///   watch {peer}: tells "down" {peer, at, code, why} when that process's talker ends; answered "watching".
///   talk {with: [peers]}: exchanges messages with those from now on; "talking".
///   hush: sends nothing more back; "hushed".
///   compute: keeps a core busy beside that; "computing".  ballast {mb}: takes that much memory; "heavier".
///   count: "count" {messages, longest_gap_ms}.
///   broadcast {number}: to all processes, and waits until all have heard; "heard" {lookup_ms, ms}.
///   stop {within_ms}: leaves together with the others; "stopped" {clean, text}, and ends.
/// By itself it says "suspected" {peer}, "recovered" {peer}, "lost" {peer, at, why} and "dropped" {what}.
/// The exit code.
int run_member(const MemberCase& what);

}  // namespace troupe::bench
