#include "runtime/detail/config_schema.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "runtime/detail/rate_keys.hpp"

namespace troupe::detail {
namespace {

constexpr double kNoLimit = 9.3e18;  // above every 64-bit integer

constexpr std::array kSources{Choice{"idx"},        Choice{"generated"},     Choice{"cifar10", false},
                              Choice{"map", false}, Choice{"folder", false}, Choice{"shards", false},
                              Choice{"voc", false}};
constexpr std::array kModels{Choice{"mlp"}};
constexpr std::array kDTypes{Choice{"f32"}, Choice{"bf16"}};
constexpr std::array kRules{Choice{"sgd"},   Choice{"momentum"}, Choice{"nesterov"}, Choice{"adam"},
                            Choice{"adamw"}, Choice{"adagrad"},  Choice{"rmsprop"}};
constexpr std::array kNonFinite{Choice{"stop"}, Choice{"skip"}, Choice{"roll_back"}};
constexpr std::array kScatters{Choice{"endless"}, Choice{"exact"}, Choice{"equal"}};
constexpr std::array kLoaders{Choice{"rank"}, Choice{"node"}};
constexpr std::array kFormats{Choice{"chainermn"}, Choice{"json"}, Choice{"mxnet", false}, Choice{"cntk", false}};
constexpr std::array kLosses{Choice{"abort"}, Choice{"shrink", false}, Choice{"wait", false}};

template <std::string Settings::Data::*kMember>
void store_data(Settings& s, const TomlValue& v) {
  s.data.*kMember = v.text;
}
void store_batches(Settings& s, const TomlValue& v) {
  const auto rows = [](const TomlValue& one) { return static_cast<std::uint32_t>(one.integer); };
  s.data.batches.clear();
  for (const TomlValue& pair : v.items) s.data.batches.push_back({rows(pair.items[0]), pair.items[1].number});
  s.data.batch = v.items.empty() ? rows(v) : s.data.batches.front().rows;
}
std::string show_batches(const Settings& s) {
  if (s.data.batches.empty()) return std::to_string(s.data.batch);
  std::string out;
  for (const Settings::Data::Batch& one : s.data.batches)
    out += text(out.empty() ? "[" : ", ", '[', one.rows, ", ", number_text(one.epochs), ']');
  return out + "]";
}
std::uint32_t small(const TomlValue& v) { return static_cast<std::uint32_t>(v.integer); }
std::chrono::milliseconds seconds(const TomlValue& v) {
  return std::chrono::milliseconds{std::llround(v.number * 1000)};
}
std::string show(std::chrono::milliseconds span) { return number_text(static_cast<double>(span.count()) / 1000); }
std::string show(const std::vector<std::uint32_t>& values) {
  std::string out;
  for (const auto value : values) out += (out.empty() ? "" : ", ") + std::to_string(value);
  return "[" + out + "]";
}

using S = Settings;
using V = TomlValue;
using K = ValueKind;

constexpr std::array kData{
    SettingKey{.name = "data.source",
               .kind = K::choice,
               .help = "what kind of data set",
               .example = "\"idx\"",
               .more = "idx: MNIST's four files, plain or .gz; found nowhere, digits are drawn instead, and it is "
                       "said. generated: 60,000 and 10,000 drawn digits, kept in ~/.cache/troupe (55 MB).",
               .choices = kSources,
               .today = "data.source = \"idx\" or \"generated\"",
               .store = store_data<&S::Data::source>,
               .show = [](const S& s) { return quoted(s.data.source); }},
    SettingKey{.name = "data.path",
               .kind = K::text,
               .help = "folder of the data set, relative to the file",
               .example = "\"data/mnist\"",
               .more = "Where source = idx looks: --set data.path first and alone; else TROUPE_DATA, a folder that "
                       "holds mnist/; then this key; then the cache of drawn digits.",
               .store = store_data<&S::Data::path>,
               .show = [](const S& s) { return quoted(s.data.path); }},
    SettingKey{.name = "data.batch",
               .kind = K::batches,
               .help = "samples per rank and step, or a schedule of them",
               .example = "100",
               .more =
                   "A step takes this times the number of ranks from the order of samples; with placement.split = "
                   "\"measured\" it is the mean of the ranks. [[64, 10], [128, 10], [256, 0]]: 64 for 10 epochs, 128 "
                   "for the 10 after them, 256 for the rest; epochs may be fractions, and a size holds from the "
                   "first step that begins at its epoch or after it.",
               .range = {1, 1e6},
               .most_items = 64,
               .store = store_batches,
               .show = show_batches},
    SettingKey{.name = "data.prefetch",
               .kind = K::integer,
               .help = "batches a loader keeps ready",
               .example = "3",
               .more = "Each is a slot of memory of one batch. More help where loading is uneven.",
               .range = {2, 64},
               .store = [](S& s, const V& v) { s.data.prefetch = small(v); },
               .show = [](const S& s) { return std::to_string(s.data.prefetch); }},
    SettingKey{.name = "data.scatter",
               .kind = K::choice,
               .help = "what steps do at an epoch's end",
               .example = "\"exact\"",
               .more = "endless: every step takes data.batch times the ranks; the one in which an epoch ends takes the "
                       "first samples of the next epoch too. exact: an epoch's last step takes what is left of it, "
                       "shared out among the ranks, of which some may have none. equal: that step is filled up with "
                       "the epoch's own first samples until all ranks have as many; not with placement.split = "
                       "\"measured\".",
               .choices = kScatters,
               .store =
                   [](S& s, const V& v) {
                     const auto at = std::find_if(kScatters.begin(), kScatters.end(),
                                                  [&](const Choice& c) { return c.name == v.text; });
                     s.data.scatter = static_cast<Scatter>(at - kScatters.begin());
                   },
               .show = [](const S& s) { return quoted(name_of(s.data.scatter)); }},
    SettingKey{.name = "data.loader",
               .kind = K::choice,
               .help = "who reads the data set",
               .example = "\"node\"",
               .more =
                   "rank: every rank, for itself. node: one rank of each node, which makes the batches of all ranks "
                   "there, straight into their memory: the node holds the data set once.",
               .choices = kLoaders,
               .store = store_data<&S::Data::loader>,
               .show = [](const S& s) { return quoted(s.data.loader); }},
};

constexpr std::array kModel{
    SettingKey{
        .name = "model.name",
        .kind = K::choice,
        .help = "a registered model",
        .example = "\"mlp\"",
        .more = "mlp: dense layers, each followed by a ReLU but the last; input and output follow from the data.",
        .choices = kModels,
        .store = [](S& s, const V& v) { s.model.name = v.text; },
        .show = [](const S& s) { return quoted(s.model.name); }},
    SettingKey{.name = "model.units",
               .kind = K::integers,
               .help = "widths of the hidden layers",
               .example = "[1000, 1000]",
               .more = "One number a layer, in their order. Weights start as N(0, 1/inputs), biases as 0.",
               .range = {1, 65536},
               .most_items = 8,
               .store =
                   [](S& s, const V& v) {
                     s.model.units.clear();
                     for (const V& item : v.items) s.model.units.push_back(small(item));
                   },
               .show = [](const S& s) { return show(s.model.units); }},
    SettingKey{.name = "model.dtype",
               .kind = K::choice,
               .help = "how batches, activations and weights are kept",
               .example = "\"bf16\"",
               .more = "bf16: weights are also kept as f32, where they are updated; gradients are exchanged as f32. "
                       "Faster on processors with instructions for it.",
               .choices = kDTypes,
               .store = [](S& s, const V& v) { s.model.dtype = v.text == "bf16" ? DType::bf16 : DType::f32; },
               .show = [](const S& s) { return quoted(name_of(s.model.dtype)); }},
};

template <double Rule::*kMember>
void store_rule(Settings& s, const TomlValue& v) {
  s.rule.*kMember = v.number;
}
template <double Rule::*kMember>
std::string show_rule(const Settings& s) {
  return number_text(s.rule.*kMember);
}

constexpr std::array kOptimizer{
    SettingKey{.name = "optimizer.rule",
               .kind = K::choice,
               .help = "how gradients become steps",
               .example = "\"adam\"",
               .more = "Formulas: docs/optimizers.md. State: none of sgd, one f32 per parameter of momentum, nesterov, "
                       "adagrad and rmsprop, two of adam, adamw and rmsprop with momentum.",
               .choices = kRules,
               .store =
                   [](S& s, const V& v) {
                     const auto at =
                         std::find_if(kRules.begin(), kRules.end(), [&](const Choice& c) { return c.name == v.text; });
                     s.rule.kind = static_cast<RuleKind>(at - kRules.begin());
                   },
               .show =
                   [](const S& s) {
                     const bool rmsprop = s.rule.kind == RuleKind::rmsprop_momentum;
                     return quoted(name_of(rmsprop ? RuleKind::rmsprop : s.rule.kind));
                   }},
    SettingKey{.name = "optimizer.rate",
               .kind = K::number,
               .help = "the learning rate",
               .example = "0.001",
               .more = "Constant, or the base of a schedule: rate = { base = 0.1, schedule = \"cosine\", warmup_epochs "
                       "= 5 }, whose keys follow.",
               .range = {0, 1000, true},
               .store = store_rule<&Rule::rate>,
               .show = show_rule<&Rule::rate>},
    SettingKey{.name = "optimizer.momentum",
               .kind = K::number,
               .help = "of momentum, nesterov and rmsprop; below 1",
               .example = "0.9",
               .more = "Of rmsprop 0 where it is left out. Refused with another rule.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::momentum>,
               .show = show_rule<&Rule::momentum>},
    SettingKey{.name = "optimizer.beta1",
               .kind = K::number,
               .help = "decay of Adam's first moment; below 1",
               .example = "0.9",
               .more = "Refused with another rule than adam and adamw.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::beta1>,
               .show = show_rule<&Rule::beta1>},
    SettingKey{.name = "optimizer.beta2",
               .kind = K::number,
               .help = "decay of Adam's second moment; below 1",
               .example = "0.999",
               .more = "Refused with another rule than adam and adamw.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::beta2>,
               .show = show_rule<&Rule::beta2>},
    SettingKey{.name = "optimizer.alpha",
               .kind = K::number,
               .help = "decay of rmsprop's mean of squares; below 1",
               .example = "0.9",
               .more = "Refused with another rule than rmsprop.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::alpha>,
               .show = show_rule<&Rule::alpha>},
    SettingKey{.name = "optimizer.epsilon",
               .kind = K::number,
               .help = "keeps the division by a root finite",
               .example = "1e-8",
               .more = "Of adam, adamw, adagrad and rmsprop; refused with another rule.",
               .range = {1e-30, 1},
               .store = store_rule<&Rule::epsilon>,
               .show = show_rule<&Rule::epsilon>},
    SettingKey{.name = "optimizer.weight_decay",
               .kind = K::number,
               .help = "pull of the weights to zero",
               .example = "0.0001",
               .more = "Times the weight, added to the gradient; adamw takes rate times this times the weight off the "
                       "weight itself. Biases decay too, unless optimizer.no_decay says otherwise.",
               .range = {0, 1},
               .store = store_rule<&Rule::weight_decay>,
               .show = show_rule<&Rule::weight_decay>},
    SettingKey{.name = "optimizer.no_decay",
               .kind = K::texts,
               .help = "which parameters do not decay, by name or pattern",
               .example = "[\"*.bias\"]",
               .more = "`*` stands for any letters. A pattern that no parameter's name matches is refused.",
               .least_items = 0,
               .most_items = 100,
               .store =
                   [](S& s, const V& v) {
                     s.no_decay.clear();
                     for (const V& item : v.items) s.no_decay.push_back(item.text);
                   },
               .show =
                   [](const S& s) {
                     std::string out;
                     for (const auto& pattern : s.no_decay) out += (out.empty() ? "" : ", ") + quoted(pattern);
                     return "[" + out + "]";
                   }},
    SettingKey{.name = "optimizer.clip_norm",
               .kind = K::number,
               .help = "the longest a step's mean gradient may be, by its L2 norm over all parameters; 0: as it is",
               .example = "1",
               .more =
                   "A longer one is shortened to it. All ranks agree on the norm before the first parameter changes, "
                   "which takes one more pass over the gradients. Of policies sync and double_buffered.",
               .range = {0, 1e9},
               .store = store_rule<&Rule::clip_norm>,
               .show = show_rule<&Rule::clip_norm>},
};

constexpr std::array kTrain{
    SettingKey{.name = "train.epochs",
               .kind = K::integer,
               .help = "passes over the training set",
               .example = "20",
               .more = "An epoch is as many steps as it takes to take every sample once; a step may reach over its end "
                       "into the next.",
               .range = {1, 1e6},
               .store = [](S& s, const V& v) { s.train.epochs = small(v); },
               .show = [](const S& s) { return std::to_string(s.train.epochs); }},
    SettingKey{
        .name = "train.steps",
        .kind = K::integer,
        .help = "the last step; 0: as the epochs say",
        .example = "1000",
        .more =
            "Counted from the very beginning, also after a resume. Where it is set train.epochs counts for nothing.",
        .range = {0, 1e12},
        .store = [](S& s, const V& v) { s.train.steps = static_cast<std::uint64_t>(v.integer); },
        .show = [](const S& s) { return std::to_string(s.train.steps); }},
    SettingKey{.name = "train.seed",
               .kind = K::integer,
               .help = "of weights and of the order of samples",
               .example = "7",
               .more = "The drawn digits do not depend on it.",
               .range = {0, kNoLimit},
               .store = [](S& s, const V& v) { s.train.seed = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.train.seed); }},
    SettingKey{.name = "train.non_finite",
               .kind = K::choice,
               .help = "what happens when a number is not finite",
               .example = "\"skip\"",
               .more =
                   "stop: the run ends with the step and the rank whose loss is not finite first, which costs "
                   "nothing to know. skip: a step whose gradient is not finite changes nothing, and it is said "
                   "which parameter and rank; all ranks agree on that before the first parameter changes, which "
                   "takes one more pass over the gradients. roll_back: such a step takes the run back to its newest "
                   "checkpoint, with a lower rate. skip and roll_back are of policies sync and double_buffered.",
               .choices = kNonFinite,
               .store =
                   [](S& s, const V& v) {
                     s.rule.skips_non_finite = v.text == "skip";
                     s.rule.stops_non_finite = v.text == "roll_back";
                   },
               .show =
                   [](const S& s) {
                     return quoted(s.rule.skips_non_finite ? "skip" : s.rule.stops_non_finite ? "roll_back" : "stop");
                   }},
    SettingKey{.name = "train.roll_backs",
               .kind = K::integer,
               .help = "how often a run goes back to a checkpoint before it ends",
               .example = "1",
               .more = "Of train.non_finite = \"roll_back\". Counted over the whole run, resumed or not.",
               .range = {1, 1000},
               .store = [](S& s, const V& v) { s.train.roll_backs = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.train.roll_backs); }},
    SettingKey{.name = "train.roll_back_rate",
               .kind = K::number,
               .help = "what the rate is multiplied by, each time that a run goes back",
               .example = "0.1",
               .more = "Of train.non_finite = \"roll_back\". 1: the rate stays.",
               .range = {1e-6, 1},
               .store = [](S& s, const V& v) { s.train.roll_back_rate = v.number; },
               .show = [](const S& s) { return number_text(s.train.roll_back_rate); }},
    SettingKey{.name = "train.deterministic",
               .kind = K::boolean,
               .help = "the same bits on every run of one world",
               .example = "true",
               .more = "Stands in the plan and in checkpoints. With it a job that was ended and resumed ends with the "
                       "bits of one that was not, on as many ranks.",
               .store = [](S& s, const V& v) { s.train.deterministic = v.boolean; },
               .show = [](const S& s) { return bool_text(s.train.deterministic); }},
};

constexpr std::array kRest{
    SettingKey{.name = "evaluate.every_epochs",
               .kind = K::integer,
               .help = "how often the test set is gone through; 0: never",
               .example = "1",
               .more = "Also at the end of the run. Every rank evaluates its part.",
               .range = {0, 1e6},
               .store = [](S& s, const V& v) { s.evaluate.every_epochs = small(v); },
               .show = [](const S& s) { return std::to_string(s.evaluate.every_epochs); }},
    SettingKey{.name = "checkpoint.dir",
               .kind = K::text,
               .help = "folder of checkpoints, relative to the working directory; \"\": checkpoints in report.dir",
               .example = "\"run/checkpoints\"",
               .more = "Ranks on several hosts need a folder that all reach.",
               .store = [](S& s, const V& v) { s.checkpoint.dir = v.text; },
               .show = [](const S& s) { return quoted(s.checkpoint.dir); }},
    SettingKey{.name = "checkpoint.every_steps",
               .kind = K::integer,
               .help = "how often a checkpoint is saved, beside the end; 0: never",
               .example = "500",
               .more = "A save that falls due while the one before is being written is left out.",
               .range = {0, 1e12},
               .store = [](S& s, const V& v) { s.checkpoint.every_steps = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.checkpoint.every_steps); }},
    SettingKey{.name = "checkpoint.keep",
               .kind = K::integer,
               .help = "how many of the newest checkpoints are kept",
               .example = "3",
               .more = "Of this run; those of other runs in the folder are left alone.",
               .range = {1, 1e6},
               .store = [](S& s, const V& v) { s.checkpoint.keep = small(v); },
               .show = [](const S& s) { return std::to_string(s.checkpoint.keep); }},
    SettingKey{.name = "checkpoint.keep_best",
               .kind = K::boolean,
               .help = "save what is evaluated too, and keep the best beside the newest",
               .example = "true",
               .more = "Best by accuracy on the test set.",
               .store = [](S& s, const V& v) { s.checkpoint.keep_best = v.boolean; },
               .show = [](const S& s) { return bool_text(s.checkpoint.keep_best); }},
    SettingKey{
        .name = "checkpoint.resume",
        .kind = K::text,
        .help = "\"never\"; \"auto\": go on from the newest whole checkpoint, if there is one; or a checkpoint's path",
        .example = "\"auto\"",
        .more = "`rtrun --resume` sets it. A path names one checkpoint, or a folder of them, of which the newest whole "
                "one is taken.",
        .check = [](const V& v) -> std::optional<Finding> {
          if (!v.text.empty()) return std::nullopt;
          return Finding{Code::invalid, "is empty; write \"never\", \"auto\", or the path of a checkpoint"};
        },
        .store = [](S& s, const V& v) { s.checkpoint.resume = v.text; },
        .show = [](const S& s) { return quoted(s.checkpoint.resume); }},
    SettingKey{.name = "checkpoint.save_s",
               .kind = K::number,
               .help = "how long a save may take, and reading one on resume, in seconds",
               .example = "300",
               .more = "A save that takes longer ends the run.",
               .range = {0.1, 86400},
               .store = [](S& s, const V& v) { s.checkpoint.save = seconds(v); },
               .show = [](const S& s) { return show(s.checkpoint.save); }},
    SettingKey{.name = "report.dir",
               .kind = K::text,
               .help = "folder of results, relative to the working directory",
               .example = "\"run\"",
               .more = "Made if it is missing. Holds log (JSON), and checkpoints unless checkpoint.dir says otherwise.",
               .check = [](const V& v) -> std::optional<Finding> {
                 if (!v.text.empty()) return std::nullopt;
                 return Finding{
                     Code::invalid,
                     "is empty; name a folder, as in report.dir = \"run\", or \".\" for the working directory"};
               },
               .store = [](S& s, const V& v) { s.report.dir = v.text; },
               .show = [](const S& s) { return quoted(s.report.dir); }},
    SettingKey{.name = "report.format",
               .kind = K::choice,
               .help = "how results are printed",
               .example = "\"chainermn\"",
               .more = "chainermn: a line an epoch as in a table. json: one JSON object a line.",
               .choices = kFormats,
               .today = "report.format = \"chainermn\" or \"json\"",
               .store = [](S& s, const V& v) { s.report.format = v.text; },
               .show = [](const S& s) { return quoted(s.report.format); }},
    SettingKey{.name = "faults.on_loss",
               .kind = K::choice,
               .help = "what the others do when a rank is lost",
               .example = "\"abort\"",
               .more = "abort: the others name the rank, its node and the step, and exit with 4.",
               .choices = kLosses,
               .today = "faults.on_loss = \"abort\"",
               .store = [](S& s, const V& v) { s.faults.on_loss = v.text; },
               .show = [](const S& s) { return quoted(s.faults.on_loss); }},
    SettingKey{.name = "faults.dead_ms",
               .kind = K::integer,
               .help = "silence after which a rank is dead, in milliseconds",
               .example = "10000",
               .more =
                   "At most faults.exchange_s, which is the default where it is shorter. A killed process is noticed "
                   "without it; raise it where ranks find no processor for seconds. A silent rank is noted after "
                   "300 ms or a tenth of it, whichever is longer, but after a third of it at the latest.",
               .range = {100, 600000},
               .store = [](S& s, const V& v) { s.faults.dead = std::chrono::milliseconds{v.integer}; },
               .show = [](const S& s) { return std::to_string(s.faults.dead.count()); }},
    SettingKey{.name = "faults.start_s",
               .kind = K::number,
               .help = "how long ranks may take to meet, in seconds",
               .example = "60",
               .more = "After it rank 0 names the missing ones and all exit with 4.",
               .range = {0.1, 86400},
               .store = [](S& s, const V& v) { s.faults.start = seconds(v); },
               .show = [](const S& s) { return show(s.faults.start); }},
    SettingKey{.name = "faults.exchange_s",
               .kind = K::number,
               .help = "how long an exchange may wait, in seconds",
               .example = "30",
               .more = "At least faults.dead_ms. Waiting for gradients or parameters longer than that ends the run.",
               .range = {0.1, 86400},
               .store = [](S& s, const V& v) { s.faults.exchange = seconds(v); },
               .show = [](const S& s) { return show(s.faults.exchange); }},
    SettingKey{.name = "faults.stop_s",
               .kind = K::number,
               .help = "how long an orderly end may take, in seconds",
               .example = "10",
               .more = "After Ctrl-C or SIGTERM; what has not ended by then is killed.",
               .range = {0.1, 86400},
               .store = [](S& s, const V& v) { s.faults.stop = seconds(v); },
               .show = [](const S& s) { return show(s.faults.stop); }},
};

template <std::size_t... kSizes>
constexpr auto joined(const std::array<SettingKey, kSizes>&... parts) {
  std::array<SettingKey, (kSizes + ...)> all{};
  std::size_t next = 0;
  const auto append = [&](const auto& part) {
    for (const SettingKey& key : part) all[next++] = key;
  };
  (append(parts), ...);
  return all;
}
constexpr auto kBeforeUpdate = joined(kData, kModel, kOptimizer, kRateKeys, kTrain);

constexpr std::array kPlannedKeys{
    PlannedKey{"data.augment", "[]", ""},
    PlannedKey{"model.layers", "", "model.name = \"mlp\" with model.units"},
    PlannedKey{"placement.mesh", "", "ranks in one row; leave the key out"},
    PlannedKey{"placement.affinity", "", "placement.cores, the number of cores of a rank"},
    PlannedKey{"report.metrics_port", "0", ""},
};

}  // namespace

std::span<const SettingKey> setting_keys() {
  static const std::vector<SettingKey> keys = [] {
    std::vector<SettingKey> all(cluster_keys().begin(), cluster_keys().end());
    all.insert(all.end(), kBeforeUpdate.begin(), kBeforeUpdate.end());
    all.insert(all.end(), update_keys().begin(), update_keys().end());
    all.insert(all.end(), placement_keys().begin(), placement_keys().end());
    all.insert(all.end(), kRest.begin(), kRest.end());
    return all;
  }();
  return keys;
}
std::span<const PlannedKey> planned_keys() { return kPlannedKeys; }

const SettingKey* find_setting(std::string_view name) {
  const auto keys = setting_keys();
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key.name == name; });
  return at == keys.end() ? nullptr : &*at;
}

std::string_view canonical(std::string_view name) { return name == "optimizer.rate.base" ? "optimizer.rate" : name; }

bool takes_table(std::string_view name) { return name == "optimizer.rate"; }

const PlannedKey* find_planned(std::string_view name) {
  const auto at =
      std::find_if(kPlannedKeys.begin(), kPlannedKeys.end(), [&](const auto& key) { return key.name == name; });
  return at == kPlannedKeys.end() ? nullptr : &*at;
}

}  // namespace troupe::detail
