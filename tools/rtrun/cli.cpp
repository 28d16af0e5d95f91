#include "tools/rtrun/cli.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "tools/rtrun/command_words.hpp"
#include "tools/rtrun/completion.hpp"
#include "tools/rtrun/reference.hpp"
#include "tools/rtrun/typos.hpp"
#include "tools/rtrun/version.hpp"

namespace troupe::rtrun {
namespace {

constexpr const char* kTrainFooter =
    R"(Without a launcher, rtrun starts the ranks that cluster.nodes names: "local:N" on this machine, or ranks on several hosts
by cluster.remote_shell (ssh). If a launcher starts rtrun once for each rank (mpirun, srun --mpi=pmix, or any that sets RANK
WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT), each rtrun is one rank.
With `-- PROGRAM ARGUMENTS` at the end, rtrun starts this program as each rank, with the variables above; the program starts a
session itself (docs/embedding.md). rtrun uses cluster, faults and report of the file, passes signals on, and ends with the
program's exit code.
Ctrl-C or SIGTERM ends the run after the current step and saves a checkpoint; a second one ends it at once.
kill -USR1 to rtrun or to a rank prints on stderr what each rank is doing.

Examples:
  rtrun apps/mnist/app.toml                              train
  rtrun apps/mnist/app.toml --set train.epochs=5         train with another value than the file's
  rtrun --resume auto apps/mnist/app.toml                resume from the newest checkpoint
  rtrun --json apps/mnist/app.toml | jq .                for programs: one JSON object per line
  rtrun app.toml -- ./my_program app.toml                run your own program as the ranks
  rtrun check apps/mnist/app.toml                        print each setting, and where its value came from
  rtrun control run switch local_sgd every_steps=8       change the policy during training
  source <(rtrun completion bash)                        completion for this shell

Files that a run writes into report.dir (run/):
  report.html    the run as a page, for any browser, also while it is running
  report.json    the run's figures for programs; rtrun plan --compare reads it
  log            an entry per epoch, JSON as ChainerMN's LogReport writes it; log.csv: the same as a table
  rank-N.log     the output of rank N, N > 0; messages of rtrun itself are shown on stderr too
  checkpoints/   see `ckpt --help`

Lines of --json: "event" is "started", "progress", "epoch" or "finished". The last line has a "status": "finished", "stopped",
or "failed" with "error" and "exit_code". A run that a signal ends before its first step prints no last line.

Environment:
  TROUPE_DATA          a folder that contains mnist/; used if the folder that data.path names contains no data
  XDG_CACHE_HOME       the folder in which generated digits are kept (default: ~/.cache)
  RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT   this process's rank and its job, from a launcher
  TROUPE_SECRET_FILE   a file (mode 0600) with the secret that ranks on several hosts share, if rtrun does not start them
  NO_COLOR             if set, rtrun prints no colours
  TERM                 "dumb": no colours and no progress bar. Output that is not a terminal never has either
  UCX_*                settings of UCX, which carries messages between processes

Exit codes: 0 done, 1 failed, 2 bad configuration, 3 environment, 4 a rank was lost,
75 ended by SIGTERM with a checkpoint to resume from, 128+n stopped by signal n.)";

constexpr const char* kCheckFooter =
    R"(Prints a line for each setting: its value and its origin (file:line:column, --set, or default), then the data that
a run would use. For every mistake in the file it prints the place and what to write instead.

Examples:
  rtrun check apps/mnist/app.toml
  rtrun check apps/mnist/app.toml --set data.batch=50

Environment: TROUPE_DATA as for a run.
Exit codes: 0 the configuration is good, 2 it is not.)";

constexpr const char* kPlanFooter =
    R"(Prints the plan of a run on this machine; the run itself makes the same plan. It contains the model, the data, each rank's
cores, NUMA nodes, network device and memory, what the machine has of these, how gradients would be exchanged, and why. It also
predicts how long a step will take, from the figures that `rttopo bench` measured (docs/topology.md). --compare prints this
prediction next to the times that a run of this configuration measured, part by part.

A number with ~ before it is a guess: a figure that it needs was not measured but modelled (for GPUs from their peak rates, by
NVML or the model's data sheet; for links from the machine's description). The lines "figures" show which figures of GPUs were
measured. Numbers without ~ are computed from measured figures alone. Sizes of memory are computed from the model; the memory of
libraries is estimated.

--nodes plans for other machines. Each FILE describes one (hwloc's XML, as written by lstopo FILE.xml; NCCL's XML; or the JSON of
`rttopo show --json`), and :N is the number of such machines. placement.mesh = "NODESxRANKS" sets the number of ranks on each
machine; otherwise placement.policy does: auto: one for each GPU, or for each NUMA node if there is no GPU; spread: one for each
NUMA node; pack: as many as the cores suffice for.
--what-if plans for a number of ranks (ranks=N), or of GPUs with one rank near each (gpus=N), on as many machines of one kind as
these need; nodes=N sets the number of machines. Ranks near GPUs compute on cores, unless placement.device = "cuda".

Examples:
  rtrun plan apps/mnist/app.toml
  rtrun plan apps/mnist/app.toml --set 'cluster.nodes="local:4"'
  rtrun plan apps/mnist/app.toml --nodes big.xml:4,small.json       five machines of two kinds
  rtrun plan apps/mnist/app.toml --nodes big.xml --ranks 8 --set placement.policy=spread
  rtrun plan apps/mnist/app.toml --nodes gpus.xml --what-if gpus=64 --svg plan.svg
  rtrun plan apps/mnist/app.toml --what-if ranks=16                 on as many machines like this one as 16 ranks need
  rtrun plan apps/mnist/app.toml --nodes gpus.xml --what-if gpus=16 --set placement.device=cuda    a step on GPUs
  rtrun plan apps/mnist/app.toml --compare run/report.json
  rtrun plan apps/mnist/app.toml --json | jq .step.ms

Environment: TROUPE_DATA as for a run.
Exit codes: 0 there is a plan, 2 bad configuration, or no plan is possible (the message names what is missing),
3 this machine cannot run the job, or a file cannot be read or written.)";

constexpr const char* kControlFooter =
    R"(Sends a request to a run. RUN is the folder into which the run writes (report.dir). Use this command on the machine of rank
0, as the same user.

  switch POLICY [key=value ...]   from one of the next steps on, all ranks use this policy, with these settings of
                                  [update]; later entries of update.switch are ignored
  rebuild                         after one of the next steps, make plan, memory, exchange and actors again in the
                                  same processes, and continue from the state in memory. With
                                  placement.split = "measured" the new plan uses the measured shares
  stop                            end after the current steps, with a checkpoint if the run saves any
  describe                        print what rank 0 is doing
  machines                        print the machines of all nodes as JSON (rttopo show --run RUN shows them)

A run refuses a policy for which it has reserved no memory. It reserves memory for all policies in update.switch.

Examples:
  rtrun control run switch local_sgd every_steps=16
  rtrun control run switch sync
  rtrun control run rebuild
  rtrun control run stop

Exit codes: 0 done, 1 the run refused or did not answer, 2 no such request, 3 no run is active in this folder.)";

constexpr const char* kTimelineFooter =
    R"(Draws what each stream, lane, link and actor did during one step, a row for each.

Examples:
  rtrun --trace trace.json apps/mnist/app.toml      train, and write a trace
  rtrun timeline trace.json                         draw a step in the middle of the trace, as trace.svg
  rtrun timeline trace.json --step 40 -o step.svg

The trace itself opens in Perfetto (ui.perfetto.dev) and in Chrome (chrome://tracing).
Exit codes: 0 done, 2 no such trace or step, 3 the picture cannot be written.)";

constexpr const char* kCompletionFooter =
    R"(Completes commands, options, and after --set the keys of app.toml and their values.

Examples:
  source <(rtrun completion bash)                                       this bash, or in ~/.bashrc
  source <(rtrun completion zsh)                                        this zsh, after compinit
  rtrun completion fish > ~/.config/fish/completions/rtrun.fish         every new fish shell

Exit codes: 0 done, 2 unknown shell.)";

constexpr const char* kReferenceFooter =
    R"(Prints docs/app-toml.md or docs/layers.md as this rtrun knows them.

Examples:
  rtrun reference                                       every key, its type, range, default and meaning
  rtrun reference layers                                the kinds of layers and their attributes

Exit codes: 0 done, 2 wrong use.)";

/// As a TOML string.
std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// Reads "ranks=16,nodes=4"; throws Error{invalid}.
void take_what_if(const std::vector<std::string>& wishes, WhatIf& what_if) {
  for (const std::string& wish : wishes) {
    for (const std::string& word : split(wish, ',')) {
      const std::size_t equals = std::min(word.find('='), word.size());
      const std::string name = word.substr(0, equals);
      std::uint32_t* const to = name == "nodes"   ? &what_if.nodes
                                : name == "ranks" ? &what_if.ranks
                                : name == "gpus"  ? &what_if.gpus
                                                  : nullptr;
      const auto number = number_in<std::uint32_t>(word.substr(std::min(equals + 1, word.size()))).value_or(0);
      TROUPE_CHECK(to != nullptr && number >= 1 && number <= kMostHypotheticalRanks, Code::invalid,
                   "--what-if takes nodes=N, ranks=N or gpus=N, with N from 1 to ", kMostHypotheticalRanks,
                   ", and not ", word);
      *to = number;
    }
  }
}

/// Prints on `err` what is wrong with the command line.
Answered refuse(const std::string& what, std::ostream& err) {
  err << "rtrun: error: " << what << (what.ends_with('\n') ? "" : "\nRun with --help for more information.\n");
  return {2};
}

Answered usage_error(const CLI::App& app, const CLI::ParseError& error, std::span<const char* const> words,
                     std::ostream& out, std::ostream& err) {
  std::ostringstream text;
  if (app.exit(error, out, text) == 0) return {0};
  const std::string explanation = explain_typo(words);
  return refuse(explanation.empty() ? text.str() : explanation, err);
}

/// The words before "--", with what they are read into.
class Parser {
 public:
  explicit Parser(CommandLine& line) : line_(line) {
    app_.footer(kTrainFooter);
    app_.set_help_flag("-h,--help", "Print this help");
    add_training();
    add_common(check_);
    add_plan();
    add_control_and_timeline();
    completion_.add_option("SHELL", shell_, "bash, zsh or fish");
    reference_.add_option("PAGE", page_, "app.toml or layers; default: app.toml")
        ->check(CLI::IsMember({"app.toml", "layers"}));
    app_.require_subcommand(0, 1);
  }

  /// Throws CLI::ParseError, Error{invalid}.
  void read(int argc, const char* const* argv) {
    app_.parse(argc, argv);
    TROUPE_CHECK(plan_.count("--nodes") == 0 || !nodes_.empty(), Code::invalid,
                 "--nodes is empty; write FILE:N,FILE:N, or leave it out for this host");
    line_.nodes = rttopo::file_counts(nodes_);
    take_what_if(what_if_, line_.what_if);
    if (app_.count("--resume") > 0) line_.overrides.push_back("checkpoint.resume=" + in_quotes(resume_));
    if (app_.count("--trace") > 0) line_.overrides.push_back("report.trace=" + in_quotes(trace_));
    for (const auto& [verb, app] : {std::pair{Verb::check, &check_},
                                    {Verb::plan, &plan_},
                                    {Verb::control, &control_},
                                    {Verb::timeline, &timeline_}})
      if (app->parsed()) line_.verb = verb;
  }

  /// If the command line asks for text alone: prints it.
  std::optional<Answered> answer(std::ostream& out, std::ostream& err) const {
    std::string text;
    if (version_)
      text = version_text();
    else if (reference_.parsed())
      text = page_ == "layers" ? layers_page() : reference_page();
    else if (completion_.parsed())
      text = completion_script(shell_);
    else
      return std::nullopt;
    if (text.empty())
      return refuse(fmt::format("there is completion for {}: write `rtrun completion bash`\n", kShells), err);
    out << text;
    return Answered{0};
  }

  /// What is wrong with a command line whose words are all known; empty: nothing.
  std::string mistake(std::span<const char* const> words) const {
    if (!line_.program.empty() && line_.verb != Verb::train)
      return "check, plan, control and timeline run nothing, and take no program after --\n";
    if (!line_.program.empty() && line_.json)
      return "--json changes what rtrun itself prints, and cannot be used with a program after --\n";
    if (line_.verb == Verb::control || line_.verb == Verb::timeline) return {};
    if (line_.file.empty() && resume_.ends_with(".toml"))
      return fmt::format(
          "{0} is the value of --resume here, which takes auto, never or the path of a checkpoint; write `rtrun "
          "--resume auto {0}`",
          resume_);
    if (line_.file.empty())
      return fmt::format(
          "app.toml is required: name the configuration to use, for example `rtrun {}apps/mnist/app.toml`",
          check_.parsed()  ? "check "
          : plan_.parsed() ? "plan "
                           : "");
    return explain_typo(words);
  }

  const CLI::App& app() const noexcept { return app_; }

 private:
  CLI::App& verb(std::string_view name, const char* footer) {
    const auto* const word = std::ranges::find(kVerbWords, name, &VerbWord::name);
    CLI::App& made = *app_.add_subcommand(std::string{name}, std::string{word->help});
    made.footer(footer);
    return made;
  }

  /// Every verb takes a file and --set. The default verb's file cannot be `required` here, since CLI11 would then
  /// require it before a subcommand, too.
  void add_common(CLI::App& app) {
    app.add_option("app.toml", line_.file, "The job's configuration");
    app.add_option("--set", line_.overrides, "Override a value: --set data.batch=50 (may be repeated)")
        ->type_name("a.b=c")
        ->allow_extra_args(false);
  }

  void add_training() {
    app_.add_option("--resume", resume_,
                    "auto: resume from the newest checkpoint, if there is one; never; or the path of a checkpoint")
        ->type_name("auto|never|PATH");
    app_.add_option("--trace", trace_, "Write a trace of the run, in the JSON of Chrome's tracing and Perfetto")
        ->type_name("FILE");
    app_.add_flag("--version", version_, "Print the versions of troupe and of the libraries that it was built with");
    app_.add_flag("-q,--quiet", line_.quiet, "No header, table or progress: only the last line, warnings and errors");
    app_.add_flag("--json", line_.json, "Print one JSON object per line on stdout, and nothing else there");
    add_common(app_);
  }

  void add_plan() {
    add_common(plan_);
    plan_
        .add_option("--nodes", nodes_, "Machines to plan for: files that describe them, and how many there are of each")
        ->type_name("FILE:N,...");
    plan_.add_option("--ranks", line_.ranks, "The number of ranks on all these machines together")
        ->type_name("N")
        ->check(CLI::Range(1u, kMostHypotheticalRanks));
    plan_.add_option("--what-if", what_if_, "Plan for this number of ranks, GPUs or nodes (may be repeated)")
        ->type_name("ranks=N|gpus=N|nodes=N")
        ->allow_extra_args(false);
    plan_.add_option("--svg", line_.picture, "Write a picture instead")->type_name("FILE");
    plan_.add_option("--figures", line_.figures, "Figures that `rttopo bench` wrote; default: those of this host")
        ->type_name("FILE");
    plan_.add_flag("--json", line_.json, "Print the same numbers as one JSON object");
    plan_.add_option("--compare", line_.compare, "The report.json of a run: print predicted next to measured times")
        ->type_name("REPORT");
  }

  void add_control_and_timeline() {
    control_.add_option("RUN", line_.run, "The run's folder: its report.dir")->required();
    control_.add_option("REQUEST", line_.request, "switch POLICY [key=value ...], rebuild, stop, describe or machines")
        ->required();
    timeline_.add_option("TRACE", line_.file, "The file that rtrun --trace wrote")->required();
    timeline_.add_option("--step", line_.step, "The step; default: one in the middle of the trace");
    timeline_.add_option("-o,--out", line_.picture, "The SVG file to write; default: TRACE with .svg instead of .json");
  }

  CommandLine& line_;
  bool version_ = false;
  std::string resume_, trace_, nodes_, shell_, page_ = "app.toml";
  std::vector<std::string> what_if_;
  CLI::App app_{"rtrun trains what app.toml describes.", "rtrun"};
  CLI::App& check_ = verb("check", kCheckFooter);
  CLI::App& plan_ = verb("plan", kPlanFooter);
  CLI::App& control_ = verb("control", kControlFooter);
  CLI::App& timeline_ = verb("timeline", kTimelineFooter);
  CLI::App& completion_ = verb("completion", kCompletionFooter);
  CLI::App& reference_ = verb("reference", kReferenceFooter);
};

}  // namespace

std::variant<CommandLine, Answered> parse_command_line(int argc, const char* const* argv, std::ostream& out,
                                                       std::ostream& err) {
  const std::span words{argv + std::min(argc, 1), argv + argc};
  CommandLine line;
  const char* const* const all = argv + argc;
  const char* const* const own =
      std::find_if(argv, all, [](const char* word) { return std::string_view{word} == "--"; });
  if (own != all) line.program.assign(own + 1, all);
  if (own != all && line.program.empty())
    return refuse("there is no program after --: write `rtrun app.toml -- ./program its arguments`\n", err);
  Parser parser{line};
  try {
    parser.read(static_cast<int>(own - argv), argv);
  } catch (const CLI::ParseError& error) {
    return usage_error(parser.app(), error, words, out, err);
  } catch (const Error& error) {
    return refuse(error.what(), err);
  }
  if (const auto answered = parser.answer(out, err)) return *answered;
  if (const std::string what = parser.mistake(words); !what.empty()) return refuse(what, err);
  return line;
}

}  // namespace troupe::rtrun
