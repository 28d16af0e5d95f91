#include "transports/bootstrap/detail/joined.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"

namespace troupe::bootstrap {

std::string describe(const Hello& hello) {
  return text("rank ", hello.rank, " (pid ", hello.pid, " on ", hello.topology.host, ")");
}

std::string list_ranks(const std::vector<std::uint32_t>& ranks) {
  TextStream out;
  out << (ranks.size() == 1 ? "rank " : "ranks ");
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    out << (first == 0 ? "" : ", ") << ranks[first];
    if (last > first) out << (last == first + 1 ? ", " : "-") << ranks[last];
    first = last + 1;
  }
  return std::move(out).str();
}

}  // namespace troupe::bootstrap
