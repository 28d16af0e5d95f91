#include "tools/rtrun/completion.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "runtime/base/words.hpp"
#include "runtime/config/detail/schema.hpp"
#include "tools/rtrun/command_words.hpp"

namespace troupe::rtrun {
namespace {

constexpr std::array<std::string_view, 3> kShellNames{"bash", "zsh", "fish"};

/// The words that are possible after "KEY=".
std::vector<std::string> words_of(const detail::SettingKey& key) {
  std::vector<std::string> words;
  for (const detail::Choice& choice : key.takes.choices)
    if (choice.built) words.emplace_back(choice.name);
  if (key.takes.kind == detail::ValueKind::boolean) words = {"true", "false"};
  return words;
}

/// Quotes text for a POSIX shell in single quotes.
std::string in_single_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string{"'\\''"} : std::string(1, c);
  return out;
}

/// The same for fish.
std::string in_fish_quotes(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string{"\\'"} : std::string(1, c);
  return out;
}

std::string option_words(bool of_verbs) {
  std::vector<std::string> words;
  for (const OptionWord& option : kOptionWords)
    if (!of_verbs || option.of_verbs) words.push_back(fmt::format("--{}", option.name));
  return joined(words, " ");
}

std::string plan_option_words() {
  std::vector<std::string> words;
  for (const OptionWord& option : kPlanOptionWords) words.push_back(fmt::format("--{}", option.name));
  for (const OptionWord& option : kOptionWords)
    if (option.of_plan) words.push_back(fmt::format("--{}", option.name));
  return joined(words, " ") + ' ' + option_words(true);
}

std::string verb_words() {
  std::vector<std::string> words;
  for (const VerbWord& verb : kVerbWords) words.emplace_back(verb.name);
  return joined(words, " ");
}

/// Has a branch of `case` for the values of each key. The shell breaks words at "="; the script joins them again.
std::string bash_script() {
  std::string keys;
  std::string values;
  for (const detail::SettingKey& key : detail::setting_keys()) {
    keys += fmt::format("    {}=\n", key.name);
    if (const auto words = words_of(key); !words.empty())
      values += fmt::format("    {}) words='{}' ;;\n", key.name, joined(words, " "));
  }
  return fmt::format(R"script(# Completion of rtrun for bash: source <(rtrun completion bash)
_rtrun_words() {{  # the words of a key
  local words=''
  case "$1" in
{}  esac
  printf '%s' "$words"
}}
_rtrun() {{
  local line="${{COMP_LINE:0:COMP_POINT}}" current previous verb='' word
  local -a words
  read -r -a words <<< "$line"
  current=''
  case "$line" in *[[:space:]]) ;; *) current="${{words[-1]}}"; unset 'words[-1]' ;; esac
  previous="${{words[-1]-}}"
  for word in "${{words[@]:1}}"; do
    case "$word" in {}) verb="$word"; break ;; esac
  done
  COMPREPLY=()
  compopt +o nospace 2> /dev/null
  case "$previous" in
    --set)
      local key="${{current%%=*}}"
      if [ "$key" != "$current" ]; then
        # The shell takes "=" for the end of a word: what it replaces begins behind it.
        COMPREPLY=($(compgen -W "$(_rtrun_words "$key")" -- "${{current#*=}}"))
        case "$COMP_WORDBREAKS" in *=*) ;; *) COMPREPLY=("${{COMPREPLY[@]/#/$key=}}") ;; esac
      else
        COMPREPLY=($(compgen -W '
{}' -- "$current"))
        compopt -o nospace 2> /dev/null
      fi
      return ;;
    --resume)
      compopt -o filenames 2> /dev/null
      COMPREPLY=($(compgen -W 'auto never' -- "$current") $(compgen -d -- "$current"))
      return ;;
    --nodes|--svg)
      compopt -o filenames 2> /dev/null
      COMPREPLY=($(compgen -f -- "${{current##*,}}"))
      return ;;
    --what-if)
      COMPREPLY=($(compgen -W 'ranks= gpus= nodes=' -- "$current"))
      compopt -o nospace 2> /dev/null
      return ;;
    completion)
      COMPREPLY=($(compgen -W 'bash zsh fish' -- "$current"))
      return ;;
  esac
  case "$current" in
    -*)
      if [ "$verb" = plan ]; then COMPREPLY=($(compgen -W '{}' -- "$current"))
      elif [ -n "$verb" ]; then COMPREPLY=($(compgen -W '{}' -- "$current"))
      else COMPREPLY=($(compgen -W '{}' -- "$current")); fi ;;
    *)
      compopt -o filenames 2> /dev/null
      COMPREPLY=($(compgen -d -- "$current") $(compgen -f -X '!*.toml' -- "$current"))
      if [ -z "$verb" ]; then COMPREPLY+=($(compgen -W '{}' -- "$current")); fi ;;
  esac
}}
complete -F _rtrun rtrun
)script",
                     values, "check|plan|completion", keys, plan_option_words(), option_words(true),
                     option_words(false), verb_words());
}

std::string zsh_script() {
  std::string keys;
  std::string values;
  for (const detail::SettingKey& key : detail::setting_keys()) {
    keys += fmt::format("    '{}:{}'\n", key.name, in_single_quotes(key.help));
    if (const auto words = words_of(key); !words.empty())
      values += fmt::format("      {}) compadd -- {} ;;\n", key.name, joined(words, " "));
  }
  std::string verbs;
  for (const VerbWord& verb : kVerbWords) verbs += fmt::format("    '{}:{}'\n", verb.name, in_single_quotes(verb.help));
  std::string options;
  for (const OptionWord& option : kOptionWords) {
    const std::string_view action = option.name == "set"      ? ":a.b=c:_rtrun_settings"
                                    : option.name == "resume" ? ":checkpoint:_rtrun_resume"
                                                              : "";
    options += fmt::format("    '{}--{}[{}]{}' \\\n", option.name == "set" ? "*" : "", option.name,
                           in_single_quotes(option.help), action);
  }
  for (const OptionWord& option : kPlanOptionWords)
    options += fmt::format("    '--{}[plan: {}]:{}:{}' \\\n", option.name, in_single_quotes(option.help), option.value,
                           option.name == "nodes" || option.name == "svg" ? "_files" : "");
  return fmt::format(R"script(#compdef rtrun
# Completion of rtrun for zsh: source <(rtrun completion zsh), or as a file _rtrun in a folder of $fpath
_rtrun_settings() {{
  local -a keys
  keys=(
{})
  if compset -P 1 '*='; then
    case "${{IPREFIX%=}}" in
{}    esac
  else
    _describe -t settings 'setting' keys -S '='
  fi
}}
_rtrun_resume() {{
  compadd -- auto never
  _files -/
}}
_rtrun_first() {{
  local -a verbs
  verbs=(
{})
  _describe -t verbs 'verb' verbs
  _files -g '*.toml'
}}
_rtrun_rest() {{
  if (( ${{words[(I)completion]}} )); then compadd -- bash zsh fish; else _files -g '*.toml'; fi
}}
_rtrun() {{
  _arguments \
{}    '1:app.toml or verb:_rtrun_first' \
    '*::rest:_rtrun_rest'
}}
if [ "$funcstack[1]" = _rtrun ]; then _rtrun "$@"; else compdef _rtrun rtrun; fi
)script",
                     keys, values, verbs, options);
}

std::string fish_script() {
  std::string out = "# Completion of rtrun for fish: rtrun completion fish > ~/.config/fish/completions/rtrun.fish\n";
  out += "complete -c rtrun -f\n";
  out += "complete -c rtrun -n 'not __fish_seen_subcommand_from completion' -k -a '(__fish_complete_suffix .toml)'\n";
  for (const VerbWord& verb : kVerbWords)
    out +=
        fmt::format("complete -c rtrun -n __fish_use_subcommand -a {} -d '{}'\n", verb.name, in_fish_quotes(verb.help));
  out += "complete -c rtrun -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n";
  for (const OptionWord& option : kOptionWords) {
    if (option.name == "set") continue;
    out += fmt::format("complete -c rtrun {}-l {} -d '{}'{}\n",
                       option.of_verbs  ? ""
                       : option.of_plan ? "-n 'not __fish_seen_subcommand_from check completion' "
                                        : "-n 'not __fish_seen_subcommand_from check plan completion' ",
                       option.name, option.help,
                       option.name == "resume" ? " -r -a 'auto never (__fish_complete_directories)'" : "");
  }
  for (const OptionWord& option : kPlanOptionWords)
    out += fmt::format("complete -c rtrun -n '__fish_seen_subcommand_from plan' -l {} -r -d '{}'{}\n", option.name,
                       option.help, option.name == "what-if" ? " -f -a 'ranks= gpus= nodes='" : " -F");
  for (const detail::SettingKey& key : detail::setting_keys()) {
    out += fmt::format("complete -c rtrun -l set -x -a '{}=' -d '{}'\n", key.name, in_fish_quotes(key.help));
    for (const std::string& word : words_of(key))
      out += fmt::format("complete -c rtrun -l set -x -a '{}={}'\n", key.name, word);
  }
  return out + "complete -c rtrun -l set -x -d 'override a value, a.b=c'\n";  // the last description is the option's
}

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == kShellNames[0]) return bash_script();
  if (shell == kShellNames[1]) return zsh_script();
  if (shell == kShellNames[2]) return fish_script();
  return {};
}

}  // namespace troupe::rtrun
