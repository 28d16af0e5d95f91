#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/actor_system.hpp>
#include <cstring>

#include "tests/actors/remote/remote_end.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::test {
namespace {

constexpr const char* kChildMark = "--remote-end";

/// Patience with the other process: ten times what a start takes on a busy machine.
constexpr auto kPatience = std::chrono::seconds(20);

RemoteEnd::MakeTransport ucx(Peer self, const std::string& kind) {
  return [=](AddressSpace& space) {
    UcxOptions options{.self = self};
    options.means = kind == "tcp" ? UcxMeans::tcp : UcxMeans::shm;
    if (kind == "tcp") options.network_device = "lo";
    return make_ucx_transport(space, options);
  };
}

void write_all(int fd, std::span<const std::byte> bytes) {
  const auto size = static_cast<std::uint64_t>(bytes.size());
  TROUPE_CHECK_ERRNO(send(fd, &size, sizeof size, MSG_NOSIGNAL) == sizeof size, Code::environment, "introduction");
  TROUPE_CHECK_ERRNO(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
                     Code::environment, "introduction");
}

void read_exactly(int fd, std::span<std::byte> bytes) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!bytes.empty()) {
    pollfd ready{fd, POLLIN, 0};
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "the other process does not introduce itself");
    if (poll(&ready, 1, 100) <= 0) continue;
    const auto got = read(fd, bytes.data(), bytes.size());
    TROUPE_CHECK(got > 0, Code::peer_lost, "the other process ended before it introduced itself");
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::vector<std::byte> read_message(int fd) {
  std::uint64_t size = 0;
  read_exactly(fd, std::as_writable_bytes(std::span(&size, 1)));
  std::vector<std::byte> bytes(size);
  read_exactly(fd, bytes);
  return bytes;
}

void wait_for_end_of(int fd) {
  pollfd ended{fd, POLLIN, 0};
  char nothing = 0;
  do {
    poll(&ended, 1, -1);
  } while (read(fd, &nothing, 1) > 0);
}

/// The other end is a child process, this program executed again; a pair of sockets introduces them, and its end tells
/// of a death.
class ProcessWorld final : public World {
 public:
  ProcessWorld(const std::string& kind, RemoteOptions options) {
    int pair[2];
    TROUPE_CHECK_ERRNO(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, Code::environment, "socketpair");
    child_ = fork();
    if (child_ == 0) {
      close(pair[0]);
      const std::string fd = std::to_string(pair[1]);
      execl("/proc/self/exe", "remote end", kChildMark, fd.c_str(), kind.c_str(), nullptr);
      _exit(127);
    }
    close(pair[1]);
    fd_ = pair[0];
    here = std::make_unique<RemoteEnd>(Peer{0}, ucx(Peer{0}, kind), std::move(options));
    write_all(fd_, here->introduction());
    here->meet(kThere, read_message(fd_));
    here->start();
    watch_ = std::thread([this] {
      wait_for_end_of(fd_);
      here->remote->lost(kThere, Status{Code::peer_lost, "peer 1 has ended"});
    });
    auto blocking = Blocking::on_thread("test");
    server = here->remote->resolve(blocking, kThere, "server", Deadline::after(kPatience));
  }

  ~ProcessWorld() override {
    server = {};
    here->stop();
    shutdown(fd_, SHUT_WR);  // asks the child to end
    const Deadline deadline = Deadline::after(kPatience);
    while (child_ > 0 && waitpid(child_, nullptr, WNOHANG) == 0) {
      if (deadline.passed()) kill(child_, SIGKILL);
      usleep(1000);
    }
    watch_.join();
    close(fd_);
    here.reset();
  }

  void kill_there() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  int fd_ = -1;
  std::thread watch_;
};

}  // namespace

std::vector<std::string> World::kinds() {
  return ucx_available() ? std::vector<std::string>{"shm", "tcp"} : std::vector<std::string>{};
}

std::unique_ptr<World> World::make(const std::string& kind, RemoteOptions options_here) {
  return std::make_unique<ProcessWorld>(kind, std::move(options_here));
}

std::optional<int> run_as_child(int argc, char** argv) {
  if (argc != 4 || std::strcmp(argv[1], kChildMark) != 0) return {};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = std::stoi(argv[2]);
  RemoteEnd end(World::kThere, ucx(World::kThere, argv[3]));
  write_all(fd, end.introduction());
  end.meet(Peer{0}, read_message(fd));
  end.start();
  wait_for_end_of(fd);
  end.remote->lost(Peer{0}, Status{Code::peer_lost, "peer 0 has ended"});
  return 0;
}

}  // namespace troupe::test
