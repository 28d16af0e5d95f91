#include <algorithm>
#include <array>

#include "runtime/base/words.hpp"
#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

using S = Settings;
using V = TomlValue;
using K = ValueKind;

constexpr double kMostSamples = 1e15;
constexpr double kMostEpochs = 1e6;

/// The words of optimizer.rule for the rules that fit.
template <class Fits>
std::vector<std::string_view> rules_that(Fits fits) {
  std::vector<std::string_view> words;
  for (const RuleEntry& rule : kRules) {
    if (!rule.word.empty() && fits(rule) && std::ranges::find(words, rule.word) == words.end())
      words.push_back(rule.word);
  }
  return words;
}

Takes rules() {
  Takes takes{.kind = K::choice};
  for (const std::string_view word : rules_that([](const RuleEntry&) { return true; })) takes.choices.push_back({word});
  return takes;
}

/// With a momentum, rmsprop later becomes another kind (with_momentum).
void store_rule(S& s, const V& v) {
  const auto at = std::ranges::find(kRules, std::string_view{v.text}, &RuleEntry::word);
  s.rule.kind = static_cast<RuleKind>(at - kRules.begin());
}
std::string show_rule(const S& s) { return in_quotes(entry_of(s.rule.kind).word); }

Beside rules_that_read(double Rule::*constant) {
  const auto reads_it = [&](const RuleEntry& rule) {
    return std::ranges::find(rule.reads, constant) != rule.reads.end();
  };
  return {"optimizer.rule", rules_that(reads_it), /*says_something_as_default=*/true};
}

/// "sgd: none; momentum: v; ..."
std::string state_text() {
  std::vector<std::string> rules;
  for (const RuleEntry& rule : kRules) {
    if (rule.word.empty()) continue;
    const auto& [first, second] = rule.state;
    rules.push_back(text(rule.word, rule.word == rule.name ? ": " : " with momentum: ", first.empty() ? "none" : first,
                         second.empty() ? "" : " and ", second));
  }
  return joined(rules, "; ");
}

Beside shapes(std::initializer_list<RateShape> all, bool says_something_as_default = false) {
  Beside beside{"optimizer.rate.schedule", {}, says_something_as_default};
  for (const RateShape shape : all) beside.words.push_back(name_of(shape));
  return beside;
}

/// Positions of the steps, in one of two units; if one list is given, the other stays empty.
template <auto kUnit>
void store_at(S& s, const V& v) {
  for (const V& item : v.items) {
    Stretch place;
    place.*kUnit = static_cast<std::remove_reference_t<decltype(place.*kUnit)>>(item.number);
    s.rate.at.push_back(place);
  }
}
template <auto kUnit>
std::string show_at(const S& s) {
  std::vector<std::string> places;
  for (const Stretch& place : s.rate.at) {
    if (place.*kUnit != 0) places.push_back(number_text(static_cast<double>(place.*kUnit)));
  }
  return "[" + joined(places) + "]";
}

}  // namespace

Keys optimizer_keys() {
  return {
      {"optimizer.rule", Custom{store_rule, show_rule}, rules(), "how gradients change the parameters", "\"adam\"",
       text("Formulas: docs/optimizers.md. State in memory, an f32 per parameter each: ", state_text(), ".")},
      {"optimizer.rate", at<&S::rule, &Rule::rate>, number_above(0, 1000), "the learning rate", "0.001",
       "A constant, or a table with a schedule and its base: rate = { base = 0.1, schedule = \"cosine\", warmup_epochs "
       "= 5 }. The keys of the table follow."},
      {"optimizer.momentum", at<&S::rule, &Rule::momentum>, number(0, 0.999999), "momentum; below 1", "0.9",
       "Default for rmsprop: 0.", rules_that_read(&Rule::momentum)},
      {"optimizer.beta1",
       at<&S::rule, &Rule::beta1>,
       number(0, 0.999999),
       "decay of Adam's first moment; below 1",
       "0.9",
       {},
       rules_that_read(&Rule::beta1)},
      {"optimizer.beta2",
       at<&S::rule, &Rule::beta2>,
       number(0, 0.999999),
       "decay of Adam's second moment; below 1",
       "0.999",
       {},
       rules_that_read(&Rule::beta2)},
      {"optimizer.alpha",
       at<&S::rule, &Rule::alpha>,
       number(0, 0.999999),
       "decay of rmsprop's mean of squares; below 1",
       "0.9",
       {},
       rules_that_read(&Rule::alpha)},
      {"optimizer.epsilon",
       at<&S::rule, &Rule::epsilon>,
       number(1e-30, 1),
       "small number that keeps the division by a root finite",
       "1e-8",
       {},
       rules_that_read(&Rule::epsilon)},
      {"optimizer.trust", at<&S::rule, &Rule::trust>, number_above(0, 1),
       "how far lars moves a tensor: the norm of its step divided by that of its weights, before the learning rate",
       "0.001", "The trust coefficient of the paper. Vectors, such as biases, are not scaled.",
       rules_that_read(&Rule::trust)},
      {"optimizer.weight_decay", at<&S::rule, &Rule::weight_decay>, number(0, 1), "strength of weight decay", "0.0001",
       "This number times the weight is added to the gradient. adamw subtracts the learning rate times this number "
       "times the weight from the weight instead. Biases decay too, unless optimizer.no_decay excludes them; under "
       "lars "
       "and lamb vectors, such as biases and the weights of norms, never decay."},
      {"optimizer.no_decay", at<&S::no_decay>, array_of(K::texts, 0, 100),
       "parameters without weight decay, by name or pattern", "[\"*.bias\"]",
       "`*` stands for any characters. A pattern that matches no parameter's name is an error."},
      {"optimizer.clip_norm", at<&S::rule, &Rule::clip_norm>, number(0, 1e9),
       "largest L2 norm of a step's mean gradient, over all parameters; 0: no limit", "1",
       text("A gradient with a larger norm is scaled down to it. All ranks agree on the norm before the first "
            "parameter changes, which takes one more pass over the gradients. Only with update.policy = ",
            quoted_list(policies_that(has_verdicts)), ".")},
      {"optimizer.ema_decay", at<&S::rule, &Rule::ema_decay>, number(0, 0.9999999),
       "decay of an exponential moving average of the parameters; 0: none", "0.999",
       text("Evaluations use the average, and `ckpt weights` and `ckpt export` write it. It takes an f32 per parameter "
            "in memory. Update t counts with a decay of at most (1 + t) / (10 + t). Only with update.policy = ",
            quoted_list(policies_that(has_verdicts)), ".")},
  };
}

Keys rate_keys() {
  return {
      {"optimizer.rate.schedule", at<&S::rate, &RateSettings::shape>, one_of_first<RateShape>(kRateShapeNames.size()),
       "how the learning rate changes with the samples that all ranks have taken", "\"cosine\"",
       "Formulas: docs/optimizers.md. The same at any number of ranks and after a resume."},
      {"optimizer.rate.every_epochs", at<&S::rate, &RateSettings::every, &Stretch::epochs>, number(0, kMostEpochs),
       "epochs after which the learning rate is multiplied by factor, repeatedly; 0: not given", "30",
       "Not together with every_samples.", shapes({RateShape::step, RateShape::exponential})},
      {"optimizer.rate.every_samples",
       at<&S::rate, &RateSettings::every, &Stretch::samples>,
       integer(0, kMostSamples),
       "the same in samples of all ranks; 0: not given",
       "1000000",
       {},
       shapes({RateShape::step, RateShape::exponential})},
      {"optimizer.rate.at_epochs", Custom{store_at<&Stretch::epochs>, show_at<&Stretch::epochs>},
       array_of(K::numbers, 0, 100, {0, kMostEpochs, true}),
       "epochs at which the learning rate is multiplied by factor, in ascending order", "[30, 60, 80]",
       "Not together with at_samples.", shapes({RateShape::multi_step})},
      {"optimizer.rate.at_samples",
       Custom{store_at<&Stretch::samples>, show_at<&Stretch::samples>},
       array_of(K::integers, 0, 100, {1, kMostSamples}),
       "the same in samples of all ranks",
       "[1800000, 3600000]",
       {},
       shapes({RateShape::multi_step})},
      {"optimizer.rate.factor",
       at<&S::rate, &RateSettings::factor>,
       number_above(0, 10),
       "factor by which the learning rate is multiplied",
       "0.1",
       {},
       shapes({RateShape::step, RateShape::multi_step, RateShape::exponential}, /*says_something_as_default=*/true)},
      {"optimizer.rate.over_epochs", at<&S::rate, &RateSettings::over, &Stretch::epochs>, number(0, kMostEpochs),
       "epochs until the end of the schedule; 0: the whole run", "20",
       "Not together with over_samples. After that the learning rate stays the same.",
       shapes({RateShape::polynomial, RateShape::cosine, RateShape::one_cycle})},
      {"optimizer.rate.over_samples",
       at<&S::rate, &RateSettings::over, &Stretch::samples>,
       integer(0, kMostSamples),
       "the same in samples of all ranks; 0: the whole run",
       "1200000",
       {},
       shapes({RateShape::polynomial, RateShape::cosine, RateShape::one_cycle})},
      {"optimizer.rate.power",
       at<&S::rate, &RateSettings::power>,
       number_above(0, 100),
       "the exponent",
       "2",
       {},
       shapes({RateShape::polynomial}, /*says_something_as_default=*/true)},
      {"optimizer.rate.end_factor",
       at<&S::rate, &RateSettings::end_factor>,
       number(0, 1),
       "learning rate at the end, as a fraction of the unscheduled learning rate",
       "0.01",
       {},
       shapes({RateShape::polynomial, RateShape::cosine, RateShape::one_cycle}, /*says_something_as_default=*/true)},
      {"optimizer.rate.start_factor",
       at<&S::rate, &RateSettings::start_factor>,
       number(0, 1),
       "learning rate at the start, as a fraction of the unscheduled learning rate",
       "0.04",
       {},
       shapes({RateShape::one_cycle}, /*says_something_as_default=*/true)},
      {"optimizer.rate.rise",
       at<&S::rate, &RateSettings::rise>,
       number(0, 1),
       "fraction of the schedule in which the learning rate rises",
       "0.3",
       {},
       shapes({RateShape::one_cycle}, /*says_something_as_default=*/true)},
      {"optimizer.rate.warmup_epochs", at<&S::rate, &RateSettings::warmup, &Stretch::epochs>, number(0, kMostEpochs),
       "epochs in which the learning rate grows linearly to the schedule's value; 0: no warm-up", "5",
       "Not together with warmup_samples, nor with one_cycle, which rises by itself."},
      {"optimizer.rate.warmup_samples", at<&S::rate, &RateSettings::warmup, &Stretch::samples>,
       integer(0, kMostSamples), "the same in samples of all ranks; 0: no warm-up", "300000"},
      {"optimizer.rate.warmup_from", at<&S::rate, &RateSettings::warmup_from>, number(0, 1),
       "learning rate at the start of the warm-up, as a fraction of the schedule's value", "0.1",
       "With scale = \"linear\" it begins with the unscaled learning rate instead."},
      {"optimizer.rate.scale", at<&S::rate, &RateSettings::linear>, one_of({"none", "linear"}),
       "whether the learning rate grows with the number of samples in an update", "\"linear\"",
       "linear: the learning rate is multiplied by the number of samples in an update (those that all ranks take in a "
       "step, times update.accumulate) and divided by reference_batch."},
      {"optimizer.rate.reference_batch",
       at<&S::rate, &RateSettings::reference_batch>,
       integer(0, 1e9),
       "number of samples in an update for which the learning rate is used as written; 0: data.batch, the batch size "
       "of one rank",
       "256",
       {},
       {"optimizer.rate.scale", {"linear"}}},
  };
}

}  // namespace troupe::detail
