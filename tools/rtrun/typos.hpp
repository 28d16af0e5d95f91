#pragma once

#include <span>
#include <string>

namespace troupe::rtrun {

/// An error message with a cure for what somebody who typed these words (without the program's name) probably meant: a
/// misspelt verb or option, an option of other programs that is a key of app.toml here, or a missing `--set`. Empty:
/// there is no explanation.
std::string explain_typo(std::span<const char* const> words);

}  // namespace troupe::rtrun
