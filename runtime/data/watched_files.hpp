#pragma once

#include <chrono>
#include <memory>

#include "runtime/data/encoded_files.hpp"

namespace troupe {

/// Encoded images whose reads end in time: read() returns a fault when the system has not given the bytes within
/// `patience`, as on a network mount whose server is gone. Threads of its own do the reading, as many as read() is
/// called at once; one that hangs is left to itself, ends when the system lets it go, and keeps `files` until then.
/// Threads: any.
class WatchedFiles final : public EncodedFiles {
 public:
  WatchedFiles(std::unique_ptr<EncodedFiles> files, std::chrono::milliseconds patience);
  ~WatchedFiles() override;
  WatchedFiles(const WatchedFiles&) = delete;
  WatchedFiles& operator=(const WatchedFiles&) = delete;

  std::uint64_t count() const noexcept override;
  std::string name(std::uint64_t image) const override;
  /// Throws Error{environment} when a number of reads hang at once: then it is no single file that is at fault.
  std::string read(std::uint64_t image, std::vector<std::uint8_t>& to) const override;
  std::uint64_t size_bytes() const noexcept override;
  void stop_waiting() noexcept override;

 private:
  class Reader;
  struct Shared;
  std::shared_ptr<Reader> take_reader() const;
  std::shared_ptr<Shared> shared_;
  const std::chrono::milliseconds patience_;
};

}  // namespace troupe
