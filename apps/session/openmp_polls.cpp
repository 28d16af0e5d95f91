#include "apps/session/openmp_polls.hpp"

#include <unistd.h>

#include <cstdlib>

namespace troupe {

std::optional<std::pair<std::string, std::string>> short_polls() {
  constexpr const char* variable = "GOMP_SPINCOUNT";
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv(variable) != nullptr) return {};
  return std::pair{std::string{variable}, std::string{"1000"}};
}

void restart_with_short_polls(const std::vector<std::string>& arguments) {
  const auto polls = short_polls();
  if (!polls) return;
  std::vector<char*> argv;
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));  // execv changes nothing
  argv.push_back(nullptr);
  if (::setenv(polls->first.c_str(), polls->second.c_str(), 0) == 0) ::execv("/proc/self/exe", argv.data());
}

}  // namespace troupe
