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

/// The configuration of one of the two processes that exchange messages.
struct EndCase {
  std::string what = "latency";  // latency, rate, mixed, idle, endurance, flood, shard
  std::string impl = "raw";
  std::string transport = "shm";  // shm, tcp
  std::string memory = "host";    // where tensors lie: host, cuda
  std::uint64_t bytes = 8;        // of a message; a multiple of 8
  std::uint32_t span_ms = 150;    // measured time, after the warm-up
  std::uint32_t spin_us = 0;      // how long the control lane polls; 0: its default
  std::uint64_t messages = 0;     // for endurance: in both directions together, and how many tensors they contain
  std::uint64_t tensors = 0;
  std::uint32_t memory_mb = 256;  // for flood: RemoteOptions::memory_bytes
  std::uint32_t reads = 10'000;   // for flood: messages that the reader reads per second
  int cpu = 0;                    // it runs only on this one
  bool client = false;            // sends first, and measures
  int line = -1;                  // a socket to the other end

  static constexpr std::uint64_t kMostInBand = 1024;

  bool endures() const noexcept { return what == "endurance"; }
  bool floods() const noexcept { return what == "flood"; }
  bool on_gpu() const noexcept { return memory == "cuda"; }
  /// Whether tensors in a GPU's memory are copied through the host's, not read by the other end's GPU.
  bool is_staged() const noexcept { return impl == "staged"; }
  bool tcp() const noexcept { return transport == "tcp"; }
  std::chrono::milliseconds span() const noexcept { return std::chrono::milliseconds(span_ms); }
  /// Whether the payload is sent as a tensor; smaller payloads are numbers or vectors of bytes.
  bool as_tensor() const noexcept { return impl == "arena" || is_staged() || bytes > kMostInBand; }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EndCase, what, impl, transport, memory, bytes, span_ms, spin_us, messages, tensors,
                                   memory_mb, reads, cpu, client, line)

/// The measurements of a client, by name: "us" one way, "us_p99", "kps" thousand messages per second, "gb_s" (in
/// latency only for tensors in a GPU's memory: one way), "core" (and "core_there", of the other end) the fraction of a
/// core in use; for endurance and flood see run_endurance() and run_flood(). Empty at the other end.
using Figures = std::map<std::string, double>;

/// The sockets of an end: to the other end, and to the measuring process, which may send "stop" to end it early.
struct EndLines {
  Line& other;
  Line& control;
};

/// Runs one end with an implementation; both ends call the same function.
Figures run_raw(Blocking& blocking, const EndCase& what, Line& line);
Figures run_actors(Blocking& blocking, const EndCase& what, Line& line);
Figures run_io(Blocking& blocking, const EndCase& what, Line& line);
/// One end has a shard. The other has a worker that pushes what.bytes and pulls as many; for 8, 64, 256 and 1024 bytes
/// it has a reader that reads this many bytes by value.
Figures run_shard(Blocking& blocking, const EndCase& what, Line& line);
Figures run_local(Blocking& blocking, const EndCase& what, Line& line);
/// The client copies what.bytes within its host memory.
Figures run_memcpy(const EndCase& what);

/// Remote actors send each other what.messages, which are checked, as fast as their windows allow. Throws
/// Error{corrupt} if one was lost, duplicated, reordered or changed, Error{timeout} if no message arrives any more. Any
/// word on the measuring process's line ends it early without an error: then "stopped" is 1.
///
/// After a tenth has been sent, and at the end, both ends pause and read their memory use. Figures, with _there for
/// those of the other end: "messages" and "tensors" in both directions, "kps", "rss_mb", "rss_growth_pct" since the
/// warm-up, "heap_mb" and "heap_growth_pct" (in use, by malloc), and the counters of remote actors: "sent",
/// "delivered", "reordered", "dropped". There is no growth if it was stopped before.
Figures run_endurance(Blocking& blocking, const EndCase& what, EndLines lines);

/// An actor at the client's end sends strings of what.bytes for the span, as fast as it can, to an actor at the other
/// end that reads what.reads per second; after that the reader catches up without pauses. Throws Error{corrupt} if a
/// message is neither read nor reported as refused, or arrives out of order, Error{timeout} if nothing is read any
/// more.
///
/// Figures, for "sender" and "reader" each: resident memory "_before_mb", "_median_mb" from then on, "_peak_mb" (the
/// kernel's), "_after_mb" 2 s after all was read. Then "sent", "read", "refused" messages; "longest_send_us" of one
/// call, and "longest_send_core_us" without the time that other processes had its core; "send_waits": how often a
/// sending thread gave up its core to wait; "catch_up_s".
Figures run_flood(Blocking& blocking, const EndCase& what, Line& line);

/// Whether this build has CAF's own networking for comparison.
bool io_available() noexcept;

/// The fraction of a core that this process uses while it is idle for the span; both ends call it at the same time.
Figures idle_cores(Blocking& blocking, const EndCase& what, Line& line);

/// Runs one end from start to end; a client says {"say": "figures", "figures"} on the line of the measuring process.
/// Throws Error.
void run_end(Blocking& blocking, const EndCase& what, Line& control);

}  // namespace troupe::bench
