#pragma once

#include <array>
#include <string_view>

namespace troupe::rtrun {

/// A verb of rtrun's command line: for completion, and to find what a misspelt word meant.
struct VerbWord {
  std::string_view name;
  std::string_view help;
};
inline constexpr std::array<VerbWord, 6> kVerbWords{
    {{"check", "print the effective settings; runs nothing"},
     {"plan", "print who would run where; runs nothing"},
     {"control", "ask a run for another policy or view, or its end"},
     {"timeline", "draw a step of a run's trace"},
     {"reference", "print every key of app.toml, or every kind of layer"},
     {"completion", "print a completion script"}}};

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
