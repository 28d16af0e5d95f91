#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/detail/config_schema.hpp"
#include "runtime/rules/rate_schedule.hpp"

// The keys of optimizer.rate's table, part of the schema (config_schema.cpp).
namespace troupe::detail {

inline constexpr std::array kRateShapes{Choice{"constant"},    Choice{"step"},       Choice{"multi_step"},
                                        Choice{"exponential"}, Choice{"polynomial"}, Choice{"cosine"},
                                        Choice{"one_cycle"}};
inline constexpr std::array kRateScales{Choice{"none"}, Choice{"linear"}};
inline constexpr double kMostSamples = 1e15;
inline constexpr double kMostEpochs = 1e6;

template <Stretch RateSettings::*kMember>
void store_samples(Settings& s, const TomlValue& v) {
  (s.rate.*kMember).samples = static_cast<std::uint64_t>(v.integer);
}
template <Stretch RateSettings::*kMember>
std::string show_samples(const Settings& s) {
  return std::to_string((s.rate.*kMember).samples);
}
template <Stretch RateSettings::*kMember>
void store_epochs(Settings& s, const TomlValue& v) {
  (s.rate.*kMember).epochs = v.number;
}
template <Stretch RateSettings::*kMember>
std::string show_epochs(const Settings& s) {
  return number_text((s.rate.*kMember).epochs);
}
template <double RateSettings::*kMember>
void store_factor(Settings& s, const TomlValue& v) {
  s.rate.*kMember = v.number;
}
template <double RateSettings::*kMember>
std::string show_factor(const Settings& s) {
  return number_text(s.rate.*kMember);
}

/// Lists of which one is given; the other stays empty.
inline std::string show_places(const Settings& s, bool of_epochs) {
  std::string out;
  for (const Stretch& place : s.rate.at) {
    if ((place.samples == 0) != of_epochs) continue;
    out += (out.empty() ? "" : ", ") + (of_epochs ? number_text(place.epochs) : std::to_string(place.samples));
  }
  return "[" + out + "]";
}

inline constexpr std::array kRateKeys{
    SettingKey{.name = "optimizer.rate.schedule",
               .kind = ValueKind::choice,
               .help = "how the rate changes with the samples that all ranks have taken",
               .example = "\"cosine\"",
               .more = "Formulas: docs/optimizers.md. The same at any number of ranks and after a resume.",
               .choices = kRateShapes,
               .store =
                   [](Settings& s, const TomlValue& v) {
                     const auto* at = std::ranges::find(kRateShapes, std::string_view{v.text}, &Choice::name);
                     s.rate.shape = static_cast<RateShape>(at - kRateShapes.begin());
                   },
               .show = [](const Settings& s) { return quoted(name_of(s.rate.shape)); }},
    SettingKey{.name = "optimizer.rate.every_epochs",
               .kind = ValueKind::number,
               .help = "of step and exponential: epochs per which the rate is multiplied by factor; 0: not given",
               .example = "30",
               .more = "This or every_samples.",
               .range = {0, kMostEpochs},
               .store = store_epochs<&RateSettings::every>,
               .show = show_epochs<&RateSettings::every>},
    SettingKey{.name = "optimizer.rate.every_samples",
               .kind = ValueKind::integer,
               .help = "the same in samples of all ranks; 0: not given",
               .example = "1000000",
               .range = {0, kMostSamples},
               .store = store_samples<&RateSettings::every>,
               .show = show_samples<&RateSettings::every>},
    SettingKey{.name = "optimizer.rate.at_epochs",
               .kind = ValueKind::numbers,
               .help = "of multi_step: epochs at which the rate is multiplied by factor, growing",
               .example = "[30, 60, 80]",
               .more = "This or at_samples.",
               .range = {0, kMostEpochs, true},
               .least_items = 0,
               .most_items = 100,
               .store =
                   [](Settings& s, const TomlValue& v) {
                     for (const TomlValue& item : v.items) s.rate.at.push_back({.epochs = item.number});
                   },
               .show = [](const Settings& s) { return show_places(s, true); }},
    SettingKey{.name = "optimizer.rate.at_samples",
               .kind = ValueKind::integers,
               .help = "the same in samples of all ranks",
               .example = "[1800000, 3600000]",
               .range = {1, kMostSamples},
               .least_items = 0,
               .most_items = 100,
               .store =
                   [](Settings& s, const TomlValue& v) {
                     for (const TomlValue& item : v.items)
                       s.rate.at.push_back({.samples = static_cast<std::uint64_t>(item.integer)});
                   },
               .show = [](const Settings& s) { return show_places(s, false); }},
    SettingKey{.name = "optimizer.rate.factor",
               .kind = ValueKind::number,
               .help = "of step, multi_step and exponential",
               .example = "0.1",
               .range = {0, 10, true},
               .store = store_factor<&RateSettings::factor>,
               .show = show_factor<&RateSettings::factor>},
    SettingKey{.name = "optimizer.rate.over_epochs",
               .kind = ValueKind::number,
               .help = "of polynomial, cosine and one_cycle: epochs until the end is reached; 0: the whole run",
               .example = "20",
               .more = "This or over_samples. After it the rate stays.",
               .range = {0, kMostEpochs},
               .store = store_epochs<&RateSettings::over>,
               .show = show_epochs<&RateSettings::over>},
    SettingKey{.name = "optimizer.rate.over_samples",
               .kind = ValueKind::integer,
               .help = "the same in samples of all ranks; 0: the whole run",
               .example = "1200000",
               .range = {0, kMostSamples},
               .store = store_samples<&RateSettings::over>,
               .show = show_samples<&RateSettings::over>},
    SettingKey{.name = "optimizer.rate.power",
               .kind = ValueKind::number,
               .help = "of polynomial",
               .example = "2",
               .range = {0, 100, true},
               .store = store_factor<&RateSettings::power>,
               .show = show_factor<&RateSettings::power>},
    SettingKey{.name = "optimizer.rate.end_factor",
               .kind = ValueKind::number,
               .help = "of polynomial, cosine and one_cycle: times the rate is the rate at the end",
               .example = "0.01",
               .range = {0, 1},
               .store = store_factor<&RateSettings::end_factor>,
               .show = show_factor<&RateSettings::end_factor>},
    SettingKey{.name = "optimizer.rate.start_factor",
               .kind = ValueKind::number,
               .help = "of one_cycle: times the rate is the rate at the start",
               .example = "0.04",
               .range = {0, 1},
               .store = store_factor<&RateSettings::start_factor>,
               .show = show_factor<&RateSettings::start_factor>},
    SettingKey{.name = "optimizer.rate.rise",
               .kind = ValueKind::number,
               .help = "of one_cycle: the part of it in which the rate rises",
               .example = "0.3",
               .range = {0, 1},
               .store = store_factor<&RateSettings::rise>,
               .show = show_factor<&RateSettings::rise>},
    SettingKey{.name = "optimizer.rate.warmup_epochs",
               .kind = ValueKind::number,
               .help = "epochs in which the rate grows, in a line, to what the schedule says; 0: none",
               .example = "5",
               .more = "This or warmup_samples; not with one_cycle, which rises by itself.",
               .range = {0, kMostEpochs},
               .store = store_epochs<&RateSettings::warmup>,
               .show = show_epochs<&RateSettings::warmup>},
    SettingKey{.name = "optimizer.rate.warmup_samples",
               .kind = ValueKind::integer,
               .help = "the same in samples of all ranks; 0: none",
               .example = "300000",
               .range = {0, kMostSamples},
               .store = store_samples<&RateSettings::warmup>,
               .show = show_samples<&RateSettings::warmup>},
    SettingKey{.name = "optimizer.rate.warmup_from",
               .kind = ValueKind::number,
               .help = "what times the rate a warm-up begins with",
               .example = "0.1",
               .more = "With scale = \"linear\" it begins with the unscaled rate instead.",
               .range = {0, 1},
               .store = store_factor<&RateSettings::warmup_from>,
               .show = show_factor<&RateSettings::warmup_from>},
    SettingKey{.name = "optimizer.rate.scale",
               .kind = ValueKind::choice,
               .help = "whether the rate grows with the samples of a step",
               .example = "\"linear\"",
               .more = "linear: times the samples of an update, those that all ranks take in a step times "
                       "update.accumulate, divided by "
                       "reference_batch.",
               .choices = kRateScales,
               .store = [](Settings& s, const TomlValue& v) { s.rate.linear = v.text == "linear"; },
               .show = [](const Settings& s) { return quoted(s.rate.linear ? "linear" : "none"); }},
    SettingKey{.name = "optimizer.rate.reference_batch",
               .kind = ValueKind::integer,
               .help = "samples of a step at which the rate is as written; 0: data.batch, of one rank",
               .example = "256",
               .more = "Only with scale = \"linear\".",
               .range = {0, 1e9},
               .store = [](Settings& s,
                           const TomlValue& v) { s.rate.reference_batch = static_cast<std::uint32_t>(v.integer); },
               .show = [](const Settings& s) { return std::to_string(s.rate.reference_batch); }},
};

/// A key that is given and means nothing, or one that is missing, beside the others.
struct RateContradiction {
  std::string_view key;  // of which the place is told
  std::string text;
};
/// What is wrong with optimizer.rate's table as a whole. `given(key)`: whether it stands anywhere; `shown(key)`: its
/// value and origin.
std::vector<RateContradiction> rate_contradictions(const Settings& settings,
                                                   const std::function<bool(std::string_view)>& given,
                                                   const std::function<std::string(std::string_view)>& shown);

}  // namespace troupe::detail
