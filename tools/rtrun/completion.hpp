#pragma once

#include <string>
#include <string_view>

namespace troupe::rtrun {

/// The shells that completion_script() speaks, as in "bash, zsh or fish".
inline constexpr std::string_view kShells = "bash, zsh or fish";

/// What makes `shell` complete rtrun's verbs, options, and the keys and words of --set; empty for another shell. Keys,
/// words and their explanations are those of the configuration's schema.
std::string completion_script(std::string_view shell);

}  // namespace troupe::rtrun
