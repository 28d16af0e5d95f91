#include "tools/bench/group/measure.hpp"

#include <algorithm>
#include <iostream>
#include <numeric>

#include "runtime/base/error.hpp"
#include "tools/bench/say.hpp"
#include "tools/crew/line.hpp"

namespace troupe::bench {
namespace {

/// If no message arrives for this long, none is in transit.
constexpr std::chrono::milliseconds kQuiet{200};

CrewPlan plan_of(const GroupRun& run) {
  const GroupCase& what = run.what;
  CrewPlan plan{
      .name = "the measured group", .patience = std::chrono::seconds(what.each.patience_s), .nodes = run.nodes.get()};
  for (std::uint32_t rank = 0; rank < what.processes; ++rank) {
    MemberCase each = what.each;
    if (each.transport == "tcp") each.device = run.nodes ? Namespaces::device() : "lo";
    if (!what.cpus.empty()) each.cpu = what.cpus[rank % what.cpus.size()];
    plan.roles.push_back(each);
  }
  return plan;
}

}  // namespace

GroupRun::GroupRun(Blocking& thread, const rtrun::Signals& taken, const GroupCase& chosen)
    : blocking(thread), signals(taken), what(chosen) {
  if (what.between == "namespaces") nodes = std::make_unique<Namespaces>(blocking, what.processes);
}

void GroupRun::say_round(std::uint32_t rounds) const { say(text("group: round ", rounds, " of ", what.rounds)); }

GroupCrew::GroupCrew(const GroupRun& run) : Crew(run.signals, plan_of(run)), blocking_(run.blocking) {
  await_all(blocking_, "joined");
}

std::vector<std::uint32_t> GroupCrew::everyone() const {
  std::vector<std::uint32_t> all(size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void GroupCrew::talk(const std::vector<std::uint32_t>& members) {
  for (const std::uint32_t member : members) {
    std::vector<std::uint32_t> with;
    std::copy_if(members.begin(), members.end(), std::back_inserter(with), [&](auto other) { return other != member; });
    tell(member, {{"do", "talk"}, {"with", with}});
  }
  for (const std::uint32_t member : members) await(blocking_, member, "talking", patience());
}

void GroupCrew::hush() {
  ask_all(blocking_, {{"do", "hush"}}, "hushed");
  const auto heard = [&] {
    std::vector<std::uint64_t> counts;
    for (const auto& count : ask_all(blocking_, {{"do", "count"}}, "count")) counts.push_back(count.at("messages"));
    return counts;
  };
  const Deadline deadline = patience();
  for (auto before = heard();;) {
    rest(blocking_, kQuiet);
    const auto now = heard();
    if (now == before) return;
    TROUPE_CHECK(!deadline.passed(), Code::timeout, "messages of the measured group do not come to an end");
    before = now;
  }
}

void GroupCrew::watch(std::uint32_t member, std::uint32_t peer) {
  ask(blocking_, member, {{"do", "watch"}, {"peer", peer}}, "watching");
}

std::uint64_t GroupCrew::messages_heard(std::uint32_t member) {
  return ask(blocking_, member, {{"do", "count"}}, "count").at("messages");
}

/// A process that counts another one as lost reports it, and has done so before it answers how many messages it
/// received.
std::size_t GroupCrew::further_losses(std::uint32_t survivor) {
  await(blocking_, survivor, "lost", patience());
  messages_heard(survivor);
  return said(survivor, "down").size() + said(survivor, "lost").size();
}

void GroupCrew::say_losses() const {
  for (const std::uint32_t member : everyone()) {
    for (const auto& lost : said(member, "lost")) {
      say(text("group: ", milliseconds_since(begun(), lost.at("at")) / 1000, " s after the start process ", member,
               " lost process ", lost.at("peer").dump(), ": ", lost.at("why").get<std::string>()));
    }
  }
}

bool GroupCrew::stop() {
  const auto within = std::chrono::duration_cast<std::chrono::milliseconds>(patience().left() * 9 / 10);
  const auto reports = ask_all(blocking_, {{"do", "stop"}, {"within_ms", within.count()}}, "stopped");
  bool clean = true;
  for (const std::uint32_t member : everyone()) {
    if (reports[member].at("clean").get<bool>()) continue;
    say(text("group: process ", member, " did not leave clean: ", reports[member].at("text").get<std::string>()));
    clean = false;
  }
  return clean;
}

Findings::Findings(const GroupCase& what) : line{{"bench", "group"}, {"what", what.what}}, what_(what) {
  if (what.what == "silence") line["how"] = what.how;
  line["between"] = what.between;
  line["transport"] = what.each.transport;
  line["processes"] = what.processes;
  if (what.what != "crowd") line["dead_ms"] = what.each.dead_ms;
}

Findings::~Findings() {
  std::vector<std::vector<std::string>> rows{{what_.what, "median", "p99", "max"}};
  for (const auto& [name, values] : spreads_) {
    const auto figures = line[name] = values.json();
    rows.push_back({name, figures["median"].dump(), figures["p99"].dump(), figures["max"].dump()});
  }
  std::cout << line.dump() << std::endl;
  if (what_.table) std::cerr << table_of(rows, 24, 10) << std::flush;
}

Spread& Findings::spread(const std::string& name) {
  line[name];  // so that fields keep this order
  return spreads_[name];
}

}  // namespace troupe::bench
