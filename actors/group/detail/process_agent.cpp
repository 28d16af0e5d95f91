#include "actors/group/detail/process_agent.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/deep_to_string.hpp>
#include <caf/sec.hpp>
#include <chrono>
#include <utility>

#include "actors/caf_error.hpp"
#include "actors/group/group.hpp"
#include "runtime/base/words.hpp"

namespace troupe::group {
namespace {

std::string known_types(const caf::actor_system_config& config) {
  std::set<std::string> sorted;
  for (const auto& [type, factory] : config.actor_factories) sorted.insert(type);
  return sorted.empty() ? "none" : joined(sorted);
}

/// The error of spawn_here, with the code that Group::spawn_at throws.
Status described(const caf::error& error) {
  const Status status = from_caf(error);
  if (error.category() != caf::atom("system") || !error.context().match_elements<std::string>()) return status;
  const bool arguments = error == caf::sec::cannot_spawn_actor_from_arguments;
  return {arguments ? Code::invalid : Code::unsupported, error.context().get_as<std::string>(0)};
}

}  // namespace

ProcessAgent::ProcessAgent(caf::actor_config& config, std::shared_ptr<const PeerTable> peer_table)
    : event_based_actor(config), peer_table_(std::move(peer_table)) {
  set_down_handler([this](const caf::down_msg& down) {
    const auto peer = peer_table_->peer_of(down.source.node());
    if (peer && *peer != peer_table_->self()) return ended_elsewhere(*peer);
    ended(down.source);
  });
}

void ProcessAgent::on_exit() {  // promises keep this actor alive
  const caf::error why = to_caf(Status{Code::aborted, "its process has left the group"});
  for (auto& [peer, request] : waiting_) request.deliver(why);
  waiting_.clear();
  for (auto& [number, all] : asked_)
    for (Asked& asked : all) asked.answer.deliver(why);
  asked_.clear();
  if (retiring_) retiring_->deliver(why);
  retiring_.reset();
}

caf::behavior ProcessAgent::make_behavior() {
  return {
      [this](Group::Spawn, const std::string& type, const caf::message& args) -> caf::result<caf::actor> {
        auto made = spawn_here(type, args, {});
        if (made) return std::move(*made);
        return to_caf(described(made.error()));
      },
      [this](Group::Spawn, const std::string& type, const caf::message& args,
             const std::set<std::string>& takes) -> caf::result<caf::actor> { return spawn_here(type, args, takes); },
      [this](Offer, std::uint64_t number, const std::string& what, std::vector<char>& bytes) {
        offer(number, {what, std::move(bytes)});
      },
      [this](Gather, std::uint64_t number, const std::string& what) { return gather(number, what); },
      [this](Finish, std::uint32_t peer, std::uint64_t within_ms) { return finish(peer, within_ms); },
      [this](Leaving, std::uint32_t peer) { leaving(peer); },
      [this](Lost, std::uint32_t peer) { lost(peer); },
      [this](Silent, std::uint32_t peer, const std::string& why) { silent(peer, why); },
      [this](Overdue, std::uint32_t peer) {
        auto entry = waiting_.extract(peer);
        if (!entry.empty()) entry.mapped().deliver(unfinished());
      },
      [this](Retire, std::uint64_t within_ms) { return retire(within_ms); },
      [this](Overdue) {
        if (retiring_) retiring_->deliver(still_running());
        retiring_.reset();
      },
  };
}

caf::expected<caf::actor> ProcessAgent::spawn_here(const std::string& type, const caf::message& args,
                                                   const std::set<std::string>& takes) {
  const std::string here = peer_table_->describe(peer_table_->self());
  if (retiring_) return to_caf(Status{Code::aborted, text(here, " is leaving the group")});
  try {
    auto made = system().spawn<caf::actor>(type, args, nullptr, true, &takes);
    if (made) {
      spawned_.emplace(made->address(), type);
      monitor(*made);
      return *made;
    }
    if (made.error() == caf::sec::cannot_spawn_actor_from_arguments) {
      return caf::make_error(caf::sec::cannot_spawn_actor_from_arguments,
                             text("the actor type \"", type, "\" at ", here, " is not spawned from ",
                                  caf::to_string(args), ": number or types differ from what it is registered with"));
    }
    if (made.error() == caf::sec::unexpected_actor_messaging_interface) {
      return caf::make_error(caf::sec::unexpected_actor_messaging_interface,
                             text("actors of the type \"", type, "\" at ", here,
                                  " do not take the messages of the handle that was asked for; use a handle of the "
                                  "type that it is registered with"));
    }
    if (made.error() != caf::sec::unknown_type) return made.error();
    return caf::make_error(caf::sec::unknown_type, text("no actor type \"", type, "\" is registered at ", here,
                                                        " (there are: ", known_types(system().config()),
                                                        "); call register_actor in every process before it joins"));
  } catch (const Error& error) {
    return to_caf(Status{error.code(), text("spawning a \"", type, "\" at ", here, ": ", error.what())});
  } catch (const std::exception& error) {
    return to_caf(Status{Code::invalid, text("spawning a \"", type, "\" at ", here, " threw: ", error.what())});
  }
}

void ProcessAgent::offer(std::uint64_t number, Offered offered) {
  offered_.emplace(number, std::move(offered));
  const auto asked = asked_.extract(number);
  if (asked.empty()) return;
  for (Asked& one : asked.mapped()) {
    auto given = give(number, one.what);
    if (given)
      one.answer.deliver(std::move(*given));
    else
      one.answer.deliver(std::move(given.error()));
  }
}

caf::result<std::vector<char>> ProcessAgent::gather(std::uint64_t number, const std::string& what) {
  if (offered_.count(number) > 0) return give(number, what);
  asked_[number].push_back({what, make_response_promise()});
  return caf::delegated<std::vector<char>>{};
}

/// The answer to one process; when all have asked, the offer is removed.
caf::expected<std::vector<char>> ProcessAgent::give(std::uint64_t number, const std::string& what) {
  Offered& offered = offered_.at(number);
  caf::expected<std::vector<char>> given = offered.bytes;
  if (offered.what != what) given = to_caf(Status{Code::invalid, text("it gathers '", offered.what, "' meanwhile")});
  if (++offered.asked == peer_table_->size()) offered_.erase(number);
  return given;
}

caf::result<Unfinished> ProcessAgent::finish(std::uint32_t peer, std::uint64_t within_ms) {
  if (peer >= peer_table_->size()) return to_caf(Status{Code::corrupt, text("there is no peer ", peer)});
  waiting_[peer] = make_response_promise();
  if (within_ms > 0) delayed_send(this, std::chrono::milliseconds(within_ms), Overdue::value, peer);
  watch_others();
  gone(peer);
  return caf::delegated<Unfinished>{};
}

/// Monitors the other agents: their DOWN messages arrive however their process's death is found out.
void ProcessAgent::watch_others() {
  if (std::exchange(watches_, true)) return;
  for (std::uint32_t peer = 0; peer < peer_table_->size(); ++peer) {
    if (Peer{peer} == peer_table_->self()) continue;
    if (const caf::actor other = peer_table_->agent(Peer{peer})) monitor(other);
  }
}

void ProcessAgent::leaving(std::uint32_t peer) {
  if (peer >= peer_table_->size() || Peer{peer} == peer_table_->self()) return;
  if (!leaving_.insert(peer).second) return;
  peer_table_->report_leaving(Peer{peer});
  if (const caf::actor its = peer_table_->agent(Peer{peer})) monitor(its);
  gone(peer);
}

void ProcessAgent::ended_elsewhere(Peer peer) {
  if (leaving_.count(peer.value) == 0) return lost(peer.value);
  peer_table_->report_left(peer);
}

void ProcessAgent::lost(std::uint32_t peer) {
  if (peer < peer_table_->size() && done_.count(peer) == 0) lost_.insert(peer);
  gone(peer);
}

void ProcessAgent::silent(std::uint32_t peer, const std::string& why) {
  if (peer >= peer_table_->size() || Peer{peer} == peer_table_->self() || done_.count(peer) > 0) return;
  if (peer_table_->self() == Peer{0}) {
    for (std::uint32_t other = 1; other < peer_table_->size(); ++other) {
      if (other == peer || done_.count(other) > 0) continue;
      if (const caf::actor its = peer_table_->agent(Peer{other})) send(its, Silent::value, peer, why);
    }
  } else {
    peer_table_->report_silent(Peer{peer}, Status{Code::peer_lost, why});
  }
  lost(peer);
}

void ProcessAgent::gone(std::uint32_t peer) {
  if (peer < peer_table_->size()) done_.insert(peer);
  if (done_.size() == peer_table_->size()) answer_waiting();
}

void ProcessAgent::answer_waiting() {
  for (auto& [number, request] : waiting_) request.deliver(unfinished());
  waiting_.clear();
}

Unfinished ProcessAgent::unfinished() const {
  Unfinished rest{.running = {}, .lost = {lost_.begin(), lost_.end()}};
  for (std::uint32_t peer = 0; peer < peer_table_->size(); ++peer) {
    if (done_.count(peer) == 0) rest.running.push_back(peer);
  }
  return rest;
}

caf::result<std::vector<std::string>> ProcessAgent::retire(std::uint64_t within_ms) {
  answer_waiting();  // no other process keeps the list
  if (spawned_.empty()) return std::vector<std::string>{};
  for (const auto& [address, type] : spawned_) {
    if (const auto actor = caf::actor_cast<caf::actor>(address)) send_exit(actor, caf::exit_reason::user_shutdown);
  }
  retiring_ = make_response_promise();
  delayed_send(this, std::chrono::milliseconds(within_ms), Overdue::value);
  return caf::delegated<std::vector<std::string>>{};
}

std::vector<std::string> ProcessAgent::still_running() const {
  std::vector<std::string> names;
  for (const auto& [address, type] : spawned_) names.push_back(text(type, " (actor ", address.id(), ")"));
  return names;
}

void ProcessAgent::ended(const caf::actor_addr& actor) {
  spawned_.erase(actor);
  if (!retiring_ || !spawned_.empty()) return;
  retiring_->deliver(std::vector<std::string>{});
  retiring_.reset();
}

}  // namespace troupe::group
