#include "transports/bootstrap/detail/launcher.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "transports/bootstrap/bootstrap.hpp"

namespace troupe {
namespace bootstrap {
namespace {

bool is_given(const char* name) noexcept { return std::getenv(name) != nullptr; }

/// Whether a launcher's PMIx server expects this process.
bool has_pmix_server() noexcept {
  if (!is_given("PMIX_RANK") || !is_given("PMIX_NAMESPACE")) return false;
  constexpr std::string_view kServer = "PMIX_SERVER_URI";
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view{*entry}.substr(0, kServer.size()) == kServer) return true;  // PMIX_SERVER_URI2, ...41
  }
  return false;
}

/// A process that mpirun started alone needs no address of rank 0.
bool is_alone_under_open_mpi() noexcept {
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return size != nullptr && std::string_view{size} == "1";
}

}  // namespace

Launcher find_launcher() noexcept {
  if (is_given("RANK")) return Launcher::plain;
  const bool open_mpi = is_given("OMPI_COMM_WORLD_RANK");
  if (open_mpi && is_given("MASTER_ADDR") && is_given("MASTER_PORT")) return Launcher::open_mpi;
  if (has_pmix_server()) return Launcher::pmix;
  return open_mpi && !is_alone_under_open_mpi() ? Launcher::open_mpi : Launcher::none;
}

}  // namespace bootstrap

bool has_launcher() noexcept { return bootstrap::find_launcher() != bootstrap::Launcher::none; }

}  // namespace troupe
