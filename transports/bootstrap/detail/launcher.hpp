#pragma once

namespace troupe::bootstrap {

/// Which variables give this process its place in a job.
enum class Launcher {
  none,
  plain,     // RANK and the like
  open_mpi,  // OMPI_COMM_WORLD_RANK and the like
  pmix,      // none: the launcher's PMIx server knows it
};

/// The launcher that started this process, as its environment shows it. Values are not checked.
Launcher find_launcher() noexcept;

}  // namespace troupe::bootstrap
