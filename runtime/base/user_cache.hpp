#pragma once

#include <cstdlib>
#include <string>

namespace troupe {

/// The folder for what can be made again: $XDG_CACHE_HOME/troupe, by default ~/.cache/troupe. A relative path in
/// XDG_CACHE_HOME is ignored, as the XDG rules say. Empty: neither variable gives one. The folder may not exist yet.
inline std::string user_cache_folder() {
  if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
    return std::string{cache} + "/troupe";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string{home} + "/.cache/troupe" : std::string{};
}

}  // namespace troupe
