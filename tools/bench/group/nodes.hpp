#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/blocking.hpp"

namespace troupe::bench {

/// Network namespaces that stand for hosts: each has a device eth0 with an address of its own, on one bridge. All of it
/// is gone when the object ends. Needs root and `ip`.
class Nodes {
 public:
  /// Throws Error{environment} with what `ip` said.
  Nodes(Blocking& blocking, std::uint32_t count);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  std::string name(std::uint32_t node) const;
  std::string address(std::uint32_t node) const;
  static std::string device() { return "eth0"; }
  /// Takes a node's link down, as a pulled cable does, or up again. Throws Error{environment}.
  void link(std::uint32_t node, bool up) const;

 private:
  std::string port(std::uint32_t node) const;
  void remove() const noexcept;
  const std::string tag_;
  const std::string subnet_;
  const std::uint32_t count_;
};

}  // namespace troupe::bench
