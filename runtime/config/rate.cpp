#include "runtime/config/detail/rate_keys.hpp"

namespace troupe::detail {
namespace {

constexpr std::string_view kTable = "optimizer.rate.";

struct Of {
  std::string_view leaf;
  std::array<RateShape, 3> shapes;
};
using enum RateShape;
/// Which shapes read a key; the other keys are read by all.
constexpr std::array kOf{
    Of{"every_epochs", {step, exponential, exponential}},  Of{"every_samples", {step, exponential, exponential}},
    Of{"at_epochs", {multi_step, multi_step, multi_step}}, Of{"at_samples", {multi_step, multi_step, multi_step}},
    Of{"factor", {step, multi_step, exponential}},         Of{"over_epochs", {polynomial, cosine, one_cycle}},
    Of{"over_samples", {polynomial, cosine, one_cycle}},   Of{"power", {polynomial, polynomial, polynomial}},
    Of{"end_factor", {polynomial, cosine, one_cycle}},     Of{"start_factor", {one_cycle, one_cycle, one_cycle}},
    Of{"rise", {one_cycle, one_cycle, one_cycle}}};

std::string words_of(const std::array<RateShape, 3>& shapes) {
  std::string out = quoted(name_of(shapes[0]));
  for (std::size_t i = 1; i < shapes.size() && shapes[i] != shapes[i - 1]; ++i) {
    const bool last = i + 1 == shapes.size() || shapes[i + 1] == shapes[i];
    out += text(last ? " or " : ", ", quoted(name_of(shapes[i])));
  }
  return out;
}

/// Looks for contradictions, each about one key.
class RateReview {
 public:
  RateReview(const Settings& settings, const std::function<bool(std::string_view)>& given,
             const std::function<std::string(std::string_view)>& shown)
      : settings_(settings), rate_(settings.rate), given_(given), shown_(shown) {}

  std::vector<RateContradiction> found() {
    keys_of_other_shapes();
    for (const std::string_view stem : {"every", "at", "over", "warmup"}) one_unit(stem);
    missing_places();
    warmups();
    if (says("reference_batch") && !rate_.linear) {
      add(key("reference_batch"), text("means nothing to ", told("scale"), "; leave it out, or choose \"linear\""));
    }
    return std::move(found_);
  }

 private:
  static std::string key(std::string_view leaf) { return text(kTable, leaf); }
  std::string told(std::string_view leaf) const { return text(key(leaf), " = ", shown_(key(leaf))); }
  void add(std::string_view about, std::string what) {
    const SettingKey* at = find_setting(about);
    found_.push_back({at == nullptr ? about : at->name, text(about, " ", what)});
  }

  /// Whether a key is given and says something: a stretch of 0 and an empty list say that they are not given.
  bool says(std::string_view leaf) const {
    const std::string value = given_(key(leaf)) ? find_setting(key(leaf))->show(settings_) : "0";
    return value != "0" && value != "[]";
  }

  void keys_of_other_shapes() {
    for (const auto& [leaf, shapes] : kOf) {
      const bool may_be_nothing = leaf.ends_with("_epochs") || leaf.ends_with("_samples");
      if (!(may_be_nothing ? says(leaf) : given_(key(leaf))) || std::ranges::find(shapes, rate_.shape) != shapes.end())
        continue;
      add(key(leaf), text("means nothing to ", told("schedule"), "; leave it out, or choose ", words_of(shapes)));
    }
  }

  void one_unit(std::string_view stem) {
    const std::string epochs = key(text(stem, "_epochs")), samples = key(text(stem, "_samples"));
    if (!says(text(stem, "_epochs")) || !says(text(stem, "_samples"))) return;
    add(samples, text("cannot be used beside ", epochs, " = ", shown_(epochs), "; leave one of them out"));
  }

  void missing_places() {
    const bool every = rate_.shape == step || rate_.shape == exponential;
    if (every && !rate_.every.is_given()) {
      add(key("schedule"), text("= ", shown_(key("schedule")), " needs ", key("every_epochs"), " or ",
                                key("every_samples"), ", as in every_epochs = 30"));
    }
    if (rate_.shape == multi_step && rate_.at.empty()) {
      add(key("schedule"), text("= ", shown_(key("schedule")), " needs ", key("at_epochs"), " or ", key("at_samples"),
                                ", as in at_epochs = [30, 60, 80]"));
    }
    const auto before = [](const Stretch& a, const Stretch& b) { return a.samples < b.samples || a.epochs < b.epochs; };
    for (std::size_t i = 1; i < rate_.at.size(); ++i) {
      if (before(rate_.at[i - 1], rate_.at[i])) continue;
      const std::string places = key(rate_.at[i].samples != 0 ? "at_samples" : "at_epochs");
      if (given_(places))
        add(places, text("has an entry ", i + 1, " that is not above the one before; write them in ascending order"));
      return;
    }
  }

  void warmups() {
    for (const std::string_view leaf : {"warmup_epochs", "warmup_samples", "warmup_from"}) {
      if (says(leaf) && rate_.shape == one_cycle) {
        add(key(leaf), text("means nothing to ", told("schedule"), ", which rises by itself (start_factor, rise)"));
      }
    }
    if (!given_(key("warmup_from")) || rate_.shape == one_cycle) return;
    if (rate_.linear) {
      add(key("warmup_from"),
          text("means nothing to ", told("scale"), ", whose warm-up begins with the unscaled rate; leave it out"));
    } else if (!rate_.warmup.is_given()) {
      add(key("warmup_from"), text("needs ", key("warmup_epochs"), " or ", key("warmup_samples")));
    }
  }

  const Settings& settings_;
  const RateSettings& rate_;
  const std::function<bool(std::string_view)>& given_;
  const std::function<std::string(std::string_view)>& shown_;
  std::vector<RateContradiction> found_;
};

}  // namespace

std::vector<RateContradiction> rate_contradictions(const Settings& settings,
                                                   const std::function<bool(std::string_view)>& given,
                                                   const std::function<std::string(std::string_view)>& shown) {
  return RateReview{settings, given, shown}.found();
}

}  // namespace troupe::detail
