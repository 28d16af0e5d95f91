#include "tools/crew/namespaces.hpp"

#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"

namespace troupe::crew {
namespace {

constexpr int kPatienceMs = 20'000;

}  // namespace

IpRun run_ip(Blocking&, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"ip"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {false, "no pipe"};
  const Fd read_end{ends[0]};
  Fd write_end{ends[1]};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, "ip", &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return {false, text("cannot run `ip` (package iproute2): ", std::strerror(error))};
  write_end.reset();

  IpRun ran;
  std::array<char, 1024> bytes{};
  pollfd polled{read_end.get(), POLLIN, 0};
  ssize_t got = 1;
  while (got > 0 && ::poll(&polled, 1, kPatienceMs) > 0) {
    got = ::read(read_end.get(), bytes.data(), bytes.size());
    if (got > 0) ran.said.append(bytes.data(), static_cast<std::size_t>(got));
  }
  if (got != 0) ::kill(pid, SIGKILL);  // it did not end in time
  int status = 0;
  ran.well = ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return ran;
}

void must_run_ip(Blocking& blocking, const std::vector<std::string>& arguments) {
  const IpRun ran = run_ip(blocking, arguments);
  std::string command = "ip";
  for (const std::string& argument : arguments) command += " " + argument;
  TROUPE_CHECK(ran.well, Code::environment, "`", command, "` failed: ", ran.said,
               "; network namespaces need root and the package iproute2");
}

Namespaces::Namespaces(Blocking& blocking, std::size_t count)
    : tag_("tn" + std::to_string(::getpid() % 1000000)),
      subnet_("10.77." + std::to_string(::getpid() % 250) + "."),
      count_(count) {
  try {
    must_run_ip(blocking, {"link", "add", tag_ + "b", "type", "bridge"});
    must_run_ip(blocking, {"link", "set", tag_ + "b", "up"});
    for (std::size_t node = 0; node < count_; ++node) {
      must_run_ip(blocking, {"netns", "add", name(node)});
      must_run_ip(blocking, {"link", "add", port(node), "type", "veth", "peer", "name", device(), "netns", name(node)});
      must_run_ip(blocking, {"link", "set", port(node), "master", tag_ + "b", "up"});
      must_run_ip(blocking, {"-n", name(node), "addr", "add", address(node) + "/24", "dev", device()});
      must_run_ip(blocking, {"-n", name(node), "link", "set", device(), "up"});
      must_run_ip(blocking, {"-n", name(node), "link", "set", "lo", "up"});
    }
  } catch (const Error&) {  // a constructor that throws has no destructor call
    remove();
    throw;
  }
}

Namespaces::~Namespaces() { remove(); }

void Namespaces::remove() const noexcept {
  Blocking blocking = Blocking::on_thread("main");
  for (std::size_t node = 0; node < count_; ++node) {
    run_ip(blocking, {"link", "del", port(node)});
    run_ip(blocking, {"netns", "del", name(node)});
  }
  run_ip(blocking, {"link", "del", tag_ + "b"});
}

std::string Namespaces::name(std::size_t node) const { return tag_ + "n" + std::to_string(node); }
std::string Namespaces::port(std::size_t node) const { return tag_ + "v" + std::to_string(node); }
std::string Namespaces::address(std::size_t node) const { return subnet_ + std::to_string(node + 1); }

/// Does not start `ip`, whose start would be measured as silence.
void Namespaces::link(std::size_t node, bool up) const {
  const Fd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq request{};
  const std::string device = port(node);
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  bool done = socket && ::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0;
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  done = done && ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
  TROUPE_CHECK_ERRNO(done, Code::environment, "cannot take the link ", device, up ? " up" : " down");
}

}  // namespace troupe::crew
