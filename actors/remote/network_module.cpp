#include "actors/remote/network_module.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <cstring>
#include <random>

#include "runtime/base/error.hpp"

namespace caf::net {

/// CAF 0.17 lets only its own networking modules set an actor system's node id. It declares this one as a friend, but
/// does not contain it. Defining a class with this name is sufficient; the module does nothing else.
class middleman final : public actor_system::module {
 public:
  explicit middleman(actor_system& system) : system_(system) {}

  static actor_system::module* make(actor_system& system, detail::type_list<>) { return new middleman(system); }

  /// Runs after io::middleman's, if that is loaded too: CAF initializes modules in the order of their ids.
  void init(actor_system_config&) override {
    std::random_device entropy;
    node_id::default_data::host_id_type host;
    for (auto& byte : host) byte = static_cast<std::uint8_t>(entropy());
    auto id = make_node_id(entropy(), host);
    system_.node_.swap(id);
  }
  void start() override {}
  void stop() override {}
  id_t id() const override { return network_manager; }
  void* subtype_ptr() override { return this; }

 private:
  actor_system& system_;
};

}  // namespace caf::net

namespace troupe {
namespace {

struct PlainNodeId {
  std::uint32_t process = 0;
  caf::node_id::default_data::host_id_type host{};
};
static_assert(sizeof(PlainNodeId) == 24);

}  // namespace

void load_network_module(caf::actor_system_config& config) { config.load<caf::net::middleman>(); }

std::vector<std::byte> node_id_bytes(const caf::node_id& node) {
  TROUPE_CHECK(node && node->implementation_id() == caf::node_id::default_data::class_id, Code::invalid,
               "this actor system has no node id: call configure_remote(config) before it is made");
  const auto& data = static_cast<const caf::node_id::default_data&>(*node);
  const PlainNodeId plain{data.process_id(), data.host_id()};
  std::vector<std::byte> bytes(sizeof plain);
  std::memcpy(bytes.data(), &plain, sizeof plain);
  return bytes;
}

caf::node_id node_id_from(std::span<const std::byte> bytes) {
  PlainNodeId plain;
  TROUPE_CHECK(bytes.size() == sizeof plain, Code::corrupt, "a node id has ", sizeof plain, " bytes, not ",
               bytes.size());
  std::memcpy(&plain, bytes.data(), sizeof plain);
  TROUPE_CHECK(caf::node_id::default_data::valid(plain.host), Code::corrupt, "a node id must not consist of zeros");
  return caf::make_node_id(plain.process, plain.host);
}

}  // namespace troupe
