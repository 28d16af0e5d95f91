#include "tools/bench/messages/end.hpp"

#include <cstring>
#include <vector>

#include "runtime/base/error.hpp"
#include "tools/bench/messages/measures.hpp"
#include "tools/crew/process_usage.hpp"

namespace troupe::bench {
namespace {

Figures run_case(Blocking& blocking, const EndCase& what, EndLines lines) {
  if (what.endures()) return run_endurance(blocking, what, lines);
  if (what.floods()) return run_flood(blocking, what, lines.other);
  if (what.impl.starts_with("raw")) return run_raw(blocking, what, lines.other);
  if (what.impl == "caf_io") return run_io(blocking, what, lines.other);
  if (what.impl == "shard") return run_shard(blocking, what, lines.other);
  if (what.impl == "memcpy") return run_memcpy(what);
  if (what.impl == "local") return run_local(blocking, what, lines.other);
  return run_actors(blocking, what, lines.other);
}

}  // namespace

Figures run_memcpy(const EndCase& what) {
  if (!what.client) return {};
  std::vector<std::byte> here(what.bytes), there(what.bytes);
  RoundTrips trips(what);
  trips.begin();
  do {
    std::memcpy(there.data(), here.data(), what.bytes);
    std::memcpy(here.data(), there.data(), what.bytes);
  } while (trips.again());
  return trips.figures();
}

Figures idle_cores(Blocking& blocking, const EndCase& what, Line& line) {
  line.barrier(blocking);
  const auto begun = Clock::now();
  const auto before = core_time(CLOCK_PROCESS_CPUTIME_ID);
  line.rest(blocking, what.span());
  const std::chrono::duration<double> used = core_time(CLOCK_PROCESS_CPUTIME_ID) - before;
  const std::chrono::duration<double> span = Clock::now() - begun;
  const double here = used / span;
  return {{"core", here}, {"core_there", line.swap(blocking, here).get<double>()}};
}

void run_end(Blocking& blocking, const EndCase& what, Line& control) {
  Line other(Fd{what.line}, std::chrono::seconds(30) + 20 * what.span());
  const Figures figures = run_case(blocking, what, {other, control});
  if (what.client) control.tell({{"say", "figures"}, {"figures", figures}});
}

}  // namespace troupe::bench
