#include "apps/session/system_config.hpp"

#include "actors/exchange/messages.hpp"
#include "actors/messages.hpp"
#include "actors/remote/remote_actors.hpp"

namespace troupe {

SystemConfig::SystemConfig(std::size_t workers) {
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", workers);
  configure_remote(*this);
  configure_exchange(*this);
  add_messages(*this, MessageName<JoinView>{"troupe.JoinView"}, MessageName<ViewStands>{"troupe.ViewStands"},
               MessageName<MemberFinished>{"troupe.MemberFinished"}, MessageName<LeaveView>{"troupe.LeaveView"},
               MessageName<MemberLost>{"troupe.MemberLost"}, MessageName<TestPart>{"troupe.TestPart"},
               MessageName<PartSaved>{"troupe.PartSaved"}, MessageName<JoinLedger>{"troupe.JoinLedger"},
               MessageName<LedgerNews>{"troupe.LedgerNews"}, MessageName<RankTimes>{"troupe.RankTimes"},
               MessageName<SlotLent>{"troupe.SlotLent"}, MessageName<SlotFilled>{"troupe.SlotFilled"},
               MessageName<JoinSteps>{"troupe.JoinSteps"}, MessageName<HoldSteps>{"troupe.HoldSteps"},
               MessageName<StepsHeld>{"troupe.StepsHeld"}, MessageName<StepOrder>{"troupe.StepOrder"},
               MessageName<EndWish>{"troupe.EndWish"}, MessageName<RankSums>{"troupe.RankSums"},
               MessageName<RankDigest>{"troupe.RankDigest"}, MessageName<RankValues>{"troupe.RankValues"},
               MessageName<EvaluationVerdict>{"troupe.EvaluationVerdict"});
}

std::uint64_t training_messages_hash() { return message_table_hash(SystemConfig{1}); }

}  // namespace troupe
