#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

/// For the stand-in of NCCL, a library of its own over this one.
#define TROUPE_HOST_SHARED __attribute__((visibility("default")))

namespace troupe::cuda::host {

/// Where work comes from: what it is, on which stream, and who called the driver for it.
struct TROUPE_HOST_SHARED Place {
  std::string what;              // "kernel scale", "cuMemcpyAsync"
  int stream = 0;                // 0: none
  const void* caller = nullptr;  // return address of the call
  /// "kernel scale on stream 2 (called at program(function+0x12))".
  std::string text() const;
};
using PlacePtr = std::shared_ptr<const Place>;

/// Mistakes that were found. Each is printed once on stderr, when it is found. Any thread.
class TROUPE_HOST_SHARED Reports {
 public:
  /// `kind` is the mistake's name, `text` names the places.
  void add(const std::string& kind, const std::string& text);
  std::size_t count() const;
  /// All, a line each.
  std::string text() const;
  void forget();

 private:
  mutable std::mutex mutex_;  // guards all below
  std::set<std::string> known_;
  std::vector<std::string> lines_;
};

TROUPE_HOST_SHARED Reports& reports();

}  // namespace troupe::cuda::host
