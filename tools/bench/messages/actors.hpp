#pragma once

#include <array>
#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/deserializer.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/serializer.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "actors/remote/remote_actors.hpp"
#include "runtime/compute/host_copies.hpp"
#include "tools/bench/messages/measures.hpp"
#include "tools/crew/endurance_load.hpp"
#include "tools/crew/measured_process.hpp"

// The actors that are measured; they are the same for every implementation.
namespace troupe::bench {

/// A message of 1 KB that is sent as its bytes, as a program would define one for frequent use.
struct Block {
  static constexpr const char* name = "troupe.bench.Block";
  std::array<char, 1024> bytes;  // not initialized: the code that makes a block fills it
  bool operator==(const Block&) const = default;
};

/// As one string, so that CAF's own networking does not serialize it byte by byte.
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Block& block) {
  if constexpr (std::is_base_of_v<caf::serializer, Inspector> || std::is_base_of_v<caf::deserializer, Inspector>) {
    return f.apply_raw(block.bytes.size(), block.bytes.data());
  } else {
    return f(caf::meta::type_name(Block::name));
  }
}

/// One of two ends that reach each other by remote actors, with memory for tensors. Threads: main.
class PairSide {
 public:
  static constexpr Peer kClient{0};
  static constexpr Peer kServer{1};

  /// Both ends construct theirs at the same time.
  PairSide(Blocking& blocking, const EndCase& what);

  Stage stage() { return {process_->system(), what_.impl == "scheduled" ? nullptr : &remote()}; }
  template <class Handle>
  void publish(const std::string& name, const Handle& actor) {
    process_->group().publish(name, actor);
  }
  caf::actor find(Blocking& blocking, const std::string& name, Clock::duration patience) {
    return process_->group().lookup(blocking, there_, name, Deadline::after(patience));
  }
  /// Ends together with the other side, when both have called it.
  void end(Blocking& blocking, Line& line);

  /// A tensor over the measured part of the arena, filled; equal at both ends.
  Tensor tensor();
  bool same(const Tensor& one, const Tensor& other);
  AddressSpace& space() noexcept { return space_; }
  /// Memory of this side; the other side has mapped it if arenas are measured.
  Arena& arena() noexcept { return *arena_; }
  /// Memory that the other end has mapped; only in a test of endurance, or if arenas are measured.
  Arena& lent() noexcept { return process_->group().arena(); }
  caf::actor_system& system() noexcept { return process_->system(); }
  RemoteActors& remote() const noexcept { return process_->remote(); }
  PeerCounters counters() const { return remote().counters(there_); }

 private:
  std::vector<std::byte> bytes_at(const Memory& memory);

  const EndCase what_;
  const Peer there_;
  AddressSpace space_;
  std::shared_ptr<Arena> own_;
  std::unique_ptr<Device> device_;    // null: tensors lie in the host's memory
  std::optional<HostCopies> copies_;  // with a device
  Memory apart_;                      // of the device, where the other end does not import it
  std::optional<MeasuredProcess> process_;
  Arena* arena_ = nullptr;
};

/// The actor at the other end for a case without tensors.
caf::actor spawn_far(const Stage& stage, const EndCase& what);
/// Measures such a case with the actor `far`.
Figures measure_near(Blocking& blocking, const Stage& stage, const EndCase& what, const caf::actor& far,
                     Clock::duration patience);

}  // namespace troupe::bench
