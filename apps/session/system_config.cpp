#include "apps/session/system_config.hpp"

#include "actors/exchange/messages.hpp"
#include "actors/group/registration.hpp"
#include "actors/messages.hpp"
#include "apps/session/session.hpp"

namespace troupe {

SystemConfig::SystemConfig(std::size_t workers) {
  set("scheduler.max-threads", workers);
  configure_group(*this);
  configure_session(*this);
}

void configure_session(caf::actor_system_config& config) {
  configure_exchange(config);
  add_messages(config, MessageName<JoinView>{"troupe.JoinView"}, MessageName<ViewBegins>{"troupe.ViewBegins"},
               MessageName<MemberFinished>{"troupe.MemberFinished"}, MessageName<LeaveView>{"troupe.LeaveView"},
               MessageName<MemberLost>{"troupe.MemberLost"}, MessageName<TestPart>{"troupe.TestPart"},
               MessageName<PartSaved>{"troupe.PartSaved"}, MessageName<JoinLedger>{"troupe.JoinLedger"},
               MessageName<LedgerUpdate>{"troupe.LedgerUpdate"}, MessageName<RankTimes>{"troupe.RankTimes"},
               MessageName<SlotLent>{"troupe.SlotLent"}, MessageName<SlotFilled>{"troupe.SlotFilled"},
               MessageName<JoinSteps>{"troupe.JoinSteps"}, MessageName<HoldSteps>{"troupe.HoldSteps"},
               MessageName<StepsHeld>{"troupe.StepsHeld"}, MessageName<StepOrder>{"troupe.StepOrder"},
               MessageName<EndRequest>{"troupe.EndRequest"}, MessageName<RankSums>{"troupe.RankSums"},
               MessageName<RankDigest>{"troupe.RankDigest"}, MessageName<RankValues>{"troupe.RankValues"},
               MessageName<EvaluationVerdict>{"troupe.EvaluationVerdict"});
}

void check_knows_sessions(const caf::actor_system_config& config) {
  TROUPE_CHECK(config.value_factories_by_name.count("troupe.JoinView") > 0, Code::invalid,
               "SessionOptions::group: its actor system does not know the messages of sessions; call "
               "configure_session(config) after configure_group(config) in every process");
}

}  // namespace troupe
