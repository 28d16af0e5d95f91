#include "actors/remote/detail/ended_actors.hpp"

#include <caf/actor_proxy.hpp>
#include <caf/actor_registry.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/exit_reason.hpp>
#include <caf/sec.hpp>
#include <cstring>

#include "actors/remote/detail/context.hpp"

namespace troupe::remote {
namespace {

/// The most in one message: they take more memory than the handles in the message.
constexpr std::size_t kMostEnded = 1 << 20;

class EndedActor final : public caf::actor_proxy {
 public:
  explicit EndedActor(caf::actor_config& config) : actor_proxy(config) {}
  void enqueue(caf::mailbox_element_ptr message, caf::execution_unit*) override {
    answer(message->sender, message->mid, caf::make_error(caf::sec::request_receiver_down));
  }
  void kill_proxy(caf::execution_unit* context, caf::error reason) override { cleanup(std::move(reason), context); }
};

}  // namespace

EndedActors::~EndedActors() {
  for (const auto& actor : made_)  // CAF then removes it from the registry
    static_cast<EndedActor*>(actor->get())->kill_proxy(system_.dummy_execution_unit(), caf::exit_reason::unknown);
}

bool EndedActors::note(std::uint64_t number, std::span<const std::byte> next) {
  const bool is_actor = number != caf::invalid_actor_id && !own_node_.empty() && next.size() >= own_node_.size() &&
                        std::memcmp(next.data(), own_node_.data(), own_node_.size()) == 0;
  if (!is_actor || system_.registry().get(number)) return true;
  if (made_.size() == kMostEnded) return false;
  caf::actor_config config;
  made_.push_back(
      caf::make_actor<EndedActor, caf::strong_actor_ptr>(number, caf::node_id{system_.node()}, &system_, config));
  system_.registry().put(number, made_.back());
  return true;
}

std::vector<std::byte> EndedActors::bytes_of(caf::actor_system& system) {
  std::vector<char> bytes;
  caf::binary_serializer sink(system, bytes);
  caf::node_id node = system.node();
  if (!node || sink(node)) return {};
  const auto* const first = reinterpret_cast<const std::byte*>(bytes.data());
  return {first, first + bytes.size()};
}

}  // namespace troupe::remote
