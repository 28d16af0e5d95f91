#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/actor_system.hpp>
#include <cstring>
#include <optional>

#include "tests/actors/remote/remote_end.hpp"
#include "tools/crew/line.hpp"
#include "tools/crew/measured_process.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::test {
namespace {

constexpr const char* kChildMark = "--remote-end";

/// The deadline for the other process: ten times what a start takes on a busy machine.
constexpr auto kPatience = std::chrono::seconds(20);

RemoteEnd::MakeTransport ucx(Peer self, const std::string& kind) {
  return [=](AddressSpace& space) {
    return crew::make_transport({.transport = kind, .device = kind == "tcp" ? "lo" : ""}, space, self);
  };
}

void introduce(RemoteEnd& end, Peer other, crew::Line& line) {
  auto blocking = Blocking::on_thread("introduction");
  end.meet(other, crew::bytes_of(line.swap(blocking, crew::binary(end.introduction()))));
}

void wait_for_end_of(crew::Line& line) {
  while (line.hear()) {
  }
}

/// The other end is a child process, this program executed again; they exchange addresses over a pair of sockets, whose
/// end also shows a death.
class ProcessWorld final : public World {
 public:
  ProcessWorld(const std::string& kind, RemoteOptions options) {
    auto [near, far] = crew::make_line();
    child_ = fork();
    if (child_ == 0) {
      fcntl(far.get(), F_SETFD, 0);
      const std::string fd = std::to_string(far.get());
      execl("/proc/self/exe", "remote end", kChildMark, fd.c_str(), kind.c_str(), nullptr);
      _exit(127);
    }
    far.reset();
    line_.emplace(std::move(near), kPatience);
    here = std::make_unique<RemoteEnd>(Peer{0}, ucx(Peer{0}, kind), std::move(options));
    introduce(*here, kThere, *line_);
    here->start();
    watch_ = std::thread([this] {
      wait_for_end_of(*line_);
      here->remote->lost(kThere, Status{Code::peer_lost, "peer 1 has ended"});
    });
    auto blocking = Blocking::on_thread("test");
    server = here->remote->resolve(blocking, kThere, "server", Deadline::after(kPatience));
  }

  ~ProcessWorld() override {
    server = {};
    here->stop();
    shutdown(line_->fd(), SHUT_WR);  // asks the child to end
    const Deadline deadline = Deadline::after(kPatience);
    while (child_ > 0 && waitpid(child_, nullptr, WNOHANG) == 0) {
      if (deadline.passed()) kill(child_, SIGKILL);
      usleep(1000);
    }
    watch_.join();
    here.reset();
  }

  void kill_there() override {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  std::optional<crew::Line> line_;
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
  crew::Line line{Fd{std::stoi(argv[2])}, kPatience};
  RemoteEnd end(World::kThere, ucx(World::kThere, argv[3]));
  introduce(end, Peer{0}, line);
  end.start();
  wait_for_end_of(line);
  end.remote->lost(Peer{0}, Status{Code::peer_lost, "peer 0 has ended"});
  return 0;
}

}  // namespace troupe::test
