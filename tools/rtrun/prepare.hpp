#pragma once

#include <string>

#include "runtime/config.hpp"
#include "runtime/data/find.hpp"

namespace troupe::rtrun {

/// Finds the data that a configuration speaks of; when digits have to be drawn first it says so unless it is to be
/// `quiet`, with a progress bar on a terminal. Throws Error as find_data.
DataPlace locate_data(const Configuration& configuration, bool quiet = false);
/// The same without drawing any: for verbs that run nothing.
DataPlace look_for_data(const Configuration& configuration);

/// Makes the folder `dir` (with its parents) unless it is there, and makes sure that files can be made in it; leaves no
/// file. Throws Error{environment} with the folder and the reason.
void prepare_folder(const std::string& dir);

}  // namespace troupe::rtrun
