#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"

namespace troupe::crew {

/// Network namespaces that stand for hosts: each has a device eth0 with its own address (10.77.N.1, 10.77.N.2, ...; N
/// differs between processes), and all are on one bridge. The destructor removes everything. Needs root and `ip`.
/// Measurements and tests use it.
class Namespaces {
 public:
  /// Throws Error{environment} with the output of `ip`.
  Namespaces(Blocking& blocking, std::size_t count);
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;
  Namespaces& operator=(const Namespaces&) = delete;

  std::string name(std::size_t node) const;
  std::string address(std::size_t node) const;
  static std::string device() { return "eth0"; }
  /// Takes a node's link down, as when a cable is unplugged, or up again. Throws Error{environment}.
  void link(std::size_t node, bool up) const;

 private:
  std::string port(std::size_t node) const;
  void remove() const noexcept;
  const std::string tag_;
  const std::string subnet_;
  const std::size_t count_;
};

/// The result of a run of `ip`.
struct IpRun {
  bool well = false;
  std::string said;  // its stderr
};
/// Runs `ip` with these arguments, for at most 20 s.
IpRun run_ip(Blocking& blocking, const std::vector<std::string>& arguments);
/// The same. Throws Error{environment} with the output if `ip` fails.
void must_run_ip(Blocking& blocking, const std::vector<std::string>& arguments);

}  // namespace troupe::crew
