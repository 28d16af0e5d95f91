#include "runtime/config/detail/schema.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "runtime/base/words.hpp"
#include "runtime/config/detail/rate_keys.hpp"

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
std::string show(const std::vector<std::uint32_t>& values) { return "[" + joined(values) + "]"; }

using S = Settings;
using V = TomlValue;
using K = ValueKind;

constexpr std::array kData{
    SettingKey{.name = "data.source",
               .kind = K::choice,
               .help = "what kind of data set",
               .example = "\"idx\"",
               .more = "idx: MNIST's four files, plain or .gz. If nothing is found, rtrun generates digits and says "
                       "so. generated: 60,000 training and 10,000 test images of digits that rtrun generates once and "
                       "keeps in ~/.cache/troupe (55 MB).",
               .choices = kSources,
               .today = "data.source = \"idx\" or \"generated\"",
               .store = store_data<&S::Data::source>,
               .show = [](const S& s) { return quoted(s.data.source); }},
    SettingKey{
        .name = "data.path",
        .kind = K::text,
        .help = "folder of the data set, relative to the file",
        .example = "\"data/mnist\"",
        .more = "Where source = \"idx\" looks, in this order: --set data.path, and then nowhere else; this key, where "
                "the folder holds the files; TROUPE_DATA, a folder that holds mnist/; generated digits. The line "
                "that begins with `Data:` says which was taken.",
        .store = store_data<&S::Data::path>,
        .show = [](const S& s) { return quoted(s.data.path); }},
    SettingKey{.name = "data.batch",
               .kind = K::batches,
               .help = "samples per rank and step, or a schedule of them",
               .example = "100",
               .more = "A step takes this number times the number of ranks. With placement.split = \"measured\" it is "
                       "the mean over the ranks. [[64, 10], [128, 10], [256, 0]]: 64 for the first 10 epochs, 128 for "
                       "the next 10, 256 for the rest. Epochs may be fractions; a new size takes effect with the first "
                       "step that begins at its epoch or later.",
               .range = {1, 1e6},
               .most_items = 64,
               .store = store_batches,
               .show = show_batches},
    SettingKey{.name = "data.prefetch",
               .kind = K::integer,
               .help = "number of batches that a loader keeps ready",
               .example = "3",
               .more = "Each takes the memory of one batch. A larger number helps where loading times vary.",
               .range = {2, 64},
               .store = [](S& s, const V& v) { s.data.prefetch = small(v); },
               .show = [](const S& s) { return std::to_string(s.data.prefetch); }},
    SettingKey{.name = "data.threads",
               .kind = K::integer,
               .help = "number of threads of each loader that decode batches; 0: the loader itself does",
               .example = "2",
               .more = "The batches are the same, in the same order. Threads help where decoding takes longer than a "
                       "step, and cores are left.",
               .range = {0, 64},
               .store = [](S& s, const V& v) { s.data.threads = small(v); },
               .show = [](const S& s) { return std::to_string(s.data.threads); }},
    SettingKey{.name = "data.scatter",
               .kind = K::choice,
               .help = "what the last step of an epoch takes",
               .example = "\"exact\"",
               .more = "endless: every step takes data.batch samples per rank; the step in which an epoch ends also "
                       "takes the first samples of the next epoch. exact: the last step of an epoch takes the samples "
                       "that are left, divided among the ranks, of which some may get none. equal: the last step of an "
                       "epoch is filled up with samples from the beginning of the same epoch until all ranks have the "
                       "same number; not possible with placement.split = \"measured\".",
               .choices = kScatters,
               .store =
                   [](S& s, const V& v) {
                     const auto at = std::find_if(kScatters.begin(), kScatters.end(),
                                                  [&](const Choice& c) { return c.name == v.text; });
                     s.data.scatter = static_cast<Scatter>(at - kScatters.begin());
                   },
               .show = [](const S& s) { return quoted(name_of(s.data.scatter)); }},
    SettingKey{
        .name = "data.loader",
        .kind = K::choice,
        .help = "who reads the data set",
        .example = "\"node\"",
        .more = "rank: every rank reads it for itself. node: one rank of each node reads it and makes the batches of "
                "all ranks of the node, directly in their memory, so that the node holds the data set once.",
        .choices = kLoaders,
        .store = store_data<&S::Data::loader>,
        .show = [](const S& s) { return quoted(s.data.loader); }},
};

constexpr std::array kModel{
    SettingKey{.name = "model.name",
               .kind = K::choice,
               .help = "a registered model",
               .example = "\"mlp\"",
               .more = "mlp: dense layers, each but the last followed by a ReLU. The sizes of input and output follow "
                       "from the data.",
               .choices = kModels,
               .store = [](S& s, const V& v) { s.model.name = v.text; },
               .show = [](const S& s) { return quoted(s.model.name); }},
    SettingKey{.name = "model.units",
               .kind = K::integers,
               .help = "widths of the hidden layers",
               .example = "[1000, 1000]",
               .more = "One number for each layer, in order. Weights start as N(0, 1/inputs), biases as 0.",
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
               .help = "number type of batches, activations and weights",
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
               .help = "how gradients change the parameters",
               .example = "\"adam\"",
               .more = "Formulas: docs/optimizers.md. State in memory: none for sgd, one f32 per parameter for "
                       "momentum, nesterov, adagrad and rmsprop, two for adam, adamw and rmsprop with momentum.",
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
               .more = "A constant, or a table with a schedule and its base: rate = { base = 0.1, schedule = "
                       "\"cosine\", warmup_epochs = 5 }. The keys of the table follow.",
               .range = {0, 1000, true},
               .store = store_rule<&Rule::rate>,
               .show = show_rule<&Rule::rate>},
    SettingKey{.name = "optimizer.momentum",
               .kind = K::number,
               .help = "momentum for the rules momentum, nesterov and rmsprop; below 1",
               .example = "0.9",
               .more = "Default for rmsprop: 0. An error with any other rule.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::momentum>,
               .show = show_rule<&Rule::momentum>},
    SettingKey{.name = "optimizer.beta1",
               .kind = K::number,
               .help = "decay of Adam's first moment; below 1",
               .example = "0.9",
               .more = "Only for adam and adamw; an error with any other rule.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::beta1>,
               .show = show_rule<&Rule::beta1>},
    SettingKey{.name = "optimizer.beta2",
               .kind = K::number,
               .help = "decay of Adam's second moment; below 1",
               .example = "0.999",
               .more = "Only for adam and adamw; an error with any other rule.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::beta2>,
               .show = show_rule<&Rule::beta2>},
    SettingKey{.name = "optimizer.alpha",
               .kind = K::number,
               .help = "decay of rmsprop's mean of squares; below 1",
               .example = "0.9",
               .more = "Only for rmsprop; an error with any other rule.",
               .range = {0, 0.999999},
               .store = store_rule<&Rule::alpha>,
               .show = show_rule<&Rule::alpha>},
    SettingKey{.name = "optimizer.epsilon",
               .kind = K::number,
               .help = "small number that keeps the division by a root finite",
               .example = "1e-8",
               .more = "Only for adam, adamw, adagrad and rmsprop; an error with any other rule.",
               .range = {1e-30, 1},
               .store = store_rule<&Rule::epsilon>,
               .show = show_rule<&Rule::epsilon>},
    SettingKey{
        .name = "optimizer.weight_decay",
        .kind = K::number,
        .help = "strength of weight decay",
        .example = "0.0001",
        .more = "This number times the weight is added to the gradient. adamw subtracts rate times this number times "
                "the weight from the weight instead. Biases decay too, unless optimizer.no_decay excludes them.",
        .range = {0, 1},
        .store = store_rule<&Rule::weight_decay>,
        .show = show_rule<&Rule::weight_decay>},
    SettingKey{.name = "optimizer.no_decay",
               .kind = K::texts,
               .help = "parameters without weight decay, by name or pattern",
               .example = "[\"*.bias\"]",
               .more = "`*` stands for any characters. A pattern that matches no parameter's name is an error.",
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
               .help = "largest L2 norm of a step's mean gradient, over all parameters; 0: no limit",
               .example = "1",
               .more = "A gradient with a larger norm is scaled down to it. All ranks agree on the norm before the "
                       "first parameter changes, which takes one more pass over the gradients. Only for the policies "
                       "sync and double_buffered.",
               .range = {0, 1e9},
               .store = store_rule<&Rule::clip_norm>,
               .show = show_rule<&Rule::clip_norm>},
};

constexpr std::array kTrain{
    SettingKey{.name = "train.epochs",
               .kind = K::integer,
               .help = "passes over the training set",
               .example = "20",
               .more = "An epoch is the number of steps that it takes to use every sample once. data.scatter says what "
                       "its last step takes.",
               .range = {1, 1e6},
               .store = [](S& s, const V& v) { s.train.epochs = small(v); },
               .show = [](const S& s) { return std::to_string(s.train.epochs); }},
    SettingKey{.name = "train.steps",
               .kind = K::integer,
               .help = "number of steps after which the run ends; 0: train.epochs decides",
               .example = "1000",
               .more = "Counted from the very beginning, also after a resume. If set, train.epochs is ignored.",
               .range = {0, 1e12},
               .store = [](S& s, const V& v) { s.train.steps = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.train.steps); }},
    SettingKey{.name = "train.seed",
               .kind = K::integer,
               .help = "seed of the starting weights and of the order of samples",
               .example = "7",
               .more = "Generated digits do not depend on it.",
               .range = {0, kNoLimit},
               .store = [](S& s, const V& v) { s.train.seed = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.train.seed); }},
    SettingKey{
        .name = "train.non_finite",
        .kind = K::choice,
        .help = "what happens when a loss or a gradient is not finite",
        .example = "\"skip\"",
        .more = "stop: the run ends and names the step and the first rank whose loss is not finite; this costs no "
                "time. skip: a step whose gradient is not finite changes no parameter, and a note names the parameter "
                "and the rank; all ranks agree on that before the first parameter changes, which takes one more pass "
                "over the gradients. roll_back: after such a step the run goes back to its newest checkpoint, with a "
                "lower rate. skip and roll_back: only for the policies sync and double_buffered.",
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
               .more = "Only for train.non_finite = \"roll_back\". Counted over the whole run, resumed or not.",
               .range = {1, 1000},
               .store = [](S& s, const V& v) { s.train.roll_backs = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.train.roll_backs); }},
    SettingKey{.name = "train.roll_back_rate",
               .kind = K::number,
               .help = "factor on the rate each time that a run goes back",
               .example = "0.1",
               .more = "Only for train.non_finite = \"roll_back\". 1: the rate stays the same.",
               .range = {1e-6, 1},
               .store = [](S& s, const V& v) { s.train.roll_back_rate = v.number; },
               .show = [](const S& s) { return number_text(s.train.roll_back_rate); }},
    SettingKey{.name = "train.deterministic",
               .kind = K::boolean,
               .help = "whether runs with the same settings on the same number of ranks, divided alike among nodes, "
                       "end with the same bits",
               .example = "true",
               .more = "Recorded in the plan and in checkpoints. A job that was interrupted and resumed on the same "
                       "number of ranks then ends with the same bits as one that was not interrupted.",
               .store = [](S& s, const V& v) { s.train.deterministic = v.boolean; },
               .show = [](const S& s) { return bool_text(s.train.deterministic); }},
};

constexpr std::array kRest{
    SettingKey{
        .name = "evaluate.every_epochs",
        .kind = K::integer,
        .help = "epochs from one evaluation on the test set to the next; 0: never",
        .example = "1",
        .more = "There is also an evaluation at the end of the run. Every rank evaluates its part of the test set.",
        .range = {0, 1e6},
        .store = [](S& s, const V& v) { s.evaluate.every_epochs = small(v); },
        .show = [](const S& s) { return std::to_string(s.evaluate.every_epochs); }},
    SettingKey{
        .name = "evaluate.patience",
        .kind = K::integer,
        .help = "evaluations in a row without a lower loss on the test set after which the run ends; 0: it does not",
        .example = "5",
        .more = "The run then ends as one that was asked to stop does: all ranks at the same step, saved, with exit "
                "code 0. Training waits for each evaluation. A run that goes on from a checkpoint counts the "
                "evaluations that the log in report.dir has up to its step; one that was under way when the run was "
                "killed may be missing there.",
        .range = {0, 1e6},
        .store = [](S& s, const V& v) { s.evaluate.patience = small(v); },
        .show = [](const S& s) { return std::to_string(s.evaluate.patience); }},
    SettingKey{.name = "evaluate.min_change",
               .kind = K::number,
               .help = "how much lower than the best one before a loss on the test set must be to count as lower",
               .example = "0.001",
               .more = "Only with evaluate.patience.",
               .range = {0, 1e9},
               .store = [](S& s, const V& v) { s.evaluate.min_change = v.number; },
               .show = [](const S& s) { return number_text(s.evaluate.min_change); }},
    SettingKey{
        .name = "checkpoint.dir",
        .kind = K::text,
        .help = "folder of checkpoints, relative to the working directory; \"\": the folder checkpoints in report.dir",
        .example = "\"run/checkpoints\"",
        .more = "Ranks on several hosts need a folder that all of them can reach.",
        .store = [](S& s, const V& v) { s.checkpoint.dir = v.text; },
        .show = [](const S& s) { return quoted(s.checkpoint.dir); }},
    SettingKey{.name = "checkpoint.every_steps",
               .kind = K::integer,
               .help = "steps from one checkpoint to the next, besides the one at the end; 0: none at all",
               .example = "500",
               .more = "A save that is due while the previous one is still being written is skipped.",
               .range = {0, 1e12},
               .store = [](S& s, const V& v) { s.checkpoint.every_steps = static_cast<std::uint64_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.checkpoint.every_steps); }},
    SettingKey{.name = "checkpoint.keep",
               .kind = K::integer,
               .help = "how many of the newest checkpoints are kept",
               .example = "3",
               .more = "Counts checkpoints of this run; those of other runs in the folder are not removed.",
               .range = {1, 1e6},
               .store = [](S& s, const V& v) { s.checkpoint.keep = small(v); },
               .show = [](const S& s) { return std::to_string(s.checkpoint.keep); }},
    SettingKey{.name = "checkpoint.keep_best",
               .kind = K::boolean,
               .help = "whether to save after every evaluation too, and to keep the best checkpoint beside the newest",
               .example = "true",
               .more = "Best means the highest accuracy on the test set.",
               .store = [](S& s, const V& v) { s.checkpoint.keep_best = v.boolean; },
               .show = [](const S& s) { return bool_text(s.checkpoint.keep_best); }},
    SettingKey{
        .name = "checkpoint.resume",
        .kind = K::text,
        .help = "\"never\"; \"auto\": go on from the newest whole checkpoint, if there is one; or a checkpoint's path",
        .example = "\"auto\"",
        .more = "`rtrun --resume` sets it. A path names one checkpoint, or a folder of them, of which the newest whole "
                "one is taken. auto is an error when the newest checkpoint is of a run that began anew in the folder "
                "and another run there has more steps.",
        .check = [](const V& v) -> std::optional<Finding> {
          if (!v.text.empty()) return std::nullopt;
          return Finding{Code::invalid, "is empty; write \"never\", \"auto\", or the path of a checkpoint"};
        },
        .store = [](S& s, const V& v) { s.checkpoint.resume = v.text; },
        .show = [](const S& s) { return quoted(s.checkpoint.resume); }},
    SettingKey{.name = "checkpoint.save_s",
               .kind = K::number,
               .help = "how long a save may take, and reading a checkpoint on resume, in seconds",
               .example = "300",
               .more = "A save that takes longer ends the run.",
               .range = {0.1, 86400},
               .store = [](S& s, const V& v) { s.checkpoint.save = seconds(v); },
               .show = [](const S& s) { return show(s.checkpoint.save); }},
    SettingKey{.name = "report.dir",
               .kind = K::text,
               .help = "folder of results, relative to the working directory",
               .example = "\"run\"",
               .more = "Created if it does not exist. Holds report.html, log (JSON), log.csv, and checkpoints unless "
                       "checkpoint.dir names another folder.",
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
               .more = "chainermn: a table with a line for each epoch. json: one JSON object per line.",
               .choices = kFormats,
               .today = "report.format = \"chainermn\" or \"json\"",
               .store = [](S& s, const V& v) { s.report.format = v.text; },
               .show = [](const S& s) { return quoted(s.report.format); }},
    SettingKey{.name = "report.trace",
               .kind = K::text,
               .help = "file for a time line of the run, in the JSON of Chrome's tracing and Perfetto; \"\": none",
               .example = "\"trace.json\"",
               .more = "The same as rtrun --trace FILE. A row for each stream, lane, link and actor of each rank, with "
                       "spans named by what was done, step and bucket. Every rank keeps its first million of spans. "
                       "Ranks that rtrun does not start on its own machine write a file each, with .rank-N behind the "
                       "name. rtrun timeline draws a step of it.",
               .store = [](S& s, const V& v) { s.report.trace = v.text; },
               .show = [](const S& s) { return quoted(s.report.trace); }},
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
               .help = "how long ranks may take to connect to rank 0 at the start, in seconds",
               .example = "60",
               .more = "After that time rank 0 names the missing ranks, and all exit with 4.",
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
               .more = "Counted from Ctrl-C or SIGTERM; processes that have not ended by then are killed.",
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
    PlannedKey{"placement.mesh", "", "leave the key out: ranks form one row"},
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
