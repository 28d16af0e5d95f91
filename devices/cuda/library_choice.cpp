#include "devices/cuda/library_choice.hpp"

#include <cstdlib>

#include "runtime/base/error.hpp"

namespace troupe::cuda {

std::string read_choice(const LibraryChoice& of, const std::string& option) {
  const char* const named = std::getenv(of.variable);
  const bool is_named = option.empty() && named != nullptr;
  std::string choice = is_named ? named : option;
  TROUPE_CHECK(choice.empty() || choice == "own" || choice == of.library, Code::invalid,
               is_named ? std::string{of.variable} : text("the choice of ", of.what), " is \"", choice, "\": write \"",
               of.library, "\" or \"own\", or leave it out");
  return choice;
}

}  // namespace troupe::cuda
