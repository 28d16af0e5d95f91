#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace troupe {

/// Told how far a long piece of data work is: `done` of `total`, `what` for people.
using DataProgress = std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)>;

/// Whether images that are files are copied before a run, and where to: data.stage.
enum class Stage : std::uint8_t {
  none,    // they are read where they are, again in each epoch
  memory,  // into the memory of the process that reads them
  disk,    // into a nameless file on a disk of its host
};
constexpr std::string_view name_of(Stage stage) noexcept {
  if (stage == Stage::none) return "none";
  return stage == Stage::memory ? "memory" : "disk";
}

struct StageOptions {
  Stage stage = Stage::none;
  std::string folder = "/var/tmp";  // of Stage::disk
  DataProgress progress{};          // images so far, on the thread that stages; may be empty
};

}  // namespace troupe
