#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/folder_lock.hpp"
#include "runtime/config/config.hpp"
#include "runtime/data/find.hpp"

namespace troupe::rtrun {

/// Finds the data that a configuration speaks of; when digits have to be drawn first it says so unless it is to be
/// `quiet`, with a progress bar on a terminal. Throws Error as find_data.
DataPlace locate_data(const Configuration& configuration, bool quiet = false);
/// The same without drawing any: for verbs that run nothing.
DataPlace look_for_data(const Configuration& configuration);

/// Makes the folder `dir` (with its parents) unless it is there, and makes sure that files can be made in it; leaves no
/// file. Throws Error{environment} with the folder, the reason, and `setting`, which can name another folder.
void prepare_folder(const std::string& dir, const std::string& setting = "report.dir");

/// Keeps other jobs from writing into the report's folder; waits a moment for one that was killed just now. Says so
/// where the file system keeps no locks. Throws Error{environment} that names who has it.
FolderLock lock_report(Blocking& blocking, const std::string& dir, const std::string& file);

/// Sees to it that this process, and those that it starts, may have as many files open as a rank of a job of `ranks`
/// needs: raises the soft limit where it is lower. Throws Error{environment} when the hard limit forbids that.
void prepare_file_limit(std::uint32_t ranks);

/// Makes sure that this process, and those that it starts, may have as many addresses as a small rank needs: with fewer
/// some library or other ends it without a word that helps. Throws Error{environment} with the limit and the cure.
void check_address_space();

}  // namespace troupe::rtrun
