#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/folder_lock.hpp"
#include "runtime/config/config.hpp"
#include "runtime/data/find_data.hpp"
#include "tools/rtrun/cli.hpp"

namespace troupe::rtrun {

/// Finds the data of a configuration. If digits must be drawn first, this is reported unless `quiet`, with a progress
/// bar on a terminal. Throws Error as find_data.
DataPlace locate_data(const Configuration& configuration, bool quiet = false);
/// The same without drawing digits: for verbs that do not train.
DataPlace look_for_data(const Configuration& configuration);

/// Creates the folder `dir` (with its parents) if it does not exist, and checks that files can be created in it; leaves
/// no file. Throws Error{environment} with the folder, the reason, and `setting`, with which another folder can be
/// chosen.
void prepare_folder(const std::string& dir, const std::string& setting = "report.dir");

/// The same for report.dir, in which the names of the files that a run of `ranks` writes must not be those of pipes,
/// folders or devices.
void prepare_report(const std::string& dir, std::uint32_t ranks);

/// lock_report() for the job of a configuration file; prints its notes.
FolderLock lock_report(Blocking& blocking, const std::string& dir, const std::string& file);

/// Makes sure that this process, and those that it starts, may have as many open files as a rank of a job of `ranks`
/// needs: raises the soft limit if it is lower. Throws Error{environment} if the hard limit forbids that.
void prepare_file_limit(std::uint32_t ranks);

/// Checks that this process, and those that it starts, may have as much address space as a small rank needs: with less,
/// some library would end the process without a useful message. Throws Error{environment} with the limit and the cure.
void check_address_space();

/// Checks that this machine's host name is one with which UCX's library can be loaded: it ends a program by SIGABRT
/// before main where the name is longer. Throws Error{environment}.
void check_host_name();

/// Checks that files may be as large as the memory that UCX shares. Throws Error{environment} with the limit and the
/// cure.
void check_file_size();

/// Reads the configuration that the command line names, and checks that its file systems answer; before a training also
/// the limits of this process. Throws Error.
Configuration read_job(Blocking& blocking, const CommandLine& line);

/// Refuses a folder without a checkpoint before any rank is started, so that the message stands alone. `resume` is
/// checkpoint.resume.
void check_resume(const std::string& resume);

/// Makes the folders into which a run of `ranks` writes: it must not begin if it cannot write its results. Checkpoints
/// are written `with_rank_zero`: where rank 0 is. Throws Error{environment}.
void prepare_folders(const Settings& settings, std::uint32_t ranks, bool with_rank_zero);

/// The path of a run's page.
std::string report_file(const Settings& settings);

/// Whether this process reports how the job ended: it started the whole job, or another launcher made it rank 0.
bool tells_the_end();

}  // namespace troupe::rtrun
