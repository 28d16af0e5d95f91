#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"

namespace troupe::crew {

/// Network namespaces that stand for hosts: each has a device eth0 with an address of its own (10.77.N.1, 10.77.N.2,
/// ...; N differs between processes), on one bridge. All of it is gone when the object ends. Needs root and `ip`.
/// Measurements and tests use it.
class Namespaces {
 public:
  /// Throws Error{environment} with what `ip` said.
  Namespaces(Blocking& blocking, std::size_t count);
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  std::string name(std::size_t node) const;
  std::string address(std::size_t node) const;
  static std::string device() { return "eth0"; }
  /// Takes a node's link down, as a pulled cable does, or up again. Throws Error{environment}.
  void link(std::size_t node, bool up) const;

 private:
  std::string port(std::size_t node) const;
  void remove() const noexcept;
  const std::string tag_;
  const std::string subnet_;
  const std::size_t count_;
};

/// How a run of `ip` ended.
struct IpRun {
  bool well = false;
  std::string said;  // on stderr
};
/// Runs `ip` with these arguments, for 20 s at most.
IpRun run_ip(Blocking& blocking, const std::vector<std::string>& arguments);
/// The same. Throws Error{environment} with what it said.
void must_run_ip(Blocking& blocking, const std::vector<std::string>& arguments);

}  // namespace troupe::crew
