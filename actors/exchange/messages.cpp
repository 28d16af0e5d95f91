#include "actors/exchange/messages.hpp"

namespace troupe {

void configure_exchange(caf::actor_system_config& config) {
  add_messages_without_lists(
      config, MessageName<JoinHosting>{"troupe.JoinHosting"}, MessageName<HostingJoined>{"troupe.HostingJoined"},
      MessageName<LeaveHosting>{"troupe.LeaveHosting"}, MessageName<PullRequest>{"troupe.PullRequest"},
      MessageName<PushRequest>{"troupe.PushRequest"}, MessageName<PullReply>{"troupe.PullReply"},
      MessageName<AskHosting>{"troupe.AskHosting"}, MessageName<HostingReport>{"troupe.HostingReport"});
}

}  // namespace troupe
