#include "tests/support/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace troupe::testing {
namespace {

std::vector<std::string> environment_of(const ProgramStart& start) {
  std::vector<std::string> result;
  for (const auto& [name, value] : start.environment) result.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text{*entry};
    const std::string name = text.substr(0, text.find('='));
    const bool replaced =
        std::any_of(start.environment.begin(), start.environment.end(), [&](const auto& e) { return e.first == name; });
    if (!replaced && std::find(start.unset.begin(), start.unset.end(), name) == start.unset.end())
      result.push_back(text);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

[[noreturn]] void become_program(const ProgramStart& start, char* const* argv, char* const* envp, int out, int err,
                                 pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(125);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (!start.folder.empty() && ::chdir(start.folder.c_str()) != 0) ::_exit(126);
  ::execvpe(argv[0], argv, envp);
  ::_exit(127);
}

struct Stat {
  char state = '?';
  pid_t parent = 0;
  unsigned long long start = 0;
};

std::optional<Stat> stat_of(const std::string& pid) {
  std::ifstream file{"/proc/" + pid + "/stat"};
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  std::istringstream fields{text.substr(std::min(text.size(), text.rfind(')') + 1))};  // the name may hold anything
  Stat stat;
  std::string skipped;
  fields >> stat.state >> stat.parent;
  for (int i = 5; i < 22; ++i) fields >> skipped;
  fields >> stat.start;
  return stat;
}

template <class Visit>
void for_each_process(Visit visit) {
  for (const auto& entry : std::filesystem::directory_iterator{"/proc"}) {
    const std::string name = entry.path().filename();
    if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) visit(name);
  }
}

}  // namespace

Program::Program(const ProgramStart& start) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) throw std::runtime_error{"no pipe"};
  std::vector<std::string> arguments = start.arguments;
  std::vector<std::string> environment = environment_of(start);
  const auto argv = pointers_to(arguments);
  const auto envp = pointers_to(environment);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become_program(start, argv.data(), envp.data(), out[1], err[1], parent);
  ::close(out[1]);
  ::close(err[1]);
  if (pid_ < 0) throw std::runtime_error{"no process"};
  out_fd_ = out[0];
  err_fd_ = err[0];
  ::fcntl(out_fd_, F_SETFL, O_NONBLOCK);
  ::fcntl(err_fd_, F_SETFL, O_NONBLOCK);
  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

Program::~Program() {
  if (!ended_) {
    signal(SIGKILL);
    wait(std::chrono::seconds{10});
  }
  for (const int fd : {pidfd_, out_fd_, err_fd_})
    if (fd >= 0) ::close(fd);
}

void Program::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

int Program::wait(std::chrono::milliseconds span) {
  const Deadline deadline = Deadline::after(span);
  while (!ended_ && pump(deadline)) {
  }
  const Deadline drained = Deadline::after(std::chrono::seconds{1});
  while (ended_ && (out_fd_ >= 0 || err_fd_ >= 0) && pump(drained)) {
  }
  return ended_.value_or(-1);
}

bool Program::wait_until(const std::function<bool(const Program&)>& condition, std::chrono::milliseconds span) {
  const Deadline deadline = Deadline::after(span);
  while (!condition(*this)) {
    if (ended_ && out_fd_ < 0 && err_fd_ < 0) return false;
    if (!pump(deadline)) return condition(*this);
  }
  return true;
}

/// Waits for the next thing to happen; false when nothing did before the deadline.
bool Program::pump(Deadline deadline) {
  std::array<pollfd, 3> polled{{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}, {ended_ ? -1 : pidfd_, POLLIN, 0}}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
  if (::poll(polled.data(), polled.size(), static_cast<int>(left)) <= 0) return false;
  if (polled[0].revents != 0) read_from(out_fd_, out_);
  if (polled[1].revents != 0) read_from(err_fd_, err_);
  int status = 0;
  rusage used{};
  if (polled[2].revents != 0 && ::wait4(pid_, &status, WNOHANG, &used) == pid_) {
    ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    peak_bytes_ = static_cast<std::uint64_t>(used.ru_maxrss) * 1024;
  }
  return true;
}

void Program::read_from(int& fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    ::close(std::exchange(fd, -1));
  }
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<std::pair<unsigned long long, pid_t>> found;
  for_each_process([&](const std::string& name) {
    const auto stat = stat_of(name);
    if (stat && stat->parent == parent && stat->state != 'Z') found.emplace_back(stat->start, std::stoi(name));
  });
  std::sort(found.begin(), found.end());
  std::vector<pid_t> children;
  for (const auto& [start, pid] : found) children.push_back(pid);
  return children;
}

std::vector<pid_t> processes_with(const std::string& entry) {
  std::vector<pid_t> found;
  for_each_process([&](const std::string& name) {
    std::ifstream file{"/proc/" + name + "/environ"};
    for (std::string text; std::getline(file, text, '\0');)
      if (text == entry) return found.push_back(std::stoi(name));
  });
  return found;
}

std::vector<pid_t> processes_with_open(const std::string& target) {
  std::vector<pid_t> found;
  for_each_process([&](const std::string& name) {
    std::error_code gone;
    for (std::filesystem::directory_iterator fd{"/proc/" + name + "/fd", gone}, end; !gone && fd != end;
         fd.increment(gone)) {
      std::error_code closed;
      if (std::filesystem::read_symlink(fd->path(), closed) == target) return found.push_back(std::stoi(name));
    }
  });
  return found;
}

bool becomes_true(const std::function<bool()>& condition, std::chrono::milliseconds span) {
  const Deadline deadline = Deadline::after(span);
  while (!condition()) {
    if (deadline.passed()) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace troupe::testing
