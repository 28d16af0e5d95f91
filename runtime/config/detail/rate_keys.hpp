#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/compute/rules/rate_schedule.hpp"
#include "runtime/config/detail/schema.hpp"

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
               .help = "for step and exponential: epochs after which the rate is multiplied by factor, again and "
                       "again; 0: not given",
               .example = "30",
               .more = "Not together with every_samples.",
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
               .help = "for multi_step: epochs at which the rate is multiplied by factor, in ascending order",
               .example = "[30, 60, 80]",
               .more = "Not together with at_samples.",
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
               .help = "for step, multi_step and exponential: what the rate is multiplied by",
               .example = "0.1",
               .range = {0, 10, true},
               .store = store_factor<&RateSettings::factor>,
               .show = show_factor<&RateSettings::factor>},
    SettingKey{.name = "optimizer.rate.over_epochs",
               .kind = ValueKind::number,
               .help = "for polynomial, cosine and one_cycle: epochs until the end of the schedule; 0: the whole run",
               .example = "20",
               .more = "Not together with over_samples. After that the rate stays the same.",
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
               .help = "for polynomial: the exponent",
               .example = "2",
               .range = {0, 100, true},
               .store = store_factor<&RateSettings::power>,
               .show = show_factor<&RateSettings::power>},
    SettingKey{.name = "optimizer.rate.end_factor",
               .kind = ValueKind::number,
               .help = "for polynomial, cosine and one_cycle: rate at the end, as a fraction of the rate",
               .example = "0.01",
               .range = {0, 1},
               .store = store_factor<&RateSettings::end_factor>,
               .show = show_factor<&RateSettings::end_factor>},
    SettingKey{.name = "optimizer.rate.start_factor",
               .kind = ValueKind::number,
               .help = "for one_cycle: rate at the start, as a fraction of the rate",
               .example = "0.04",
               .range = {0, 1},
               .store = store_factor<&RateSettings::start_factor>,
               .show = show_factor<&RateSettings::start_factor>},
    SettingKey{.name = "optimizer.rate.rise",
               .kind = ValueKind::number,
               .help = "for one_cycle: part of the schedule in which the rate rises",
               .example = "0.3",
               .range = {0, 1},
               .store = store_factor<&RateSettings::rise>,
               .show = show_factor<&RateSettings::rise>},
    SettingKey{.name = "optimizer.rate.warmup_epochs",
               .kind = ValueKind::number,
               .help = "epochs in which the rate grows linearly to the schedule's value; 0: no warm-up",
               .example = "5",
               .more = "Not together with warmup_samples, nor with one_cycle, which rises by itself.",
               .range = {0, kMostEpochs},
               .store = store_epochs<&RateSettings::warmup>,
               .show = show_epochs<&RateSettings::warmup>},
    SettingKey{.name = "optimizer.rate.warmup_samples",
               .kind = ValueKind::integer,
               .help = "the same in samples of all ranks; 0: no warm-up",
               .example = "300000",
               .range = {0, kMostSamples},
               .store = store_samples<&RateSettings::warmup>,
               .show = show_samples<&RateSettings::warmup>},
    SettingKey{.name = "optimizer.rate.warmup_from",
               .kind = ValueKind::number,
               .help = "rate at the start of the warm-up, as a fraction of the rate",
               .example = "0.1",
               .more = "With scale = \"linear\" it begins with the unscaled rate instead.",
               .range = {0, 1},
               .store = store_factor<&RateSettings::warmup_from>,
               .show = show_factor<&RateSettings::warmup_from>},
    SettingKey{.name = "optimizer.rate.scale",
               .kind = ValueKind::choice,
               .help = "whether the rate grows with the number of samples in an update",
               .example = "\"linear\"",
               .more = "linear: the rate is multiplied by the number of samples in an update (those that all ranks "
                       "take in a step, times update.accumulate) and divided by reference_batch.",
               .choices = kRateScales,
               .store = [](Settings& s, const TomlValue& v) { s.rate.linear = v.text == "linear"; },
               .show = [](const Settings& s) { return quoted(s.rate.linear ? "linear" : "none"); }},
    SettingKey{
        .name = "optimizer.rate.reference_batch",
        .kind = ValueKind::integer,
        .help = "number of samples in an update for which the rate is used as written; 0: data.batch, that of one rank",
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
