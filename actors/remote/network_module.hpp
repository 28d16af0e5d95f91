#pragma once

#include <caf/node_id.hpp>
#include <cstddef>
#include <span>
#include <vector>

namespace caf {
class actor_system_config;
}

namespace troupe {

/// Gives every actor system made from `config` a random node id, so that its actors can be distinguished from those of
/// other systems, in this process or elsewhere. See docs/adr/0001-node-identity-through-the-network-module.md.
void load_network_module(caf::actor_system_config& config);

/// A node id as bytes, for peers.
std::vector<std::byte> node_id_bytes(const caf::node_id& node);
/// The opposite conversion. Throws Error{corrupt} if the bytes were not made by node_id_bytes().
caf::node_id node_id_from(std::span<const std::byte> bytes);

}  // namespace troupe
