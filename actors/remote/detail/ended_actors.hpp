#pragma once

#include <caf/actor_control_block.hpp>
#include <caf/actor_system.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::remote {

/// Stands in for the actors of this process that had ended before a message with their handles arrived. CAF reads such
/// a handle as an empty one, and an actor that monitors an empty handle ends its process. As within one process, it
/// shall be a handle of an actor that has ended.
///
/// CAF finds the actors of this process in its registry, while it reads them. So an actor is made there for each that
/// is missing; when the message has been read, it ends. It lives as long as its handles. One thread.
class EndedActors {
 public:
  /// `own_node`: the bytes of this process's node id in a message (bytes_of). Both outlive this object.
  EndedActors(caf::actor_system& system, std::span<const std::byte> own_node) : system_(system), own_node_(own_node) {}
  ~EndedActors();
  EndedActors(const EndedActors&) = delete;
  EndedActors& operator=(const EndedActors&) = delete;

  /// To be called for every number of 64 bits that was read, with the bytes that follow: it is the id of an actor of
  /// this process if the node id follows. (If these bytes mean something else, an actor is made and ends unseen.) False
  /// if the message has too many of them.
  bool note(std::uint64_t number, std::span<const std::byte> next);

  static std::vector<std::byte> bytes_of(caf::actor_system& system);

 private:
  caf::actor_system& system_;
  const std::span<const std::byte> own_node_;
  std::vector<caf::strong_actor_ptr> made_;
};

}  // namespace troupe::remote
