#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace troupe {

/// Called with the progress of a long operation on data: `done` of `total`, with `what` for people.
using DataProgress = std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)>;

/// Whether images that are files are copied before a run, and where to: data.stage.
enum class Stage : std::uint8_t {
  none,    // not copied: read in place, again in each epoch
  memory,  // into the memory of the process that reads them
  disk,    // into a file without a name on a disk of its host
};
constexpr std::string_view name_of(Stage stage) noexcept {
  if (stage == Stage::none) return "none";
  return stage == Stage::memory ? "memory" : "disk";
}

struct StageOptions {
  Stage stage = Stage::none;
  std::string folder = "/var/tmp";  // for Stage::disk
  DataProgress progress{};          // number of images so far, on the thread that stages; may be empty
};

}  // namespace troupe
