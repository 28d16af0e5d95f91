#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/crew/namespaces.hpp"

namespace troupe::testing {

/// Why network namespaces cannot be made here; empty when they can.
std::string why_no_namespaces();

/// Network namespaces joined by a bridge, one for each node of a pretended cluster.
class NamespaceCluster {
 public:
  explicit NamespaceCluster(std::size_t nodes);

  std::string address(std::size_t node) const { return nodes_.address(node); }
  /// What to put before a command to run it on a node.
  std::vector<std::string> enter(std::size_t node) const { return {"ip", "netns", "exec", nodes_.name(node)}; }
  /// The network namespace as a file to open.
  std::string file(std::size_t node) const { return "/run/netns/" + nodes_.name(node); }
  /// Gives two nodes a second network, interface "eth1" with the addresses 10.78.N.1 (node 0), 10.78.N.2, ...
  void join_again(std::size_t a, std::size_t b) const;
  /// Takes the node off the bridge, as a pulled cable does.
  void cut(std::size_t node) const { nodes_.link(node, false); }

 private:
  crew::Namespaces nodes_;
};

}  // namespace troupe::testing
