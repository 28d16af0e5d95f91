#include <fmt/format.h>

#include "tools/rttopo/cli.hpp"

namespace troupe::rttopo {
namespace {

constexpr std::string_view kVerbs = "show matrix bench diff explain doctor import export env completion";
constexpr std::string_view kOptions =
    "--input --nodes --run --figures --json --all --svg --schema --rules --format --out --repeats --ms --hosts "
    "--remote-shell "
    "--help "
    "--version";
constexpr std::string_view kFormats = "json hwloc nccl dot svg simgrid";
constexpr std::string_view kShells = "bash zsh fish";

}  // namespace

std::string completion_script(std::string_view shell) {
  if (shell == "bash") {
    return fmt::format(R"script(# Completion of rttopo for bash: source <(rttopo completion bash)
_rttopo() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  case "$previous" in
    --format) COMPREPLY=($(compgen -W '{2}' -- "$current")); return ;;
    completion) COMPREPLY=($(compgen -W '{3}' -- "$current")); return ;;
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W '{1}' -- "$current")) ;;
    *) if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W '{0}' -- "$current"))
       else compopt -o filenames 2> /dev/null; COMPREPLY=($(compgen -f -- "$current")); fi ;;
  esac
}}
complete -F _rttopo rttopo
)script",
                       kVerbs, kOptions, kFormats, kShells);
  }
  if (shell == "zsh") {
    return fmt::format(R"script(#compdef rttopo
# Completion of rttopo for zsh: source <(rttopo completion zsh), after compinit
_rttopo() {{
  case "${{words[CURRENT-1]}}" in
    --format) compadd -- {2}; return ;;
    completion) compadd -- {3}; return ;;
  esac
  if [[ "${{words[CURRENT]}}" == -* ]]; then compadd -- {1}
  elif (( CURRENT == 2 )); then compadd -- {0}
  else _files; fi
}}
if [ "$funcstack[1]" = _rttopo ]; then _rttopo "$@"; else compdef _rttopo rttopo; fi
)script",
                       kVerbs, kOptions, kFormats, kShells);
  }
  if (shell == "fish") {
    return fmt::format(
        R"script(# Completion of rttopo for fish: rttopo completion fish > ~/.config/fish/completions/rttopo.fish
complete -c rttopo -n __fish_use_subcommand -f -a '{0}'
complete -c rttopo -n '__fish_seen_subcommand_from completion' -f -a '{3}'
for word in repeats ms hosts remote-shell
  complete -c rttopo -l $word -x
end
complete -c rttopo -l format -x -a '{2}'
for word in input nodes run figures svg out
  complete -c rttopo -l $word -r
end
for word in json all schema rules help version
  complete -c rttopo -l $word
end
)script",
        kVerbs, kOptions, kFormats, kShells);
  }
  return {};
}

}  // namespace troupe::rttopo
