#pragma once

#include <span>
#include <string>

namespace troupe::rtrun {

/// What somebody who typed these words (without the program's name) probably meant, as an error message with its cure:
/// a misspelt verb or option, an option that other programs have and that is a key of app.toml here, or a `--set` that
/// is missing. Empty: nothing is known about it.
std::string explain_slip(std::span<const char* const> words);

}  // namespace troupe::rtrun
