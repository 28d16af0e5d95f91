#include <gtest/gtest.h>

#include <initializer_list>
#include <sstream>
#include <vector>

#include "tools/rtrun/cli.hpp"

namespace troupe::rtrun {
namespace {

struct Parsed {
  std::variant<CommandLine, Answered> result;
  std::string out;
  std::string err;
  const CommandLine& line() const { return std::get<CommandLine>(result); }
  int exit_code() const { return std::get<Answered>(result).exit_code; }
};

Parsed parse(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"rtrun"};
  argv.insert(argv.end(), arguments);
  std::ostringstream out;
  std::ostringstream err;
  auto result = parse_command_line(static_cast<int>(argv.size()), argv.data(), out, err);
  return {std::move(result), out.str(), err.str()};
}

TEST(CommandLine, TrainsWhenOnlyAFileIsGiven) {
  const Parsed parsed = parse({"job.toml"});
  EXPECT_EQ(parsed.line().verb, Verb::train);
  EXPECT_EQ(parsed.line().file, "job.toml");
}

TEST(CommandLine, KeepsOverridesInOrderOnEitherSideOfTheFile) {
  const Parsed parsed =
      parse({"--set", "data.batch=50", "job.toml", "--set", "model.units=[32,32]", "--set", "data.batch=60"});
  EXPECT_EQ(parsed.line().file, "job.toml");
  EXPECT_EQ(parsed.line().overrides,
            (std::vector<std::string>{"data.batch=50", "model.units=[32,32]", "data.batch=60"}));
}

TEST(CommandLine, TakesTheFileOfCheckAndPlanBehindTheVerb) {
  EXPECT_EQ(parse({"check", "job.toml"}).line().verb, Verb::check);
  const Parsed plan = parse({"plan", "job.toml", "--set", "data.batch=5"});
  EXPECT_EQ(plan.line().verb, Verb::plan);
  EXPECT_EQ(plan.line().file, "job.toml");
  EXPECT_EQ(plan.line().overrides, std::vector<std::string>{"data.batch=5"});
}

TEST(CommandLine, TakesMachinesAndNumbersToPlanFor) {
  const Parsed plan = parse({"plan", "job.toml", "--nodes", "a.xml:4,b.json", "--what-if", "gpus=16,nodes=2", "--svg",
                             "plan.svg", "--set", "data.batch=5"});
  ASSERT_EQ(plan.err, "");
  ASSERT_EQ(plan.line().nodes.size(), 2u);
  EXPECT_EQ(plan.line().nodes[0].file, "a.xml");
  EXPECT_EQ(plan.line().nodes[0].count, 4u);
  EXPECT_EQ(plan.line().what_if.gpus, 16u);
  EXPECT_EQ(plan.line().what_if.nodes, 2u);
  EXPECT_EQ(plan.line().picture, "plan.svg");
  EXPECT_EQ(parse({"plan", "job.toml", "--ranks", "8"}).line().ranks, 8u);
}

TEST(CommandLine, RefusesNumbersToPlanForThatMakeNoSense) {
  for (const char* wrong : {"gpus", "gpus=", "gpus=0", "gpus=x", "cores=4", "ranks=70000", "ranks=4x"}) {
    const Parsed parsed = parse({"plan", "job.toml", "--what-if", wrong});
    EXPECT_EQ(parsed.exit_code(), 2) << wrong;
    EXPECT_NE(parsed.err.find("--what-if takes nodes=N, ranks=N or gpus=N"), std::string::npos) << parsed.err;
  }
  EXPECT_EQ(parse({"plan", "job.toml", "--nodes", "a.xml:0"}).exit_code(), 2);
  EXPECT_EQ(parse({"plan", "job.toml", "--nodes", "a.xml,,b.xml"}).exit_code(), 2);
  EXPECT_EQ(parse({"plan", "job.toml", "--ranks", "0"}).exit_code(), 2);
  EXPECT_EQ(parse({"job.toml", "--nodes", "2"}).exit_code(), 2) << "only plan has it";
}

TEST(CommandLine, AnswersHelpWithExitCode0OnItsOutput) {
  const Parsed parsed = parse({"--help"});
  EXPECT_EQ(parsed.exit_code(), 0);
  EXPECT_NE(parsed.out.find("Exit codes"), std::string::npos);
  EXPECT_EQ(parsed.err, "");
}

TEST(CommandLine, HasExamplesExitCodesAndEnvironmentInTheHelpOfEveryVerb) {
  for (const auto& parsed : {parse({"--help"}), parse({"check", "--help"}), parse({"plan", "--help"})}) {
    EXPECT_EQ(parsed.exit_code(), 0);
    for (const char* what : {"Examples:", "Exit codes:", "Environment:", "--set"})
      EXPECT_NE(parsed.out.find(what), std::string::npos) << what << " is not in\n" << parsed.out;
  }
  EXPECT_NE(parse({"--help"}).out.find("NO_COLOR"), std::string::npos);
  EXPECT_NE(parse({"completion", "--help"}).out.find("source <(rtrun completion bash)"), std::string::npos);
  EXPECT_NE(parse({"reference", "--help"}).out.find("rtrun reference layers"), std::string::npos);
}

TEST(CommandLine, PrintsACompletionScriptAndNeedsNoFileForIt) {
  const Parsed parsed = parse({"completion", "bash"});
  EXPECT_EQ(parsed.exit_code(), 0);
  EXPECT_NE(parsed.out.find("complete -F _rtrun rtrun"), std::string::npos);
  for (const auto& wrong : {parse({"completion", "tcsh"}), parse({"completion"})}) {
    EXPECT_EQ(wrong.exit_code(), 2);
    EXPECT_EQ(wrong.out, "");
    EXPECT_NE(wrong.err.find("bash, zsh or fish"), std::string::npos) << wrong.err;
  }
}

TEST(CommandLine, TakesQuietAndJson) {
  EXPECT_TRUE(parse({"--json", "job.toml"}).line().json);
  EXPECT_TRUE(parse({"job.toml", "-q"}).line().quiet);
  EXPECT_FALSE(parse({"job.toml"}).line().json);
}

TEST(CommandLine, NamesTheVersionsOfWhatItStandsOn) {
  const Parsed parsed = parse({"--version"});
  EXPECT_EQ(parsed.exit_code(), 0);
  for (const char* name : {"troupe", "CAF", "UCX", "oneDNN"})
    EXPECT_NE(parsed.out.find(name), std::string::npos) << name;
}

TEST(CommandLine, RefusesAnUnknownOptionWithExitCode2) {
  const Parsed parsed = parse({"job.toml", "--nodes", "4"});
  EXPECT_EQ(parsed.exit_code(), 2);
  EXPECT_NE(parsed.err.find("--nodes"), std::string::npos) << parsed.err;
}

TEST(CommandLine, AsksForAFileWithExitCode2) {
  for (const auto& parsed : {parse({}), parse({"check"})}) {
    EXPECT_EQ(parsed.exit_code(), 2);
    EXPECT_NE(parsed.err.find("app.toml"), std::string::npos) << parsed.err;
  }
  EXPECT_NE(parse({"plan"}).err.find("`rtrun plan apps/mnist/app.toml`"), std::string::npos) << parse({"plan"}).err;
}

/// Exit code 2, and a message that begins with `message`.
void expect_refusal(const Parsed& parsed, const std::string& message) {
  ASSERT_TRUE(std::holds_alternative<Answered>(parsed.result)) << "taken, instead of: " << message;
  EXPECT_EQ(parsed.exit_code(), 2);
  EXPECT_EQ(parsed.err.substr(0, parsed.err.find('\n')), "rtrun: error: " + message);
}

TEST(CommandLine, NamesTheOptionOrCommandThatAMisspeltOneIsNearTo) {
  expect_refusal(parse({"--reusme", "auto", "job.toml"}), "unknown option --reusme; did you mean --resume?");
  expect_refusal(parse({"job.toml", "--sets", "data.batch=50"}), "unknown option --sets; did you mean --set?");
  expect_refusal(parse({"chekc", "job.toml"}), "unknown command chekc; did you mean check?");
  expect_refusal(parse({"pln"}), "unknown command pln; did you mean plan?");
  expect_refusal(
      parse({"sweep", "job.toml"}),
      "unknown command sweep; the commands are check, plan, control, timeline, reference, completion, and `rtrun "
      "app.toml` trains");
  expect_refusal(parse({"--trace", "trace.json", "timelin"}), "unknown command timelin; did you mean timeline?");
}

TEST(CommandLine, SaysWhichKeyAnOptionOfOtherProgramsIs) {
  const std::string set = ": settings of the job are given as --set; write --set ";
  expect_refusal(parse({"--epochs", "3", "job.toml"}), "unknown option --epochs" + set + "train.epochs=3");
  expect_refusal(parse({"job.toml", "--lr=0.1"}), "unknown option --lr" + set + "optimizer.rate=0.1");
  expect_refusal(parse({"--batch-size", "job.toml"}), "unknown option --batch-size" + set + "data.batch=VALUE");
}

TEST(CommandLine, PointsToClusterNodesForANumberOfProcesses) {
  for (const char* option : {"-np", "-n", "--nproc-per-node", "--nodes"}) {
    expect_refusal(parse({option, "4", "job.toml"}),
                   std::string{"unknown option "} + option +
                       ": cluster.nodes says how many processes there are; write --set cluster.nodes=local:4, or let "
                       "a launcher start rtrun (mpirun -n 4 rtrun app.toml)");
  }
}

TEST(CommandLine, SaysThatResumeTookTheFile) {
  expect_refusal(parse({"--resume", "job.toml"}),
                 "job.toml is the value of --resume here, which takes auto, never or the path of a checkpoint; write "
                 "`rtrun --resume "
                 "auto job.toml`");
}

TEST(CommandLine, AsksForSetBeforeASetting) {
  expect_refusal(parse({"job.toml", "data.batch=50"}),
                 "unexpected word data.batch=50: settings are given as --set data.batch=50");
}

TEST(CommandLine, LeavesToTheReaderWhatItKnowsNothingAbout) {
  EXPECT_EQ(parse({"experiment-7"}).line().file, "experiment-7");
  EXPECT_EQ(parse({"a=b/job.toml"}).line().file, "a=b/job.toml");
  const Parsed parsed = parse({"control", "run", "switch", "local_sgd", "every_steps=16"});
  EXPECT_EQ(parsed.line().request, (std::vector<std::string>{"switch", "local_sgd", "every_steps=16"}));
}

}  // namespace
}  // namespace troupe::rtrun
