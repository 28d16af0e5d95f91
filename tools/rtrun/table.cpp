#include "tools/rtrun/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

#include "runtime/base/words.hpp"

namespace troupe::rtrun {
namespace {

constexpr std::string_view kRule = "==========================================\n";

constexpr std::size_t width_of(std::string_view name) { return std::max<std::size_t>(10, name.size()); }

struct Column {
  std::string_view name;
  std::optional<double> (*value)(const EpochReport&);
  std::size_t width() const { return width_of(name); }
};

constexpr std::array<Column, 6> kColumns{{
    {"epoch", [](const EpochReport& r) -> std::optional<double> { return std::floor(r.epochs() * 1e4) / 1e4; }},
    {"main/loss", [](const EpochReport& r) { return r.known_loss(); }},
    {"validation/main/loss", [](const EpochReport& r) { return r.test_loss; }},
    {"main/accuracy", [](const EpochReport& r) { return r.known_accuracy(); }},
    {"validation/main/accuracy", [](const EpochReport& r) { return r.test_accuracy; }},
    {"elapsed_time", [](const EpochReport& r) -> std::optional<double> { return r.elapsed_s; }},
}};

std::string units_text(const std::vector<std::uint32_t>& units) {
  const bool equal = std::adjacent_find(units.begin(), units.end(), std::not_equal_to<>{}) == units.end();
  if (equal && !units.empty()) return fmt::to_string(units.front());
  return units.empty() ? "none" : fmt::format("{}", fmt::join(units, ", "));
}

/// ChainerMN's line for its MLP, and a line of the same form for other models.
std::string model_text(const Settings::Model& model) {
  if (!model.layers.empty()) return fmt::format("Model: {} layers", model.layers.size());
  if (model.name == "mlp") return fmt::format("Num unit: {}", units_text(model.units));
  if (model.name == "resnet") return fmt::format("Model: resnet of depth {}", model.depth);
  if (model.name == "gpt")
    return fmt::format("Model: gpt of depth {}, width {}, {} heads", model.depth, model.width, model.heads);
  return fmt::format("Model: {}", model.name);
}

/// The length of the run, in the unit of the setting that limits it.
std::string length_text(const Settings& settings) {
  if (settings.train.steps == 0) return fmt::format("Num epoch: {}", settings.train.epochs);
  return fmt::format("Num iteration: {} (train.steps)", grouped(settings.train.steps));
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  return text;
}

}  // namespace

std::string table_header(const std::vector<std::string>& values) {
  std::string line;
  for (const Column& column : kColumns) {
    if (!line.empty()) line += "  ";
    line += fmt::format("{:<{}}", column.name, column.width());
  }
  for (const std::string& name : values) line += fmt::format("  {:<{}}", name, width_of(name));
  return line + "\n";
}

std::string table_row(const EpochReport& report, const std::vector<std::string>& values) {
  std::string line;
  for (const Column& column : kColumns) {
    const auto value = column.value(report);
    line += fmt::format("{:<{}}  ", value ? fmt::format("{:g}", *value) : std::string{}, column.width());
  }
  for (const std::string& name : values) {
    const auto found = std::ranges::find(report.values, name, &ReportedValue::name);
    const std::string cell = found != report.values.end() ? fmt::format("{:g}", found->value) : std::string{};
    line += fmt::format("{:<{}}  ", cell, width_of(name));
  }
  return line + "\n";
}

std::string job_header(const Settings& settings, const Plan& plan) {
  std::set<std::string> devices;
  for (const RankPlan& rank : plan.ranks) devices.insert(rank.device);
  const std::string device = devices.empty() ? settings.placement.device : joined(devices);
  return fmt::format(
      "{0}Num process (COMM_WORLD): {1}\nUsing {2}\nUsing {3} communicator\n{4}\nNum Minibatch-size: {5}\n"
      "{6}\n{0}",
      kRule, plan.world_size(), upper(device), name_of(plan.levels), model_text(settings.model), settings.data.batch,
      length_text(settings));
}

}  // namespace troupe::rtrun
