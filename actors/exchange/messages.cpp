#include "actors/exchange/messages.hpp"

#include "actors/plain_messages.hpp"

namespace troupe {

void configure_exchange(caf::actor_system_config& config) {
  add_messages(config, MessageName<JoinHosting>{"troupe.JoinHosting"},
               MessageName<HostingJoined>{"troupe.HostingJoined"}, MessageName<LeaveHosting>{"troupe.LeaveHosting"},
               MessageName<ReadPart>{"troupe.ReadPart"}, MessageName<PushPart>{"troupe.PushPart"},
               MessageName<PulledPart>{"troupe.PulledPart"}, MessageName<AskHosting>{"troupe.AskHosting"},
               MessageName<HostingReport>{"troupe.HostingReport"});
  add_plain_messages(
      config, MessageName<SmallRead<2>>{"troupe.SmallRead2"}, MessageName<SmallPart<2>>{"troupe.SmallPart2"},
      MessageName<SmallRead<16>>{"troupe.SmallRead16"}, MessageName<SmallPart<16>>{"troupe.SmallPart16"},
      MessageName<SmallRead<64>>{"troupe.SmallRead64"}, MessageName<SmallPart<64>>{"troupe.SmallPart64"},
      MessageName<SmallRead<256>>{"troupe.SmallRead256"}, MessageName<SmallPart<256>>{"troupe.SmallPart256"});
}

}  // namespace troupe
