#include "tools/rtrun/spawn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "apps/session/openmp_polls.hpp"
#include "runtime/base/error.hpp"

namespace troupe::rtrun {
namespace {

struct Pipe {
  Fd read;
  Fd write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  TROUPE_CHECK_ERRNO(::pipe2(ends.data(), O_CLOEXEC) == 0, Code::environment,
                     "cannot make a pipe for a rank's output; check `ulimit -n`");
  return {Fd{ends[0]}, Fd{ends[1]}};
}

/// Makes a descriptor non-blocking: the launcher never waits for the other end.
Fd without_waiting(Fd end) {
  if (end) ::fcntl(end.get(), F_SETFL, O_NONBLOCK);
  return end;
}

/// This process's environment with `changes`, as "NAME=value".
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> result;
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    bool changed = false;
    for (const auto& [name, value] : changes)
      changed |= text.starts_with(name) && text.substr(name.size()).starts_with("=");
    if (!changed) result.emplace_back(text);
  }
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Everything that the child needs, prepared before the fork: after it only async-signal-safe calls are allowed.
struct ChildPlan {
  const Signals& signals;
  const char* program;
  char* const* arguments;
  char* const* environment;
  const std::vector<int>& inherited;
  bool session;  // a new session, without a terminal
  bool own_program;
  int in;   // -1: the launcher's
  int out;  // -1: the launcher's
  int err;  // -1: the launcher's
  pid_t launcher;
};

void write_error(std::string_view text) noexcept {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

[[noreturn]] void become_rank(const ChildPlan& plan) noexcept {
  if (plan.session)
    ::setsid();
  else
    ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.launcher) ::_exit(128 + SIGKILL);  // the launcher died before the line above
  if (plan.in >= 0) ::dup2(plan.in, STDIN_FILENO);
  if (plan.out >= 0) ::dup2(plan.out, STDOUT_FILENO);
  if (plan.err >= 0) ::dup2(plan.err, STDERR_FILENO);
  for (const int fd : plan.inherited) ::fcntl(fd, F_SETFD, 0);
  plan.signals.restore_in_child(plan.own_program);
  ::execve(plan.program, plan.arguments, plan.environment);
  write_error("rtrun: error: cannot start a rank: ");
  write_error(plan.program);
  write_error(" cannot be executed\n");
  ::_exit(exit_code(Code::environment));
}

}  // namespace

RankProcess spawn_rank(const Signals& signals, const RankStart& start) {
  Pipe in = start.remote ? make_pipe() : Pipe{};
  Pipe out = start.own_stdout ? make_pipe() : Pipe{};
  Pipe err = start.own_stderr ? make_pipe() : Pipe{};
  if (start.null_stdin) {
    in.read = Fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    TROUPE_CHECK_ERRNO(in.read, Code::environment, "cannot open /dev/null");
  }
  std::vector<std::string> arguments = start.arguments;
  std::vector<std::string> environment = environment_with(start.environment);
  const std::vector<char*> argv = pointers_to(arguments);
  const std::vector<char*> envp = pointers_to(environment);
  const ChildPlan plan{signals,         start.program.c_str(), argv.data(),       envp.data(),
                       start.inherited, start.remote,          start.own_program, in.read.get(),
                       out.write.get(), err.write.get(),       ::getpid()};

  const pid_t pid = ::fork();
  TROUPE_CHECK_ERRNO(pid >= 0, Code::environment,
                     "cannot start a process for a rank; check `ulimit -u` and the free memory");
  if (pid == 0) become_rank(plan);
  if (!start.remote)
    ::setpgid(pid, pid);  // both processes do it: the order does not matter; fails harmlessly after exec

  RankProcess process{pid, Fd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))},
                      without_waiting(std::move(in.write)), without_waiting(std::move(out.read)),
                      without_waiting(std::move(err.read))};
  if (!process.pidfd) {
    const int reason = errno;
    ::kill(pid, SIGKILL);
    errno = reason;
    fail_errno(Code::environment, "cannot watch a rank's process (pidfd_open); check `ulimit -n`");
  }
  return process;
}

std::vector<std::pair<std::string, std::string>> library_habits() {
  std::vector<std::pair<std::string, std::string>> habits;
  const auto add = [&](const char* name, const char* value) {
    if (std::getenv(name) == nullptr) habits.emplace_back(name, value);
  };
  // UCX's messages belong on stderr, not into rank 0's table, and a crash is the launcher's to report.
  add("UCX_LOG_FILE", "stderr");
  add("UCX_HANDLE_ERRORS", "none");
  if (auto polls = short_polls()) habits.push_back(std::move(*polls));
  return habits;
}

Fd sealed_file(const std::string& content) {
  Fd file{::memfd_create("troupe-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  TROUPE_CHECK_ERRNO(file, Code::environment, "cannot make a memory file for the job secret");
  const auto size = static_cast<ssize_t>(content.size());
  TROUPE_CHECK_ERRNO(
      ::write(file.get(), content.data(), content.size()) == size && ::fchmod(file.get(), 0400) == 0 &&
          ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
      Code::environment, "cannot fill the memory file of the job secret");
  return file;
}

}  // namespace troupe::rtrun
