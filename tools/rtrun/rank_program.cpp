#include "tools/rtrun/rank_program.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "apps/session/openmp_polls.hpp"
#include "runtime/base/error.hpp"
#include "tools/rtrun/remote.hpp"

namespace troupe::rtrun {

std::string rank_program() {
  const std::string program = std::filesystem::path{own_program()}.replace_filename("rtrun-rank");
  TROUPE_CHECK_ERRNO(::access(program.c_str(), X_OK) == 0, Code::environment, "cannot start ", program,
                     ", the program of ranks, which is installed beside rtrun; install both again");
  return program;
}

void become_rank(std::vector<std::string> arguments) {
  const std::string program = rank_program();
  if (const auto polls = short_polls()) ::setenv(polls->first.c_str(), polls->second.c_str(), 0);
  std::vector<char*> argv;
  for (std::string& word : arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  fail_errno(Code::environment, text("cannot start ", program, ", the program of ranks"));
}

}  // namespace troupe::rtrun
