#include "apps/report/page.hpp"

#include <fmt/format.h>

#include <cmath>

#include "apps/report/figures.hpp"
#include "apps/report/page_style.hpp"
#include "apps/report/words.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/words.hpp"
#include "runtime/planning/planner.hpp"

namespace troupe::report {
namespace {

// Marks that failed_page() finds again. Text from outside cannot contain them, since it is escaped.
constexpr std::string_view kRefresh = "<!--refresh-->";
constexpr std::string_view kRefreshEnd = "<!--/refresh-->";
constexpr std::string_view kState = "<!--state-->";
constexpr std::string_view kStateEnd = "<!--/state-->";
constexpr std::string_view kRunningMark = "class=\"state running\"";
constexpr std::string_view kFailedMark = "class=\"state failed\"";

std::string state_text(RunState state, const std::string& text) {
  struct Word {
    const char* style;
    const char* name;
  };
  const Word word = state == RunState::running    ? Word{"running", "Running"}
                    : state == RunState::finished ? Word{"finished", "Finished"}
                    : state == RunState::stopped  ? Word{"stopped", "Stopped"}
                                                  : Word{"failed", "Failed"};
  return fmt::format("<p class=\"state {}\" role=\"status\"><b>{}</b>{}{}</p>", word.style, word.name,
                     text.empty() ? "" : ": ", escaped(text));
}

std::string state_detail(const RunRecord& record) {
  const std::string steps = fmt::format("{} of {} steps", grouped(record.last.step), grouped(record.last.steps));
  switch (record.state) {
    case RunState::running: return record.last.step == 0 ? "no step is done yet" : fmt::format("{} are done", steps);
    case RunState::finished:
      return record.last.step == 0 ? "no step was left to train" : fmt::format("{} are done", steps);
    case RunState::stopped: return fmt::format("on request, {} are done", steps);
    case RunState::failed: break;
  }
  return record.reason;
}

std::string card(const std::string& value, const std::string& name) {
  return fmt::format("<li><b>{}</b><span>{}</span></li>\n", escaped(value), escaped(name));
}

std::string cards(const RunRecord& record) {
  std::string out = "<ul class=\"cards\">\n";
  const EpochReport* best = nullptr;
  for (const EpochReport& epoch : record.epochs)
    if (epoch.test_accuracy && (best == nullptr || *epoch.test_accuracy > *best->test_accuracy)) best = &epoch;
  if (best != nullptr)
    out += card(fmt::format("{:.4f}", *best->test_accuracy), fmt::format("best test accuracy (epoch {})", best->epoch));
  if (!record.epochs.empty() && record.epochs.back().counted)
    out += card(fmt::format("{:.4g}", record.epochs.back().loss),
                fmt::format("training loss (epoch {})", record.epochs.back().epoch));
  const TracePoint& end = record.trace.points().back();
  if (end.samples > 0) {
    if (end.train_s > 0)
      out += card(grouped(static_cast<std::uint64_t>(std::llround(static_cast<double>(end.samples) / end.train_s))),
                  "samples/s, mean of all ranks together");
    out += card(grouped(end.samples), "samples trained");
    out += card(span_text(end.elapsed_s),
                fmt::format("since the first step, {} of it in training", span_text(end.train_s)));
  }
  if (record.plan)
    out += card(std::to_string(record.plan->world_size()), record.plan->world_size() == 1 ? "rank" : "ranks");
  return out + "</ul>\n";
}

std::string fact(const std::string& name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name), escaped(value));
}

std::string facts(const RunRecord& record) {
  std::string out = "<section><h2>The job</h2><table class=\"facts\"><tbody>\n";
  out += fact("configuration", record.configuration);
  out += fact("began", moment_text(record.begun));
  out += fact("device", record.device);
  if (record.plan) {
    const Plan& plan = *record.plan;
    out += fact("model", fmt::format("{}; {} parameters", plan.model, grouped(plan.parameters)));
    for (const GroupPlan& group : plan.groups)
      out += fact(plan.groups.size() == 1 ? "optimizer" : "optimizer of " + group.name, group.rule);
    out += fact("ranks", fmt::format("{} on {} node{}; gradients by {}", plan.world_size(), plan.nodes.size(),
                                     plan.nodes.size() == 1 ? "" : "s", name_of(plan.levels)));
    out +=
        fact("batch", fmt::format("{} a rank{}, {} a step{}", grouped(plan.batch), plan.measured ? " on average" : "",
                                  grouped(std::uint64_t{plan.batch} * plan.world_size()),
                                  plan.batches.empty() ? "" : ", at first"));
    out += fact("seed", fmt::format("{}{}", plan.seed, plan.deterministic ? ", deterministic" : ""));
    out += fact("plan", fmt::format("{:016x}", plan.hash()));
  }
  return out + "</tbody></table></section>\n";
}

/// The last measurements of each rank: how many samples it takes, how fast it computes, and how a step spends its time.
std::string ranks(const RunRecord& record) {
  if (record.epochs.empty() || record.epochs.back().ranks.empty()) return {};
  std::string out =
      "<section class=\"ranks\"><h2>Ranks</h2>\n<div class=\"scroll\"><table "
      "class=\"numbers\"><thead><tr><th>rank</th><th>samples a step</th><th>samples/s of its own</th>";
  for (std::size_t part = 0; part < kStepParts; ++part)
    out += fmt::format("<th>{}, ms</th>", name_of(static_cast<StepPart>(part)));
  out += "<th>steps it was last in</th></tr></thead><tbody>\n";
  const std::vector<RankShare>& all = record.epochs.back().ranks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    out += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td>", rank, grouped(all[rank].rows),
                       grouped(static_cast<std::uint64_t>(all[rank].samples_per_s)));
    for (const double ms : all[rank].step_ms) out += fmt::format("<td>{:.2f}</td>", ms);
    out += fmt::format("<td>{}</td></tr>\n", all[rank].last);
  }
  return out +
         "</tbody></table></div><p class=\"remark\">In the last steps before the newest line of the log. A rank's own "
         "rate is its samples over the time that it loads, computes and updates; waiting for others counts as "
         "exchange.</p></section>\n";
}

std::string settings(const RunRecord& record) {
  std::string out =
      "<section><h2>Settings</h2>\n<div class=\"scroll\"><table "
      "class=\"settings\"><thead><tr><th>key</th><th>value</th>"
      "<th>from</th></tr></thead><tbody>\n";
  for (const EffectiveValue& value : record.settings)
    out +=
        fmt::format("<tr{}><th>{}</th><td>{}</td><td>{}</td></tr>\n", value.origin == "default" ? "" : " class=\"own\"",
                    escaped(value.key), escaped(value.value), escaped(value.origin));
  return out + "</tbody></table></div></section>\n";
}

std::string generated_text(const RunRecord& record) {
  const EpochReport* const line = newest_text(record);
  if (line == nullptr) return {};
  return fmt::format("<section><h2>Text that the model generated after epoch {:g}</h2>\n<pre>{}</pre></section>\n",
                     line->epochs(), escaped(line->generated_text));
}

std::string notes(const RunRecord& record) {
  if (record.notes.empty()) return {};
  std::string out = "<section><h2>Notes of rank 0</h2>\n<ul class=\"notes\">\n";
  for (const std::string& note : record.notes) out += fmt::format("<li>{}</li>\n", escaped(note));
  return out + "</ul></section>\n";
}

std::string title_of(const RunRecord& record) {
  const std::string name = record.configuration.empty() ? "a run" : record.configuration;
  if (name.size() <= 80) return name;
  std::size_t from = name.size() - 79;
  while (from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0) == 0x80) ++from;  // within a letter
  return "…" + name.substr(from);
}

/// Replaces the text between two marks; false if they are not there.
bool replace_between(std::string& page, std::string_view begin, std::string_view end, const std::string& text) {
  const std::size_t from = page.find(begin);
  if (from == std::string::npos) return false;
  const std::size_t to = page.find(end, from);
  if (to == std::string::npos) return false;
  page.replace(from + begin.size(), to - from - begin.size(), text);
  return true;
}

}  // namespace

std::string page_of(const RunRecord& record) {
  const std::string title = escaped(title_of(record));
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "{}{}{}\n<title>{} · troupe</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
      kRefresh, record.state == RunState::running ? "<meta http-equiv=\"refresh\" content=\"10\">" : "", kRefreshEnd,
      title, kPageStyle);
  out += fmt::format("<h1>{}</h1>\n<p class=\"lead\">{}</p>\n", title, escaped(record.data));
  out += fmt::format("{}{}{}\n", kState, state_text(record.state, state_detail(record)), kStateEnd);
  out += cards(record);
  const std::string figures = loss_figure(record) + accuracy_figure(record) + rate_figure(record) +
                              loss_scale_figure(record) + throughput_figure(record) + shares_figure(record);
  if (!figures.empty()) out += "<div class=\"figures\">\n" + figures + "</div>\n";
  out +=
      generated_text(record) + split_section(record) + ranks(record) + facts(record) + notes(record) + settings(record);
  if (record.plan) out += "<section><h2>Plan</h2>\n<pre>" + escaped(describe(*record.plan)) + "</pre></section>\n";
  out += fmt::format("<footer>Written by troupe at {}.</footer>\n</main>\n</body>\n</html>\n",
                     moment_text(record.written));
  return out;
}

std::optional<std::string> failed_page(std::string_view page, const std::string& reason) {
  std::string out{page};
  if (out.find(kRunningMark) == std::string::npos && out.find(kFailedMark) == std::string::npos) return std::nullopt;
  if (!replace_between(out, kRefresh, kRefreshEnd, "")) return std::nullopt;
  if (!replace_between(out, kState, kStateEnd, state_text(RunState::failed, reason))) return std::nullopt;
  return out;
}

}  // namespace troupe::report
