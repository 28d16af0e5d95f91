#pragma once

#include <string>

namespace troupe::cuda {

/// Whether a vendor's library computes, or kernels of ours do.
struct LibraryChoice {
  const char* variable;  // of the environment, where `option` is empty
  const char* library;   // how it is called as a choice: it must be there
  const char* what;      // is computed
};

/// "own", the library's name, or empty: what is found. Throws Error{invalid} for anything else.
std::string read_choice(const LibraryChoice& of, const std::string& option);

}  // namespace troupe::cuda
