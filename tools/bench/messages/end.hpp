#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/blocking.hpp"
#include "runtime/clock.hpp"

namespace troupe::bench {

/// What one of two processes does that exchange messages to be measured.
struct EndCase {
  std::string what = "latency";  // latency, rate, mixed, idle
  std::string impl = "raw";
  std::string transport = "shm";  // shm, tcp
  std::uint64_t bytes = 8;        // of a message; a multiple of 8
  std::uint32_t span_ms = 150;    // measured time, after warm-up
  std::uint32_t spin_us = 0;      // how long the control lane polls; 0: its default
  int cpu = 0;                    // it runs there alone
  bool client = false;            // sends first, and measures
  int line = -1;                  // a socket to the other end

  static constexpr std::uint64_t kMostInBand = 1024;

  bool tcp() const noexcept { return transport == "tcp"; }
  std::chrono::milliseconds span() const noexcept { return std::chrono::milliseconds(span_ms); }
  /// Whether such a payload goes as a tensor; smaller ones are numbers or byte vectors.
  bool as_tensor() const noexcept { return bytes > kMostInBand; }
};

/// What a client measured, by name: "us" one way, "us_p99", "kps" thousand messages a second, "gb_s", "core" (and
/// "core_there", of the other end) the fraction of a core in use. Empty at the other end.
using Figures = std::map<std::string, double>;

/// One end's connection to the other beside what is measured.
class Line {
 public:
  /// Takes the descriptor of a socket that keeps messages apart. Waits end after `patience`.
  Line(int fd, Clock::duration patience);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  /// Gives `mine` for the other's; both have come this far. Throws Error{timeout} and Error{peer_lost}.
  std::vector<std::byte> swap(Blocking& blocking, std::span<const std::byte> mine);
  void meet(Blocking& blocking) { swap(blocking, {}); }
  /// Waits for `span`, or until the other end has gone.
  void rest(Blocking& blocking, Clock::duration span);
  Clock::duration patience() const noexcept { return patience_; }

 private:
  int fd_;
  Clock::duration patience_;
};

/// An end's life by implementation; both ends call the same.
Figures run_raw(Blocking& blocking, const EndCase& what, Line& line);
Figures run_actors(Blocking& blocking, const EndCase& what, Line& line);
Figures run_io(Blocking& blocking, const EndCase& what, Line& line);
Figures run_local(Blocking& blocking, const EndCase& what, Line& line);

/// Whether this build has CAF's own networking to compare with.
bool io_available() noexcept;

/// The share of a core that this process uses while it has nothing to do for the span; both ends call it at once.
Figures idle_cores(Blocking& blocking, const EndCase& what, Line& line);

/// Runs one end to its end; a client prints its figures as a JSON object. The exit code.
int run_end(const EndCase& what);

}  // namespace troupe::bench
