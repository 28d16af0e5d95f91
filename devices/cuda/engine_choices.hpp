#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cuda {

/// An engine of cuDNN and its settings, both by the library's numbers, or kernels of ours.
struct EngineChoice {
  static constexpr std::int64_t kOwn = -1;

  std::int64_t engine = 0;                                      // kOwn: kernels of ours
  std::vector<std::pair<std::uint32_t, std::int64_t>> knobs{};  // type and value
  float microseconds = 0;                                       // as measured; 0: it was not
  /// Two choices are the same whatever time was measured.
  friend bool operator==(const EngineChoice& a, const EngineChoice& b) noexcept {
    return a.engine == b.engine && a.knobs == b.knobs;
  }
};

/// Which engine was chosen for which problem, kept in a file between runs: choosing takes tenths of a second each.
/// The file belongs to one kind of GPU, one version of the library and one of the driver (`identity`, a line).
/// Processes may share it: each replaces it as a whole. Threads: one at a time.
class EngineChoices {
 public:
  /// Choices that are in no file.
  EngineChoices() = default;
  /// Reads `file`. A file that is broken or belongs to another identity is ignored, and replaced at the next save().
  EngineChoices(std::string file, std::string identity);

  /// A note about the file, such as why it was ignored; empty: there is none.
  const std::string& note() const noexcept { return note_; }
  /// Null: nothing was chosen for this problem, a line without " = ".
  const EngineChoice* find(const std::string& problem) const;
  void add(const std::string& problem, EngineChoice choice);
  /// Writes the choices, and those that other processes have written meanwhile, where some were added. What cannot be
  /// written is chosen again in the next run.
  void save() noexcept;

 private:
  using Choices = std::map<std::string, EngineChoice>;
  /// Throws Error{corrupt} with the reason.
  Choices read() const;

  std::string file_, identity_, note_;
  Choices choices_;
  bool has_new_ = false;
};

}  // namespace troupe::cuda
