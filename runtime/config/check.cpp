#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "runtime/base/words.hpp"
#include "runtime/config/detail/schema.hpp"

namespace troupe::detail {
namespace {

using Kind = TomlValue::Kind;

std::string lower(std::string_view text) {
  std::string out = lower_case(text);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

/// The number of insertions, deletions, changes and swaps of neighbours that turn one word into the other. Source:
/// Damerau 1964 (A technique for computer detection and correction of spelling errors), restricted form.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string_view leaf_of(std::string_view name) { return name.substr(name.find('.') + 1); }

/// All keys, those in this build first.
std::vector<std::string_view> all_keys() {
  std::vector<std::string_view> names;
  for (const SettingKey& key : setting_keys()) names.push_back(key.name);
  for (const PlannedKey& key : planned_keys()) names.push_back(key.name);
  return names;
}

std::vector<std::string_view> leaves_of(std::string_view section) {
  std::vector<std::string_view> leaves;
  for (const std::string_view name : all_keys()) {
    if (section_of(name) == section) leaves.push_back(leaf_of(name));
  }
  return leaves;
}

struct Word {
  std::string_view theirs;
  std::string_view ours;
};

/// Our key for a word of other programs; a section is added if the word alone could mean another key.
std::string_view known_elsewhere_as(std::string_view section, std::string_view leaf) {
  static constexpr std::array kWords{
      Word{"model.type", "model.name"},
      Word{"optimizer.name", "optimizer.rule"},
      Word{"data.dir", "data.path"},
      Word{"data.name", "data.source"},
      Word{"checkpoint.path", "checkpoint.dir"},
      Word{"checkpoint.keep_last", "checkpoint.keep"},
      Word{"checkpoint.every_epochs", "checkpoint.every_steps"},
      Word{"report.path", "report.dir"},
      Word{"lr", "optimizer.rate"},
      Word{"type", "optimizer.rule"},
      Word{"learning_rate", "optimizer.rate"},
      Word{"optim", "optimizer.rule"},
      Word{"nproc", "cluster.nodes"},
      Word{"np", "cluster.nodes"},
      Word{"num_processes", "cluster.nodes"},
      Word{"world_size", "cluster.nodes"},
      Word{"ranks", "cluster.nodes"},
      Word{"hosts", "cluster.nodes"},
      Word{"workers", "cluster.nodes"},
      Word{"gpus", "placement.device"},
      Word{"batch_size", "data.batch"},
      Word{"max_steps", "train.steps"},
      Word{"max_epochs", "train.epochs"},
      Word{"num_epochs", "train.epochs"},
      Word{"precision", "model.dtype"},
      Word{"iterations", "train.steps"},
      Word{"interval", "checkpoint.every_steps"},
      Word{"hidden", "model.units"},
      Word{"eps", "optimizer.epsilon"},
      Word{"wd", "optimizer.weight_decay"},
      Word{"threads", "placement.cores"},
      Word{"timeout", "faults.exchange_s"},
      Word{"dataset", "data.source"},
  };
  for (const Word& word : kWords) {
    if (word.theirs == leaf || word.theirs == text(section, '.', leaf)) return word.ours;
  }
  return {};
}

/// Our word of a choice for a word of other programs.
std::string_view choice_elsewhere_as(std::string_view word) {
  static constexpr std::array kWords{Word{"float32", "f32"},     Word{"float", "f32"},       Word{"bfloat16", "bf16"},
                                     Word{"gpu", "cuda"},        Word{"mnist", "idx"},       Word{"ib", "rdma"},
                                     Word{"infiniband", "rdma"}, Word{"synchronous", "sync"}};
  const auto* const found = std::ranges::find(kWords, word, &Word::theirs);
  return found == kWords.end() ? std::string_view{} : found->ours;
}

bool is_number(const TomlValue& value) { return value.kind == Kind::integer || value.kind == Kind::number; }

bool kind_fits(ValueKind kind, const TomlValue& value) {
  const bool array = value.kind == Kind::array;
  switch (kind) {
    case ValueKind::text:
    case ValueKind::choice: return value.kind == Kind::text;
    case ValueKind::boolean: return value.kind == Kind::boolean;
    case ValueKind::integer: return value.kind == Kind::integer;
    case ValueKind::number: return is_number(value);
    case ValueKind::integers:
    case ValueKind::numbers:
    case ValueKind::texts:
    case ValueKind::layers:
    case ValueKind::switches: return array;
    case ValueKind::hosts: return array || value.kind == Kind::text;
    case ValueKind::batches: return array || value.kind == Kind::integer;
    case ValueKind::count_or_choice: return value.kind == Kind::integer || value.kind == Kind::text;
  }
  return false;
}

/// "..., but takes an integer from 1 to 8, as in data.batch = 100".
Finding wrong(const SettingKey& key, std::string_view what, std::string_view more = {}) {
  return invalid(text(what, ", but takes ", expected(key), ", as in ", key.name, " = ", key.example, more));
}

std::optional<Finding> check_choice(const SettingKey& key, const TomlValue& value) {
  const std::vector<Choice>& choices = key.takes.choices;
  const auto planned = [&](const Choice& choice) {
    return text(in_quotes(choice.name), ", which is planned and not in this build; today write ", key.takes.today);
  };
  if (const auto at = std::ranges::find(choices, value.text, &Choice::name); at != choices.end()) {
    if (at->built) return std::nullopt;
    return Finding{Code::unsupported, text("is the text ", planned(*at))};
  }
  std::vector<std::string_view> words;
  for (const Choice& choice : choices) words.push_back(choice.name);
  std::string_view near = choice_elsewhere_as(lower(value.text));
  if (std::ranges::find(words, near) == words.end()) near = nearest(value.text, words);
  const auto meant = std::ranges::find(choices, near, &Choice::name);
  if (meant == choices.end()) return wrong(key, text("is ", describe(value)));
  return invalid(
      text("is ", describe(value), ", but takes ", expected(key),
           meant->built ? text("; did you mean ", in_quotes(near), "?") : text("; it may mean ", planned(*meant))));
}

std::optional<Finding> check_items(const SettingKey& key, const TomlValue& value) {
  const Takes& takes = key.takes;
  if (value.items.size() < takes.least_items || value.items.size() > takes.most_items)
    return wrong(key, text("has ", value.items.size(), " entries"));
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const TomlValue& item = value.items[i];
    const bool fits =
        takes.kind == ValueKind::texts
            ? item.kind == Kind::text
            : kind_fits(takes.kind == ValueKind::numbers ? ValueKind::number : ValueKind::integer, item) &&
                  takes.range.contains(item.number);
    if (!fits) return wrong(key, text("has ", describe(item), " as entry ", i + 1));
  }
  return std::nullopt;
}

/// A batch-size schedule: [rows, epochs] pairs. The last pair has 0 epochs and is for the rest of the run.
std::optional<Finding> check_batches(const SettingKey& key, const TomlValue& value) {
  constexpr double kMostEpochs = 1e6;
  const auto bad = [&](std::string_view what) {
    return invalid(text(what, ", but takes [rows, epochs] pairs, the last with 0 epochs, as in ", key.name,
                        " = [[64, 10], [128, 10], [256, 0]]"));
  };
  const std::size_t count = value.items.size();
  if (count == 0 || count > key.takes.most_items)
    return bad(text("has ", count, " entries, from 1 to ", key.takes.most_items, " can be"));
  for (std::size_t i = 0; i < count; ++i) {
    const TomlValue& pair = value.items[i];
    if (pair.kind != Kind::array || pair.items.size() != 2)
      return bad(text("has ", describe(pair), " as entry ", i + 1));
    const TomlValue& rows = pair.items[0];
    const TomlValue& epochs = pair.items[1];
    if (rows.kind != Kind::integer || !key.takes.range.contains(rows.number))
      return bad(text("has ", describe(rows), " as the rows of entry ", i + 1));
    const bool last = i + 1 == count;
    if (!is_number(epochs) || (last ? epochs.number != 0 : !(epochs.number > 0 && epochs.number <= kMostEpochs)))
      return bad(text("has ", describe(epochs), " as the epochs of entry ", i + 1));
  }
  return std::nullopt;
}

/// Whether the text would be valid without its quotes.
bool fits_unquoted(const SettingKey& key, const TomlValue& value) {
  if (value.kind != Kind::text) return false;
  const auto inner = parse_toml_value(value.text);
  return inner && inner->kind != Kind::text && kind_fits(key.takes.kind, *inner);
}

}  // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words) {
  constexpr std::size_t kLongest = 40;  // a longer word is not a typing error
  constexpr std::size_t kShortestInside = 4;
  if (word.empty() || word.size() > kLongest) return {};
  const std::string wanted = lower(word);
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(wanted.size() / 3, 1) + 1;
  for (const std::string_view candidate : words) {
    const std::size_t distance = edit_distance(wanted, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (!best.empty()) return best;
  for (const std::string_view candidate : words) {
    const auto inside = [](std::string_view part, std::string_view whole) {
      return part.size() >= kShortestInside && whole.find(part) != std::string_view::npos;
    };
    if (inside(candidate, wanted) || inside(wanted, candidate)) return candidate;
  }
  return {};
}

const std::vector<std::string_view>& sections() {
  static const std::vector<std::string_view> kSections = [] {
    std::vector<std::string_view> found;
    for (const std::string_view name : all_keys())
      if (std::ranges::find(found, section_of(name)) == found.end()) found.push_back(section_of(name));
    return found;
  }();
  return kSections;
}

std::string expected(const SettingKey& key) {
  const Takes& takes = key.takes;
  const auto range = [&](std::string_view one) {
    const bool open_end = takes.range.high > 9e18;
    if (open_end) return text(one, " of at least ", number_text(takes.range.low));
    if (takes.range.above_low) {
      return text(one, " above ", number_text(takes.range.low), " and at most ", number_text(takes.range.high));
    }
    const bool whole = takes.kind != ValueKind::number && takes.kind != ValueKind::numbers;
    const auto bound = [&](double x) { return whole ? std::to_string(static_cast<std::int64_t>(x)) : number_text(x); };
    return text(one, " from ", bound(takes.range.low), " to ", bound(takes.range.high));
  };
  const std::string items = text("an array of ", takes.least_items, " to ", takes.most_items);
  switch (takes.kind) {
    case ValueKind::text: return "text in quotes";
    case ValueKind::hosts: return "text in quotes, or an array of hosts";
    case ValueKind::switches: return "an array of tables";
    case ValueKind::layers: return "an array of layers";
    case ValueKind::boolean: return "true or false";
    case ValueKind::integer: return range("an integer");
    case ValueKind::number: return range("a number");
    case ValueKind::integers: return text(items, " integers, ", range("each"));
    case ValueKind::numbers: return text(items, " numbers, ", range("each"));
    case ValueKind::texts: return text(items, " texts in quotes");
    case ValueKind::batches: return text(range("an integer"), ", or an array of [rows, epochs] pairs");
    case ValueKind::choice:
    case ValueKind::count_or_choice: break;
  }
  std::vector<std::string_view> words;
  for (const Choice& choice : takes.choices)
    if (choice.built) words.push_back(choice.name);
  const std::string choices = (words.size() == 1 ? "" : "one of ") + quoted_list(words, ", ");
  return takes.kind == ValueKind::choice ? choices : text(range("an integer"), ", or ", choices);
}

std::optional<Finding> check_value(const SettingKey& key, const TomlValue& value) {
  const Takes& takes = key.takes;
  const auto found = text("is ", describe(value));
  if (!kind_fits(takes.kind, value)) return wrong(key, found, fits_unquoted(key, value) ? " (without quotes)" : "");
  const bool has_range = takes.range.low < takes.range.high;
  if (has_range && is_number(value) && !takes.range.contains(value.number)) return wrong(key, found);  // nan too
  const bool is_word = takes.kind == ValueKind::count_or_choice && value.kind == Kind::text;
  if (takes.kind == ValueKind::choice || is_word) return check_choice(key, value);
  if (takes.most_items > 0 && value.kind == Kind::array)
    if (auto finding = takes.kind == ValueKind::batches ? check_batches(key, value) : check_items(key, value))
      return finding;
  if (value.kind == Kind::text && value.text.find('\0') != std::string::npos)
    return invalid("holds a zero character, which no path can: leave \\u0000 out");
  return takes.check == nullptr ? std::nullopt : takes.check(value);
}

std::optional<Finding> check_planned(const PlannedKey& key, const TomlValue& value) {
  if (!key.neutral.empty() && to_toml(value) == key.neutral) return std::nullopt;
  if (key.neutral.empty()) {
    return Finding{Code::unsupported, text("is planned and not in this build; today: ", key.today)};
  }
  return Finding{Code::unsupported,
                 text("is ", describe(value), ", which is planned and not in this build; today only ", key.name, " = ",
                      key.neutral, " works")};
}

std::string advise(std::string_view unknown_key) {
  const bool alone = unknown_key.find('.') == std::string_view::npos;
  std::string_view section = alone ? std::string_view{} : section_of(unknown_key);
  const std::string_view leaf = leaf_of(unknown_key);
  const bool section_known = std::find(sections().begin(), sections().end(), section) != sections().end();
  if (!section_known && !section.empty()) section = nearest(section, sections());

  const auto belongs = [&](std::string_view name) {
    return text(leaf, " belongs to [", section_of(name), "]: write ", name);
  };
  const std::string plain = lower(leaf);
  for (const std::string_view name : all_keys()) {  // only the section or the case of letters is wrong
    if (leaf_of(name) == plain && section_of(name) == section) return text("did you mean ", name, "?");
  }
  if (const auto name = known_elsewhere_as(section, plain); !name.empty()) return text("here it is called ", name);
  for (const std::string_view name : all_keys()) {
    if (leaf_of(name) == plain) return belongs(name);
  }
  const auto leaves = leaves_of(section);
  if (const auto near = nearest(leaf, leaves); !near.empty()) return text("did you mean ", section, ".", near, "?");
  if (alone) {
    if (const auto near = nearest(leaf, sections()); !near.empty())
      return text("did you mean the section [", near, "]?");
  }
  std::vector<std::string_view> others;
  if (!section_known) {  // a leaf written in an existing section belongs there
    for (const std::string_view name : all_keys()) others.push_back(leaf_of(name));
  }
  if (const auto near = nearest(leaf, others); !near.empty()) {
    for (const std::string_view name : all_keys()) {
      if (leaf_of(name) == near) return text("did you mean ", name, "?");
    }
  }
  if (!section.empty()) return text("[", section, "] takes ", joined(leaves));
  return text("the sections are ", joined(sections()));
}

std::string_view meant_key(std::string_view word) {
  const std::string plain = lower(word);
  if (const auto name = known_elsewhere_as({}, plain); !name.empty()) return name;
  for (const SettingKey& key : setting_keys()) {
    if (key.name == plain) return key.name;
  }
  std::vector<std::string_view> leaves;
  for (const SettingKey& key : setting_keys()) leaves.push_back(leaf_of(key.name));
  const std::string_view near = nearest(plain, leaves);
  const auto meant = std::ranges::find(setting_keys(), near, [](const SettingKey& key) { return leaf_of(key.name); });
  return near.empty() ? near : meant->name;
}

}  // namespace troupe::detail
