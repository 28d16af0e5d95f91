#pragma once

#include <array>
#include <string_view>

namespace troupe::rtrun {

/// A verb of rtrun's command line: for its help, for completion, and to find what a misspelt word meant.
struct VerbWord {
  std::string_view name;
  std::string_view help;
};
inline constexpr std::array<VerbWord, 6> kVerbWords{
    {{"check", "Print the effective settings and where each came from; runs nothing"},
     {"plan", "Print where each rank would run and what it would need; runs nothing"},
     {"control", "Ask a run to switch its policy, to rebuild, to stop, or to print what it is doing"},
     {"timeline", "Draw one step of a run's trace as a picture"},
     {"reference", "Print every key of app.toml, or every kind of layer, as Markdown"},
     {"completion", "Print a script with which a shell completes rtrun's arguments"}}};

struct OptionWord {
  std::string_view name;  // without the dashes
  std::string_view help;
  std::string_view value;  // the name of its argument; empty: it takes none
  bool of_verbs = false;   // check and plan take it, too
  bool of_plan = false;    // plan takes it, too
};
inline constexpr std::array<OptionWord, 7> kOptionWords{{{"set", "override a value", "a.b=c", true},
                                                         {"resume", "resume from a checkpoint", "auto|never|PATH"},
                                                         {"trace", "write a trace of the run", "FILE"},
                                                         {"quiet", "only the last line and errors", ""},
                                                         {"json", "JSON on stdout", "", false, true},
                                                         {"version", "print versions", ""},
                                                         {"help", "print help", "", true}}};
/// Options of plan alone.
inline constexpr std::array<OptionWord, 6> kPlanOptionWords{
    {{"nodes", "machines from files", "FILE:N,..."},
     {"ranks", "ranks on these machines together", "N"},
     {"what-if", "plan for a number of ranks, GPUs or nodes", "ranks=N"},
     {"svg", "write a picture", "FILE"},
     {"figures", "what was measured", "FILE"},
     {"compare", "print predicted against measured", "REPORT"}}};

}  // namespace troupe::rtrun
