#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::testing {

/// Why network namespaces cannot be made here; empty when they can.
std::string why_no_namespaces();

/// Network namespaces joined by a bridge, one for each node of a pretended cluster: interface "eth0" with the addresses
/// 10.77.N.1, 10.77.N.2, ...; N differs between processes. All of it is gone when the object ends. Needs root and `ip`.
class NamespaceCluster {
 public:
  explicit NamespaceCluster(std::size_t nodes);
  ~NamespaceCluster();
  NamespaceCluster(const NamespaceCluster&) = delete;
  NamespaceCluster& operator=(const NamespaceCluster&) = delete;

  std::string address(std::size_t node) const;
  /// What to put before a command to run it on a node.
  std::vector<std::string> enter(std::size_t node) const;
  /// The network namespace as a file to open.
  std::string file(std::size_t node) const;
  /// Gives two nodes a second network, interface "eth1" with the addresses 10.78.N.1 (node 0), 10.78.N.2, ...
  void join_again(std::size_t a, std::size_t b) const;
  /// Takes the node off the bridge, as a pulled cable does.
  void cut(std::size_t node) const;

 private:
  std::string name(std::size_t node) const;
  std::string port(std::size_t node) const;
  std::string tag_;
  std::string subnet_;
  std::size_t nodes_;
};

}  // namespace troupe::testing
