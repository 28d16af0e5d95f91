#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/base/detail/json.hpp"
#include "runtime/base/error.hpp"
#include "tools/rttopo/commands.hpp"
#include "transports/bootstrap/bootstrap.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::rttopo {
namespace {

/// The variables that each launcher sets; they are shown even if a rank would not use them.
struct Launcher {
  const char* name;
  std::vector<const char*> variables;
};
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> kLaunchers{
      {"torchrun, or set by hand", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}},
      {"Open MPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}},
      {"PMIx", {"PMIX_RANK", "PMIX_NAMESPACE"}},
      {"Slurm", {"SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODELIST"}},
      {"Kubernetes", {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"}}};
  return kLaunchers;
}

}  // namespace

int print_environment(bool json, std::ostream& out) {
  nlohmann::ordered_json found = nlohmann::ordered_json::object();
  for (const Launcher& launcher : launchers())
    for (const char* name : launcher.variables)
      if (const char* const value = std::getenv(name)) found[launcher.name][name] = value;
  const std::optional<LaunchPlace> place = launch_place_from_environment();
  const std::optional<UcxLibrary> ucx = ucx_available() ? std::optional{ucx_library()} : std::nullopt;
  if (json) {
    nlohmann::ordered_json all{{"variables", found}};
    if (ucx) all["ucx"] = {{"version", ucx->version}, {"library", ucx->path}, {"reads_gpu_memory", ucx->reads_cuda}};
    if (place)
      all["place"] = {{"rank", place->rank},
                      {"world_size", place->world_size},
                      {"local_rank", place->local_rank},
                      {"master_address", place->master_address},
                      {"master_port", place->master_port},
                      {"found_in", place->found_in},
                      {"secret", !place->secret.empty()}};
    out << json_text(all, 1) << '\n';
    return 0;
  }
  for (const auto& [launcher, variables] : found.items()) {
    out << launcher << ":\n";
    for (const auto& [name, value] : variables.items()) out << "  " << name << '=' << value.get<std::string>() << '\n';
  }
  if (place) {
    out << text("A rank started here is rank ", place->rank, " of ", place->world_size, " (", place->local_rank,
                " on its node); rank 0 is at ", place->master_address, ':', place->master_port, ". Found in ",
                place->found_in, ".\n");
  } else {
    out << "No launcher gave this process a place: rtrun would start the processes of a job itself.\n";
  }
  if (ucx) {
    out << text("UCX ", ucx->version, " (", ucx->path, ") ",
                ucx->reads_cuda ? "sends from the memory of GPUs.\n"
                                : "does not read the memory of GPUs: tensors there are copied to the host's first.\n");
  } else {
    out << "This build has no UCX.\n";
  }
  return 0;
}

}  // namespace troupe::rttopo
