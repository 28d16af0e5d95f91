#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/base/blocking.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/line.hpp"

namespace troupe::bench {

/// What one of two processes does that exchange messages to be measured.
struct EndCase {
  std::string what = "latency";  // latency, rate, mixed, idle, endurance, flood, shard
  std::string impl = "raw";
  std::string transport = "shm";  // shm, tcp
  std::uint64_t bytes = 8;        // of a message; a multiple of 8
  std::uint32_t span_ms = 150;    // measured time, after warm-up
  std::uint32_t spin_us = 0;      // how long the control lane polls; 0: its default
  std::uint64_t messages = 0;     // of endurance: both ways together, and how many tensors are in them
  std::uint64_t tensors = 0;
  std::uint32_t memory_mb = 256;  // of flood: RemoteOptions::memory_bytes, and what the reader takes in a second
  std::uint32_t reads = 10'000;
  int cpu = 0;          // it runs there alone
  bool client = false;  // sends first, and measures
  int line = -1;        // a socket to the other end

  static constexpr std::uint64_t kMostInBand = 1024;

  bool endures() const noexcept { return what == "endurance"; }
  bool floods() const noexcept { return what == "flood"; }
  bool tcp() const noexcept { return transport == "tcp"; }
  std::chrono::milliseconds span() const noexcept { return std::chrono::milliseconds(span_ms); }
  /// Whether the payload goes as a tensor; smaller ones are numbers or byte vectors.
  bool as_tensor() const noexcept { return impl == "arena" || bytes > kMostInBand; }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EndCase, what, impl, transport, bytes, span_ms, spin_us, messages, tensors,
                                   memory_mb, reads, cpu, client, line)

/// What a client measured, by name: "us" one way, "us_p99", "kps" thousand messages a second, "gb_s", "core" (and
/// "core_there", of the other end) the fraction of a core in use; those of endurance and flood: see run_endurance() and
/// run_flood(). Empty at the other end.
using Figures = std::map<std::string, double>;

/// What an end has to do with others: the other end, and who measures, on whose line it is told to "stop" early.
struct EndLines {
  Line& other;
  Line& control;
};

/// An end's life by implementation; both ends call the same.
Figures run_raw(Blocking& blocking, const EndCase& what, Line& line);
Figures run_actors(Blocking& blocking, const EndCase& what, Line& line);
Figures run_io(Blocking& blocking, const EndCase& what, Line& line);
/// A shard at one end, at the other a worker that pushes what.bytes and pulls as many; of 8, 64, 256 and 1024 bytes, a
/// reader of so many, by value.
Figures run_shard(Blocking& blocking, const EndCase& what, Line& line);
Figures run_local(Blocking& blocking, const EndCase& what, Line& line);

/// Remote actors send each other what.messages, checked, as fast as their windows allow. Throws Error{corrupt} when
/// one was lost, doubled, overtaken or changed, Error{timeout} when nothing moves any more. A word on the line of who
/// measures ends it early, well: then "stopped" is 1.
///
/// Once a tenth has been sent, and at the end, both ends rest and look at their memory. Figures, with _there
/// those of the other end: "messages" and "tensors" both ways, "kps", "rss_mb", "rss_growth_pct" since the warm-up,
/// "heap_mb" and "heap_growth_pct" (in use, by malloc), and what the remote actors count: "sent", "delivered",
/// "reordered", "dropped". Without growth: it was stopped before.
Figures run_endurance(Blocking& blocking, const EndCase& what, EndLines lines);

/// An actor at the client's end sends strings of what.bytes for the span, as fast as it can, to one at the other end
/// that takes what.reads a second; then that one catches up without pauses. Throws Error{corrupt} when a message is
/// neither read nor reported as refused, or comes out of order, Error{timeout} when nothing moves any more.
///
/// Figures, for "sender" and "reader" each: resident memory "_before_mb", "_median_mb" from then on, "_peak_mb" (the
/// kernel's), "_after_mb" 2 s after all was read. Then "sent", "read", "refused" messages; "longest_send_us", of one
/// call, and "longest_send_core_us" without the time that others had its core; "send_waits", how often a sending thread
/// gave its core up to wait; "catch_up_s".
Figures run_flood(Blocking& blocking, const EndCase& what, Line& line);

/// Whether this build has CAF's own networking to compare with.
bool io_available() noexcept;

/// The share of a core that this process uses while it has nothing to do for the span; both ends call it at once.
Figures idle_cores(Blocking& blocking, const EndCase& what, Line& line);

/// Runs one end to its end; a client says {"say": "figures", "figures"} on the line of who measures. Throws Error.
void run_end(Blocking& blocking, const EndCase& what, Line& control);

}  // namespace troupe::bench
