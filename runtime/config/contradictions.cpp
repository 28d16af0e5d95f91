#include "runtime/config/detail/contradictions.hpp"

#include <algorithm>

#include "runtime/model/recomputation.hpp"

namespace troupe::detail {
namespace {

using enum RateShape;

template <class Fits>
bool any_policy(const Settings::Group& group, Fits fits) {
  return fits(group.update.kind) ||
         std::ranges::any_of(group.switches, [&](const PolicySwitch& change) { return fits(change.policy.kind); });
}

/// Each check is about the keys in its name. Messages name both positions.
class Review {
 public:
  Review(const Settings& settings, const GivenKeys& given) : settings_(settings), given_(given) {}

  std::vector<Contradiction> found() {
    keys_that_mean_nothing();
    logs();
    error_feedback();
    rate();
    verdict();
    f16();
    tensor_norms();
    split();
    device_threads();
    layers();
    synchronized();
    synchronized_again();
    texts();
    generated_text();
    patience();
    faults();
    const std::string_view policy = is_given("update.time_constant") ? "update.time_constant" : "update.policy";
    if (const std::string wrong = contradiction(settings_.update); !wrong.empty()) add(policy, wrong);
    return std::move(found_);
  }

 private:
  bool is_given(std::string_view key) const { return given_.contains(key); }
  std::string value_of(std::string_view key) const { return find_setting(key)->show(settings_); }
  /// Whether a key is given and not its default: a default that was printed and read back is not a wish.
  bool is_wished(std::string_view key) const { return is_given(key) && !find_setting(key)->is_default(settings_); }
  /// The key with its value and the value's origin.
  std::string told(std::string_view key) const { return text(key, " = ", shown(key)); }
  std::string shown(std::string_view key) const {
    const auto at = given_.find(key);
    return text(value_of(key), " (", at == given_.end() ? "default" : at->second.origin, ")");
  }
  void add(std::string_view key, std::string what) { found_.push_back({find_setting(key)->name, std::move(what)}); }
  void add_meaningless(std::string_view key, std::string_view beside, std::string_view choices) {
    add(key, text(key, " is not used by ", told(beside), "; leave it out, or choose ", choices));
  }

  void keys_that_mean_nothing() {
    for (const SettingKey& key : setting_keys()) {
      const bool says = key.beside.says_something_as_default ? is_given(key.name) : is_wished(key.name);
      if (says && !key.means_something(settings_))
        add_meaningless(key.name, key.beside.key, quoted_list(key.beside.words));
    }
  }

  /// Logs record what shards apply, so they need a hosted policy.
  void logs() {
    const auto hosts = [](const Settings::Group& group) { return any_policy(group, is_hosted); };
    if (std::ranges::any_of(all_groups(settings_), hosts)) return;
    for (const std::string_view key : {"update.log", "update.replay"})
      if (is_wished(key)) add_meaningless(key, "update.policy", quoted_list(policies_that(is_hosted)));
  }

  /// There is a rounding error only if something is rounded.
  void error_feedback() {
    const auto rounds = [](const Settings::Group& group) { return group.compression.kind != Compression::none; };
    if (settings_.compression.error_feedback && std::ranges::none_of(all_groups(settings_), rounds))
      add_meaningless("update.error_feedback", "update.compress", "\"bf16\"");
  }

  void rate() {
    for (const std::string_view stem : {"every", "at", "over", "warmup"}) {
      const std::string epochs = text("optimizer.rate.", stem, "_epochs"),
                        samples = text("optimizer.rate.", stem, "_samples");
      if (is_wished(epochs) && is_wished(samples))
        add(samples, text(samples, " cannot be used together with ", told(epochs), "; leave one of them out"));
    }
    const RateSettings& rate = settings_.rate;
    if ((rate.shape == step || rate.shape == exponential) && !rate.every.is_given())
      add_lacking("optimizer.rate.schedule", "every", ", as in every_epochs = 30");
    if (rate.shape == multi_step && rate.at.empty())
      add_lacking("optimizer.rate.schedule", "at", ", as in at_epochs = [30, 60, 80]");
    rate_places();
    warmup();
  }

  /// Reports that `key` needs one of two keys, neither of which is given.
  void add_lacking(std::string_view key, std::string_view stem, std::string_view example) {
    const std::string value = key.ends_with("schedule") ? text(" = ", shown(key)) : std::string{};
    add(key, text(key, value, " needs optimizer.rate.", stem, "_epochs or optimizer.rate.", stem, "_samples", example));
  }

  void rate_places() {
    const auto before = [](const Stretch& a, const Stretch& b) { return a.samples < b.samples || a.epochs < b.epochs; };
    const std::vector<Stretch>& places = settings_.rate.at;
    for (std::size_t i = 1; i < places.size(); ++i) {
      if (before(places[i - 1], places[i])) continue;
      const std::string_view key = places[i].samples != 0 ? "optimizer.rate.at_samples" : "optimizer.rate.at_epochs";
      if (!is_given(key)) return;
      return add(key, text(key, " has an entry ", i + 1,
                           " that is not greater than the one before; write them in ascending order"));
    }
  }

  void warmup() {
    constexpr std::string_view kFrom = "optimizer.rate.warmup_from";
    if (settings_.rate.shape == one_cycle) {
      for (const std::string_view key : {std::string_view{"optimizer.rate.warmup_epochs"},
                                         std::string_view{"optimizer.rate.warmup_samples"}, kFrom}) {
        if (is_wished(key))
          add(key, text(key, " is not used by ", told("optimizer.rate.schedule"),
                        ", which rises by itself (start_factor, rise)"));
      }
    } else if (is_given(kFrom) && settings_.rate.linear) {
      add(kFrom, text(kFrom, " is not used by ", told("optimizer.rate.scale"),
                      ", whose warm-up begins with the unscaled rate; leave it out"));
    } else if (is_given(kFrom) && !settings_.rate.warmup.is_given()) {
      add_lacking(kFrom, "warmup", "");
    }
  }

  /// A setting that needs a verdict of all ranks on each update needs a policy with a round in each update; returning
  /// to a checkpoint needs checkpoints.
  void verdict() {
    const Rule& rule = settings_.rule;
    if (rule.stops_non_finite && settings_.checkpoint.every_steps == 0) {
      add("train.non_finite",
          text("train.non_finite = \"roll_back\" needs checkpoints to return to, and ", told("checkpoint.every_steps"),
               "; set it to the number of steps between two of them"));
    }
    const auto lacks = [](PolicyKind kind) { return !has_verdicts(kind); };
    average(lacks);
    if (!needs_common_verdict(rule) || !any_policy(all_groups(settings_).front(), lacks)) return;
    const std::string_view policy = lacks(settings_.update.kind) ? "update.policy" : "update.switch";
    for (const std::string_view key : {"optimizer.clip_norm", "train.non_finite"}) {
      if (!is_wished(key)) continue;
      add(key, text(told(key), " needs a round of all ranks in each update, which ", told(policy),
                    " does not have; choose ", quoted_list(policies_that(has_verdicts)), ", or leave it out"));
    }
  }

  /// Only GPUs compute in f16. What is left out for a smaller loss scale cannot be what the run ends with.
  void f16() {
    const Settings::Model& model = settings_.model;
    if (model.dtype != DType::f16) return;
    if (settings_.placement.device == "cpu")
      add("model.dtype", text(told("model.dtype"), " needs GPUs, and ", told("placement.device"),
                              " uses none; write \"bf16\" or \"f32\", or another device"));
    if (settings_.rule.stops_non_finite)
      add("train.non_finite", text(told("train.non_finite"), " cannot be used together with ", told("model.dtype"),
                                   ", which leaves out updates whose gradient is not finite and lowers the loss "
                                   "scale; leave one of the two out"));
    if (model.scaling.fixed > 0)
      for (const std::string_view key : {"model.loss_scale_start", "model.loss_scale_steps"})
        if (is_wished(key)) add(key, text(key, " is not used by ", told("model.loss_scale"), "; leave it out"));
  }

  /// Ranks that train by themselves have weights of their own, and a shard is not asked for all of its stripe at one
  /// moment.
  template <class Lacks>
  void average(Lacks&& lacks) {
    const std::vector<Settings::Group> groups = all_groups(settings_);
    const auto group = std::ranges::find_if(groups, [&](const auto& one) { return any_policy(one, lacks); });
    if (settings_.rule.ema_decay == 0 || group == groups.end()) return;
    const std::string_view policy = lacks(settings_.update.kind)        ? "update.policy"
                                    : any_policy(groups.front(), lacks) ? "update.switch"
                                                                        : "update.group";
    add("optimizer.ema_decay",
        text(told("optimizer.ema_decay"),
             " averages parameters that all ranks have in common after each update, which ",
             policy == "update.group" ? text("the group ", in_quotes(group->name)) : told(policy),
             " does not have; choose ", quoted_list(policies_that(has_verdicts)), ", or leave it out"));
  }

  /// A shard has some of a tensor, and updates it when something comes, so it never knows the norms of whole tensors.
  void tensor_norms() {
    const auto hosts = [](const Settings::Group& group) {
      return needs_tensor_norms(group.rule.kind) && any_policy(group, is_hosted);
    };
    const std::vector<Settings::Group> groups = all_groups(settings_);
    const auto group = std::ranges::find_if(groups, hosts);
    if (group == groups.end()) return;
    add("optimizer.rule",
        text("optimizer.rule = ", in_quotes(name_of(group->rule.kind)),
             " needs the norms of whole tensors, which the shards of ", quoted_list(policies_that(is_hosted)),
             " do not know; choose another rule, or a policy that exchanges in rounds"));
  }

  /// If ranks do not take their steps together, smaller batches for some ranks gain nothing.
  void split() {
    if (settings_.placement.split != "measured" || !any_policy(all_groups(settings_).front(), is_hosted)) return;
    const std::string_view policy = is_hosted(settings_.update.kind) ? "update.policy" : "update.switch";
    add("placement.split", text(told("placement.split"),
                                " divides the samples of steps that all ranks take together, "
                                "but ranks do not take steps together under ",
                                told(policy), "; write \"equal\""));
  }

  /// Two trials need not end alike, and the order of additions depends on the number of threads.
  void device_threads() {
    if (!settings_.placement.device_threads.tried || !settings_.train.deterministic) return;
    add("placement.device_threads",
        text(told("placement.device_threads"), " measures at each start how many threads are fastest, and with ",
             told("train.deterministic"), " the number must always be the same; write the number, or \"cores\""));
  }

  /// A model is either registered or written down.
  void layers() {
    const bool has_file = !settings_.model.onnx.empty();
    if (!has_file && !settings_.model.onnx_output.empty())
      add("model.onnx_output", "model.onnx_output is not used without model.onnx; leave it out, or name the file");
    if (settings_.model.layers.empty() && !has_file) return;
    for (const std::string_view key : {"model.name", "model.units", "model.depth", "model.width", "model.heads"})
      if (is_wished(key))
        add(key, text(key, " cannot be used together with ", has_file ? "model.onnx" : "model.layers",
                      ", which is the whole model; leave it out"));
  }

  /// Layers can gather values of all ranks in a step only if all ranks take the step together.
  void synchronized() {
    const auto hosts = [](const Settings::Group& group) { return any_policy(group, is_hosted); };
    if (std::ranges::none_of(settings_.model.layers, is_synchronized) ||
        std::ranges::none_of(all_groups(settings_), hosts))
      return;
    add("model.layers",
        text("model.layers has a batch_norm with synchronized = true, whose mean is over the batches that all ranks "
             "take in a step; under policy = ",
             quoted_list(policies_that(is_hosted)),
             " ranks do not take their steps together: choose another "
             "(also in update.switch and update.group), or leave synchronized out"));
  }

  /// A layer at which all ranks wait for each other is computed once in a step. The layers of segments are known only
  /// with the graph (check_recomputed).
  void synchronized_again() {
    const Settings::Cluster& cluster = settings_.cluster;
    if (std::max(cluster.local, cluster.hosts.count_ranks()) < 2) return;
    const std::vector<Layer>& layers = settings_.model.layers;
    for (const std::string& one : settings_.train.recompute) {
      const LayerRange range = find_range(layers, one).value_or(LayerRange{1, 0});
      for (std::uint32_t l = range.first; l <= range.last; ++l)
        if (is_synchronized(layers[l])) add("train.recompute", recomputes_synchronized(layers[l]));
    }
  }

  /// Operations on images do not apply to texts.
  void texts() {
    if (settings_.data.source != "text") return;
    for (const std::string_view key : {"data.augment", "data.broken", "data.read_s", "data.stage"})
      if (is_wished(key)) add(key, text(key, " is not used by data.source = \"text\"; leave it out"));
  }

  /// A text is generated with an evaluation's weights.
  void generated_text() {
    const bool generates = settings_.evaluate.text.bytes > 0;
    if (generates && settings_.evaluate.every_epochs == 0)
      add("evaluate.text_bytes", text(told("evaluate.text_bytes"), " follows an evaluation, and ",
                                      told("evaluate.every_epochs"), " makes none; set it, or leave text_bytes out"));
    if (generates) return;
    for (const std::string_view key : {"evaluate.text_prompt", "evaluate.text_temperature", "evaluate.text_top_k"})
      if (is_wished(key)) add_meaningless(key, "evaluate.text_bytes", "a number of bytes, as in text_bytes = 200");
  }

  /// Evaluations are counted only if there are some, and compared only if they are counted.
  void patience() {
    const bool counts = settings_.evaluate.patience != 0;
    if (counts && settings_.evaluate.every_epochs == 0)
      add("evaluate.patience", text("evaluate.patience = ", value_of("evaluate.patience"), " counts evaluations, and ",
                                    told("evaluate.every_epochs"), " makes none; set it, or leave patience out"));
    if (!counts && is_wished("evaluate.min_change"))
      add_meaningless("evaluate.min_change", "evaluate.patience", "a number of evaluations, as in patience = 5");
  }

  void faults() {
    if (is_given("data.read_s") && settings_.data.read >= settings_.faults.exchange)
      add("data.read_s",
          text("an exchange gives up (", told("faults.exchange_s"), ") while a rank may still wait for a file (",
               told("data.read_s"), "); make exchange_s the longer one"));
    if (settings_.faults.exchange >= settings_.faults.dead) return;
    add(is_given("faults.exchange_s") ? "faults.exchange_s" : "faults.dead_ms",
        text("an exchange gives up (", told("faults.exchange_s"), ") before a silent rank is declared lost (",
             told("faults.dead_ms"), ") and can be named; make exchange_s the longer one"));
  }

  const Settings& settings_;
  const GivenKeys& given_;
  std::vector<Contradiction> found_;
};

}  // namespace

std::vector<Contradiction> contradictions_of(const Settings& settings, const GivenKeys& given) {
  return Review{settings, given}.found();
}

}  // namespace troupe::detail
