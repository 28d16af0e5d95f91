#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "tools/rtrun/signals.hpp"

namespace troupe::bench {

/// What `rtbench data` measures.
struct DataCase {
  std::string what = "mnist";  // mnist, cifar, jpeg
  std::string dtype = "f32";
  std::vector<std::string> augment;  // as data.augment; empty: the usual operations for the case
  std::string folder;                // of .jpg files; empty: random images
  std::uint32_t threads = 0;
  std::uint32_t batch = 100;
  std::uint32_t rounds = 7;
  double seconds = 0.5;  // of a round
};

/// `rtbench data`: fills batches from a source and prints one JSON line with the samples per second of each round.
class DataCommand {
 public:
  explicit DataCommand(CLI::App& app);
  bool parsed() const { return data_->parsed(); }
  /// Returns the exit code. Throws what the source throws, and Error{aborted} on a signal.
  int run(Blocking& blocking, const rtrun::Signals& signals) const;

 private:
  CLI::App* data_;
  DataCase case_;
};

}  // namespace troupe::bench
