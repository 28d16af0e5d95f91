// What doctor finds, and by which rules.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/doctor.hpp"
#include "tools/rttopo/answers.hpp"

namespace troupe::rttopo {
namespace {

using namespace topology;
using nlohmann::ordered_json;

int print_rules(bool json, std::ostream& out) {
  if (!json) {
    for (const RuleName& rule : doctor_rules()) out << fmt::format("{:<22} {}\n", rule.id, rule.about);
    return 0;
  }
  ordered_json all = ordered_json::array();
  for (const RuleName& rule : doctor_rules()) all.push_back({{"rule", rule.id}, {"about", rule.about}});
  print({{"schema", "troupe.doctor_rules"}, {"version", 1}, {"rules", all}}, out);
  return 0;
}

/// Prints a finding that is the same for several machines once.
void print_findings(const std::vector<Finding>& findings, std::size_t machines, std::ostream& out, bool color) {
  using Text = std::tuple<std::string, std::string, std::string>;  // with one rule goes one severity
  std::map<Text, std::vector<std::string>> hosts;
  const auto key_of = [](const Finding& each) { return Text{each.rule, each.evidence, each.cure}; };
  for (const Finding& each : findings) hosts[key_of(each)].push_back(each.host);
  for (const Finding& each : findings) {
    const auto at = hosts.find(key_of(each));
    if (at == hosts.end()) continue;
    const bool red = color && each.severity == Severity::error;
    out << control(red ? "\x1b[31;1m" : "") << name_of(each.severity) << control(red ? "\x1b[0m" : "") << "  "
        << each.rule << "  "
        << (at->second.size() == 1          ? each.host
            : at->second.size() == machines ? text("on ", machines, " machines")
                                            : text("on ", at->second.size(), " machines (", joined(at->second), ')'))
        << ": " << each.evidence << "\n    cure: " << each.cure << '\n';
    hosts.erase(at);
  }
}

/// How many rules could be applied; their names if they are few.
std::string rules_text(const std::vector<RuleName>& applied, std::size_t machines) {
  constexpr std::size_t kFew = 4;
  const std::size_t all = doctor_rules().size();
  const std::string where = machines == 1 ? "" : text(" to ", machines, " machines");
  if (applied.empty() || applied.size() > kFew)
    return text(applied.size(), " of ", all, " rules could be applied", where);
  std::vector<std::string> names;
  for (const RuleName& rule : applied) names.emplace_back(rule.id);
  return text("Only ", joined(names, " and "), " could be applied", where, ", the other ", all - applied.size(),
              " rules lack information");
}

}  // namespace

int doctor(const CommandLine& line, std::ostream& out, bool color) {
  if (line.rules) return print_rules(line.json, out);
  Blocking blocking = Blocking::on_thread("main");
  const std::vector<Machine> machines = machines_of(nodes_of(line, &blocking));
  const std::vector<Finding> findings = examine(machines);
  const std::vector<RuleName> applied = applied_rules(machines);
  const bool bad = std::ranges::any_of(findings, [](const Finding& f) { return f.severity != Severity::note; });
  const bool error = std::ranges::any_of(findings, [](const Finding& f) { return f.severity == Severity::error; });
  if (line.json) {
    ordered_json ids = ordered_json::array();
    for (const RuleName& rule : applied) ids.push_back(rule.id);
    ordered_json all = ordered_json::array();
    for (const Finding& each : findings)
      all.push_back({{"rule", each.rule},
                     {"severity", name_of(each.severity)},
                     {"host", each.host},
                     {"evidence", each.evidence},
                     {"cure", each.cure}});
    print({{"schema", "troupe.doctor"},
           {"version", 1},
           {"machines", machines.size()},
           {"applied", ids},
           {"findings", all}},
          out);
    return bad ? 1 : 0;
  }
  print_findings(findings, machines.size(), out, color);
  out << (findings.empty() ? "" : "\n") << rules_text(applied, machines.size()) << "; "
      << (error             ? "something is wrong"
          : bad             ? "something may be wrong"
          : applied.empty() ? "whether something is wrong is not known, since the rules need more information"
                            : text(applied.size() == 1 ? "it" : "they", " found nothing wrong"))
      << ".\n";
  return bad ? 1 : 0;
}

}  // namespace troupe::rttopo
