#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

using S = Settings;
using V = TomlValue;
using K = ValueKind;

void store_non_finite(S& s, const V& v) {
  s.rule.skips_non_finite = v.text == "skip";
  s.rule.stops_non_finite = v.text == "roll_back";
}
std::string show_non_finite(const S& s) {
  return in_quotes(s.rule.skips_non_finite ? "skip" : s.rule.stops_non_finite ? "roll_back" : "stop");
}

std::optional<Finding> check_prompt(const V& v) {
  if (!v.text.empty()) return std::nullopt;
  return invalid("is empty; give the model at least one byte to continue, as in evaluate.text_prompt = \"\\n\"");
}

}  // namespace

Keys train_keys() {
  return {
      {"train.epochs", at<&S::train, &S::Train::epochs>, integer(1, 1e6), "passes over the training set", "20",
       "An epoch is the number of steps that it takes to use every sample once. data.scatter says what its last step "
       "takes."},
      {"train.steps", at<&S::train, &S::Train::steps>, integer(0, 1e12),
       "number of steps after which the run ends; 0: train.epochs decides", "1000",
       "Counted from the start of the first run, also after a resume. If set, train.epochs is ignored."},
      {"train.seed", at<&S::train, &S::Train::seed>, integer(0, 9.3e18),
       "seed of the starting weights and of the order of samples", "7", "Generated digits do not depend on it."},
      {"train.non_finite", Custom{store_non_finite, show_non_finite}, one_of({"stop", "skip", "roll_back"}),
       "what happens when a loss or a gradient is not finite", "\"skip\"",
       text("stop: the run ends and names the step and the first rank whose loss is not finite; this costs no time. "
            "skip: a step whose gradient is not finite changes no parameter, and a note names the parameter and the "
            "rank; all ranks agree on that before the first parameter changes, which takes one more pass over the "
            "gradients. roll_back: after such a step the run returns to its newest checkpoint, with a lower learning "
            "rate. skip and roll_back: only with update.policy = ",
            quoted_list(policies_that(has_verdicts)), ".")},
      {"train.roll_backs",
       at<&S::train, &S::Train::roll_backs>,
       integer(1, 1000),
       "how often a run returns to a checkpoint before it ends",
       "1",
       "Counted over the whole run, resumed or not.",
       {"train.non_finite", {"roll_back"}}},
      {"train.roll_back_rate",
       at<&S::train, &S::Train::roll_back_rate>,
       number(1e-6, 1),
       "factor by which the learning rate is multiplied each time that a run returns to a checkpoint",
       "0.1",
       "1: the learning rate stays the same.",
       {"train.non_finite", {"roll_back"}}},
      {"train.recompute", at<&S::train, &S::Train::recompute>,
       Takes{.kind = K::texts, .least_items = 0, .most_items = 256},
       "layers whose outputs are computed again in the backward pass instead of being kept (gradient checkpointing)",
       "[\"block_1\", \"block_2\"]",
       "Takes less memory and more time; the gradients have the same bits. Each text is one range of layers, of which "
       "only those outputs are kept that layers outside of it read: \"block_1\" is the layer of this name, or all "
       "layers "
       "whose names begin with block_1 and a dot; \"block_1..block_4\" is one range from the first layer of block_1 to "
       "the last one of block_4. [\"segments:4\"] cuts the whole model into 4 ranges of about the same size, and keeps "
       "all of the last one. The names of the layers are those of [model] layers, or those that rtrun plan prints."},
      {"train.deterministic", at<&S::train, &S::Train::deterministic>, yes_or_no(),
       "whether runs with the same settings on the same number of ranks, divided alike among nodes, end with the same "
       "bits",
       "true",
       "Recorded in the plan and in checkpoints. A job that was interrupted and resumed on the same number of ranks "
       "then ends with the same bits as one that was not interrupted."},
  };
}

Keys evaluate_keys() {
  return {
      {"evaluate.every_epochs", at<&S::evaluate, &S::Evaluate::every_epochs>, integer(0, 1e6),
       "epochs from one evaluation on the test set to the next; 0: never", "1",
       "There is also an evaluation at the end of the run. Every rank evaluates its part of the test set."},
      {"evaluate.patience", at<&S::evaluate, &S::Evaluate::patience>, integer(0, 1e6),
       "evaluations in a row without a lower loss on the test set after which the run ends; 0: it does not", "5",
       "The run then ends like one that is asked to stop: all ranks at the same step, saved, with exit code 0. "
       "Training waits for each evaluation. A run that resumes from a checkpoint counts the evaluations that the log "
       "in report.dir has up to its step; one that was in progress when the run was killed may be missing there."},
      {"evaluate.min_change", at<&S::evaluate, &S::Evaluate::min_change>, number(0, 1e9),
       "how much lower than the best one before a loss on the test set must be to count as lower", "0.001",
       "Only with evaluate.patience."},
      {"evaluate.text_bytes",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::bytes>,
       integer(0, 65536),
       "bytes of text that the model generates after each evaluation; 0: none",
       "200",
       "The text is printed with the line of its epoch, and is in the log and on the page. It depends only on the "
       "weights, train.seed and the step. The model must predict each byte from the earlier ones, as gpt does. Rank "
       "0's "
       "process computes it on a thread of its own from a copy of the weights (4 bytes for each), while training goes "
       "on; it ends early after half of faults.exchange_s.",
       {"data.source", {"text"}}},
      {"evaluate.text_prompt",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::prompt>,
       text_in_quotes(check_prompt),
       "how the text begins",
       "\"The \"",
       "Only with evaluate.text_bytes. Of a prompt that is longer than data.length the model reads the last bytes.",
       {"data.source", {"text"}}},
      {"evaluate.text_temperature",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::temperature>,
       number(0, 100),
       "divisor of the logits: a larger one makes unlikely bytes more frequent; 0: always the most likely byte",
       "0.8",
       "Only with evaluate.text_bytes.",
       {"data.source", {"text"}}},
      {"evaluate.text_top_k",
       at<&S::evaluate, &S::Evaluate::text, &TextSettings::most_likely>,
       integer(0, 256),
       "the number of most likely bytes from which each byte is drawn; 0: all",
       "40",
       "Only with evaluate.text_bytes.",
       {"data.source", {"text"}}},
  };
}

}  // namespace troupe::detail
