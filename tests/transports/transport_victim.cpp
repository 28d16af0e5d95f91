// A process to be killed: joins a peer over UCX, keeps large and small messages going to it, takes what comes.
// Usage: transport_victim <number> <tcp|shm|shm-told> <peer's number>; addresses go over stdin and stdout, length
// first.

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "tests/contracts/transport_node.hpp"
#include "tests/transports/ucx_means.hpp"

namespace troupe::testing {
namespace {

bool read_all(int fd, void* to, std::size_t bytes) {
  for (std::size_t got = 0; got < bytes;) {
    const auto count = read(fd, static_cast<char*>(to) + got, bytes - got);
    if (count <= 0) return false;
    got += static_cast<std::size_t>(count);
  }
  return true;
}

/// A message that is sent again as soon as its completion is reported.
class Resent final : public SendDone {
 public:
  void sent(Status) noexcept override { idle = true; }
  bool idle = true;
};

int run(std::uint32_t number, const std::string& means, std::uint32_t survivor) {
  constexpr std::uint64_t kLarge = 5'000'000;
  TransportNode node{Peer{number}, [&](Peer self, AddressSpace& space) {
                       return make_ucx_transport(space, ucx_options(self, means));
                     }};
  const auto mine = node.transport->address();
  const std::uint32_t size = static_cast<std::uint32_t>(mine.size());
  if (write(STDOUT_FILENO, &size, sizeof size) != sizeof size) return 1;
  if (write(STDOUT_FILENO, mine.data(), mine.size()) != static_cast<ssize_t>(mine.size())) return 1;
  std::uint32_t theirs = 0;
  if (!read_all(STDIN_FILENO, &theirs, sizeof theirs)) return 1;
  std::vector<std::byte> address(theirs);
  if (!read_all(STDIN_FILENO, address.data(), theirs)) return 1;
  node.transport->connect(Peer{survivor}, address);

  std::deque<Resent> large(4);
  Resent small;
  for (std::uint64_t i = 0; i < large.size(); ++i) node.prepare(i, kLarge, i * kLarge);
  for (;;) {
    for (std::uint64_t i = 0; i < large.size(); ++i) {
      const Memory payload = slice(node.outgoing, i * kLarge, kLarge);
      if (large[i].idle && node.send(Peer{survivor}, Lane::bulk, i, payload, large[i])) large[i].idle = false;
    }
    if (small.idle && node.send(Peer{survivor}, Lane::control, 9, {}, small)) small.idle = false;
    node.progress();
  }
}

}  // namespace
}  // namespace troupe::testing

int main(int count, char** words) {
  if (count != 4) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(60);
  return troupe::testing::run(static_cast<std::uint32_t>(std::atoi(words[1])), words[2],
                              static_cast<std::uint32_t>(std::atoi(words[3])));
}
