#include "tools/rtrun/program.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "runtime/base/error.hpp"
#include "tools/rtrun/spawn.hpp"

namespace troupe::rtrun {
namespace {

bool can_be_run(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    TROUPE_CHECK(std::filesystem::exists(name), Code::invalid, "there is no program ", name, ", the program after --");
    TROUPE_CHECK(can_be_run(name), Code::invalid, name, ", the program after --, cannot be executed; `chmod +x ", name,
                 "`, or name the program that runs it first (`-- python3 ", name, "`)");
    return name;
  }
  const char* const path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string candidate = fmt::format("{}/{}", end == 0 ? "." : rest.substr(0, end), name);
    if (can_be_run(candidate)) return candidate;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  fail(Code::invalid, text("there is no program ", name, " (the word after --) in PATH",
                           std::filesystem::exists(name) ? "; for the one in this folder write ./" + name : ""));
}

void check_launcher_settings(const std::vector<std::string>& overrides) {
  constexpr std::array<std::string_view, 3> kRead{"cluster.", "faults.", "report."};
  for (const std::string& setting : overrides) {
    const bool read =
        std::any_of(kRead.begin(), kRead.end(), [&](auto section) { return setting.starts_with(section); });
    const std::string key = setting.substr(0, setting.find('='));
    TROUPE_CHECK(
        read, Code::invalid, key == "checkpoint.resume" ? "--resume" : "--set " + key,
        " does not reach a program after --, which reads its settings itself; give it to the program, or write "
        "it into the file (rtrun itself reads [cluster], [faults] and [report])");
  }
}

int run_program(Blocking&, const Signals& signals, const LaunchPlace& place, const std::vector<std::string>& program) {
  const Fd secret = sealed_file(place.secret);
  ::unsetenv("TROUPE_SECRET_STDIN");
  RankStart start;
  start.program = find_program(program.front());
  start.arguments = program;
  start.own_program = false;
  start.environment = {{"TROUPE_SECRET_FILE", fmt::format("/proc/self/fd/{}", secret.get())}};
  start.inherited = {secret.get()};
  start.own_stdout = false;
  start.own_stderr = false;
  start.null_stdin = true;
  const RankProcess process = spawn_rank(signals, start);
  for (;;) {
    std::array<pollfd, 2> polled{{{signals.fd(), POLLIN, 0}, {process.pidfd.get(), POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (const int signal = polled[0].revents != 0 ? signals.take() : 0; signal != 0 && signal != SIGUSR1)
      ::kill(process.pid, signal);
    if (polled[1].revents == 0) continue;
    siginfo_t info{};
    TROUPE_CHECK_ERRNO(::waitid(P_PIDFD, static_cast<id_t>(process.pidfd.get()), &info, WEXITED) == 0,
                       Code::environment, "cannot learn how ", program.front(), " ended");
    return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
  }
}

}  // namespace troupe::rtrun
