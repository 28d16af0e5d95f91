#pragma once

#include <caf/actor.hpp>
#include <caf/actor_addr.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/expected.hpp>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/group/detail/messages.hpp"
#include "actors/group/detail/peer_table.hpp"

namespace troupe::group {

/// Spawns actors for other processes, and ends them when the group ends. Peer 0's agent also knows which processes
/// have not finished yet.
class ProcessAgent final : public caf::event_based_actor {
 public:
  ProcessAgent(caf::actor_config& config, std::shared_ptr<const PeerTable> peer_table);
  const char* name() const override { return "process agent"; }
  void on_exit() override;

 private:
  caf::behavior make_behavior() override;
  /// This process's part of an all_gather, until every process has asked for it.
  struct Offered {
    std::string what;
    std::vector<char> bytes;
    std::uint32_t asked = 0;
  };
  struct Asked {  // a question that came before there was an offer
    std::string what;
    caf::response_promise answer;
  };
  caf::expected<std::vector<char>> give(std::uint64_t number, const std::string& what);
  /// Spawns an actor that accepts `takes`: the message types of the handle that the requester wants.
  caf::expected<caf::actor> spawn_here(const std::string& type, const caf::message& args,
                                       const std::set<std::string>& takes);
  void offer(std::uint64_t number, Offered offered);
  caf::result<std::vector<char>> gather(std::uint64_t number, const std::string& what);
  caf::result<Unfinished> finish(std::uint32_t peer, std::uint64_t within_ms);
  void watch_others();
  void leaving(std::uint32_t peer);
  void ended_elsewhere(Peer peer);
  void lost(std::uint32_t peer);
  void silent(std::uint32_t peer, const std::string& why);
  void gone(std::uint32_t peer);
  void answer_waiting();
  Unfinished unfinished() const;
  caf::result<std::vector<std::string>> retire(std::uint64_t within_ms);
  std::vector<std::string> still_running() const;
  void ended(const caf::actor_addr& actor);

  const std::shared_ptr<const PeerTable> peer_table_;
  std::unordered_map<caf::actor_addr, std::string> spawned_;  // the type of each spawned actor that is alive
  std::map<std::uint64_t, Offered> offered_;
  std::map<std::uint64_t, std::vector<Asked>> asked_;
  std::optional<caf::response_promise> retiring_;
  std::set<std::uint32_t> done_;                            // finished, left or lost
  std::set<std::uint32_t> leaving_;                         // members of done_ that said they leave
  std::set<std::uint32_t> lost_;                            // members of done_ that were lost
  bool watches_ = false;                                    // whether it monitors the other agents
  std::map<std::uint32_t, caf::response_promise> waiting_;  // processes that have finished and wait for the others
};

}  // namespace troupe::group
