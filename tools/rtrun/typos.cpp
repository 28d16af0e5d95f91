#include "tools/rtrun/typos.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/config/detail/schema.hpp"
#include "tools/rtrun/command_words.hpp"

namespace troupe::rtrun {
namespace {

template <class Words>
std::string_view nearest_of(std::string_view word, const Words& words) {
  std::vector<std::string_view> names;
  for (const auto& each : words) names.push_back(each.name);
  return detail::nearest(word, names);
}

/// The option that `word` ("--set=a.b=c") names, of the verb `verb` or of rtrun itself; null: there is none.
const OptionWord* option_of(std::string_view word, std::string_view verb) {
  if (!word.starts_with("--")) return nullptr;
  const std::string_view name = word.substr(2, word.find('=') - 2);
  const auto called = [&](const OptionWord& option) { return option.name == name; };
  if (const auto at = std::ranges::find_if(kOptionWords, called); at != kOptionWords.end()) return &*at;
  if (verb != "plan") return nullptr;
  const auto at = std::ranges::find_if(kPlanOptionWords, called);
  return at != kPlanOptionWords.end() ? &*at : nullptr;
}

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool exists(std::string_view path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable);
}

/// Whether it is an option with which other programs set the number of processes.
bool counts_processes(std::string_view name) {
  constexpr std::array<std::string_view, 7> kNames{"n",        "np",         "nproc",    "nproc_per_node",
                                                   "num_proc", "world_size", "processes"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Explains `word`, an option that rtrun does not have; `next` is the word after it, or empty.
std::string explain_option(std::string_view word, std::string_view next) {
  const std::size_t equals = word.find('=');
  const std::string_view shown = word.substr(0, equals);
  std::string name{shown.substr(std::min(shown.find_first_not_of('-'), shown.size()))};
  std::replace(name.begin(), name.end(), '-', '_');
  const std::string_view near = nearest_of(name, kOptionWords);
  const std::string_view behind = is_option(next) || next.ends_with(".toml") ? "" : next;
  const std::string_view value = equals == word.npos ? behind : word.substr(equals + 1);
  const std::string_view key = detail::meant_key(name);
  if (counts_processes(name) || (key == "cluster.nodes" && is_number(value))) {
    return fmt::format(
        "unknown option {0}: cluster.nodes says how many processes there are; write --set cluster.nodes=local:{1}, or "
        "let a launcher start rtrun (mpirun -n {1} rtrun app.toml)",
        shown, is_number(value) ? value : "2");
  }
  const bool same_letters = !near.empty() && near.size() + 1 >= name.size() && name.size() + 1 >= near.size();
  if (!key.empty() && !same_letters)
    return fmt::format("unknown option {}: settings of the job are given as --set; write --set {}={}", shown, key,
                       value.empty() ? "VALUE" : value);
  if (!near.empty()) return fmt::format("unknown option {}; did you mean --{}?", shown, near);
  return {};
}

/// Explains `word`, which is where app.toml or a verb is expected; behind the name of a file no words follow.
std::string explain_first(std::string_view word, bool words_follow) {
  if (word.find_first_of("./=") != word.npos || exists(word)) return {};
  const std::string_view near = nearest_of(word, kVerbWords);
  if (near == word) return {};
  if (!near.empty()) return fmt::format("unknown command {0}; did you mean {1}?", word, near);
  if (!words_follow) return {};
  std::string verbs;
  for (const auto& verb : kVerbWords) verbs += fmt::format("{}{}", verbs.empty() ? "" : ", ", verb.name);
  return fmt::format("unknown command {}; the commands are {}, and `rtrun app.toml` trains", word, verbs);
}

}  // namespace

std::string explain_typo(std::span<const char* const> words) {
  std::vector<std::string_view> others;  // words that are neither options nor their values
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--") break;
    if (!is_option(word)) {
      others.push_back(word);
      continue;
    }
    if (const OptionWord* const option = option_of(word, others.empty() ? std::string_view{} : others.front())) {
      if (!option->value.empty() && word.find('=') == word.npos) ++i;
      continue;
    }
    if (word == "-q" || word == "-h") continue;
    return explain_option(word, i + 1 < words.size() ? std::string_view{words[i + 1]} : std::string_view{});
  }
  if (others.empty()) return {};
  if (const std::string verb = explain_first(others.front(), others.size() > 1); !verb.empty()) return verb;
  const bool of_verb = others.front() == "control" || others.front() == "completion";
  for (const std::string_view word : others) {
    if (!of_verb && word.find('=') != word.npos && word.find('.') < word.find('=') && !exists(word))
      return fmt::format("unexpected word {0}: settings are given as --set {0}", word);
  }
  return {};
}

}  // namespace troupe::rtrun
