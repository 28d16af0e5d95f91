#pragma once

#include <string>
#include <string_view>

namespace troupe::rtrun {

/// The shells that completion_script() supports, for messages.
inline constexpr std::string_view kShells = "bash, zsh or fish";

/// A script with which `shell` completes rtrun's verbs and options, and the keys and words of --set; empty for another
/// shell. Keys, words and their descriptions are those of the configuration's schema.
std::string completion_script(std::string_view shell);

}  // namespace troupe::rtrun
