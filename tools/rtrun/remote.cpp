#include "tools/rtrun/remote.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "runtime/base/error.hpp"

namespace troupe::rtrun {
namespace {

/// Quotes text for a shell, so that it is one word without special characters.
std::string word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

}  // namespace

std::string command_line(const RemoteCommand& command) {
  std::string line = "cd " + word(command.folder) + " && exec env";
  for (const auto& [name, value] : command.environment) line += " " + word(name + "=" + value);
  for (const std::string& argument : command.arguments) line += " " + word(argument);
  return line;
}

std::vector<std::string> remote_shell_arguments(const std::string& remote_shell, const std::string& host,
                                                const std::string& line) {
  return {"sh", "-c", "exec " + remote_shell + " \"$@\"", "rtrun", host, line};
}

Environment passed_environment() {
  static constexpr std::array<std::string_view, 3> kOwn{"TROUPE_SECRET_FILE", "TROUPE_SECRET_STDIN",
                                                        "TROUPE_LISTEN_FD"};
  Environment passed;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const std::string_view name = text.substr(0, text.find('='));
    if (name.size() == text.size() || std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end()) continue;
    const std::array<std::string_view, 4> passed_on{"UCX_", "TROUPE_", "OMP_", "GOMP_"};
    if (std::ranges::any_of(passed_on, [&](std::string_view start) { return name.starts_with(start); }))
      passed.emplace_back(name, text.substr(name.size() + 1));
  }
  return passed;
}

std::string working_folder() {
  std::error_code error;
  const char* const named = std::getenv("PWD");  // on other machines a link above the home folder may lead elsewhere
  if (named != nullptr && *named == '/' && std::filesystem::equivalent(named, ".", error) && !error) return named;
  return std::filesystem::current_path();
}

std::string own_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  TROUPE_CHECK(!error, Code::environment, "cannot find out where rtrun is (/proc/self/exe): ", error.message());
  return path;
}

}  // namespace troupe::rtrun
