// One rank of a job that a real launcher started, for bootstrap_pmix_test: joins, tells what it found, and leaves.
// Argument: the rank that never asks for its place; the others then wait for two seconds only.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/base/error.hpp"
#include "transports/bootstrap/bootstrap.hpp"

namespace {

using namespace troupe;
using namespace std::chrono_literals;

int run(Clock::duration patience) {
  const auto place = launch_place_from_environment(patience);
  if (!place) {
    std::printf("no launcher\n");
    return 0;
  }
  Hello hello;
  hello.rank = place->rank;
  hello.pid = ::getpid();
  Blocking blocking = Blocking::on_thread("main");
  const Deadline deadline = Deadline::after(20s);
  const auto bootstrap = Bootstrap::join(blocking, *place, hello, deadline, {});
  const std::string mine = text("rank ", place->rank);
  const auto all = bootstrap->all_gather(blocking, "names", std::as_bytes(std::span{mine}), deadline);
  std::string names;
  for (const auto& name : all)
    names += text(" <", std::string_view{reinterpret_cast<const char*>(name.data()), name.size()}, ">");
  // One write, so that lines of different ranks do not mix.
  const std::string line = text("joined as rank ", place->rank, " of ", place->world_size, ", local ",
                                place->local_rank, ", at ", place->master_address, ", secret of ", place->secret.size(),
                                ", found in ", place->found_in, ", gathered", names, "\n");
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
  bootstrap->leave();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const char* rank = std::getenv("PMIX_RANK");
    if (argc > 1 && rank != nullptr && std::strcmp(rank, argv[1]) == 0) {
      ::alarm(30);
      ::pause();  // until the launcher ends everyone
    }
    return run(argc > 1 ? Clock::duration{2s} : Clock::duration{20s});
  } catch (const troupe::Error& error) {
    std::fprintf(stderr, "%s: %s\n", std::string{troupe::name_of(error.code())}.c_str(), error.what());
    return troupe::exit_code(error.code());
  }
}
