#include "runtime/config/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/clock.hpp"
#include "runtime/config/detail/schema.hpp"
#include "tests/runtime/config/corpus.hpp"

namespace troupe {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

/// The error that reading ends with; ok when it does not.
Status failure(std::string_view toml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_configuration(toml, "app.toml", overrides);
    return {};
  } catch (const Error& error) {
    return error.status();
  }
}

Settings settings(std::string_view toml, const std::vector<std::string>& overrides = {}) {
  return parse_configuration(toml, "app.toml", overrides).settings;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = testing::TempDir() + "/config-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream{path_ / name} << content;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Config, AnEmptyFileGivesTheDefaults) {
  const Configuration configuration = parse_configuration("", "app.toml", {});
  EXPECT_EQ(configuration.settings.data.batch, 100u);
  EXPECT_EQ(configuration.settings.rule, Rule{});
  EXPECT_EQ(configuration.settings.model.units, (std::vector<std::uint32_t>{1000, 1000}));
  for (const EffectiveValue& value : configuration.values) EXPECT_EQ(value.origin, "default") << value.key;
}

TEST(Config, EveryBuiltKeyIsRead) {
  const Settings s = settings(R"([cluster]
nodes = "local:3"
transport = "tcp"
[data]
source = "generated"
path = "somewhere"
batch = 64
prefetch = 5
scatter = "equal"
loader = "node"
augment = ["flip", "crop:4"]
broken = "skip"
read_s = 0.4
stage = "disk"
stage_path = "/scratch"
[model]
name = "mlp"
units = [500, 250]
dtype = "bf16"
tf32 = true
[optimizer]
rule = "adamw"
rate = 1
beta1 = 0.8
beta2 = 0.99
epsilon = 1e-6
weight_decay = 0.01
[train]
epochs = 3
steps = 17
seed = 9223372036854775807
deterministic = true
[update]
policy = "sync"
[placement]
device = "cpu"
cores = 2
split = "equal"
[evaluate]
every_epochs = 0
[checkpoint]
resume = "never"
[report]
dir = "out"
format = "json"
metrics_port = 0
[faults]
on_loss = "abort"
dead_ms = 500
start_s = 2.5
exchange_s = 1
stop_s = 0.25
)");
  EXPECT_EQ(s.cluster.local, 3u);
  EXPECT_EQ(s.cluster.transport, "tcp");
  EXPECT_EQ(s.data.source, "generated");
  EXPECT_EQ(s.data.augment, (std::vector<std::string>{"flip", "crop:4"}));
  EXPECT_EQ(s.data.broken, Broken::skip);
  EXPECT_EQ(s.data.read, std::chrono::milliseconds(400));
  EXPECT_EQ(s.data.stage, Stage::disk);
  EXPECT_EQ(s.data.stage_path, "/scratch");
  EXPECT_EQ(s.data.path, "somewhere");
  EXPECT_EQ(s.data.batch, 64u);
  EXPECT_EQ(s.data.prefetch, 5u);
  EXPECT_EQ(s.data.scatter, Scatter::equal);
  EXPECT_EQ(s.data.loader, "node");
  EXPECT_EQ(s.model.units, (std::vector<std::uint32_t>{500, 250}));
  EXPECT_EQ(s.model.dtype, DType::bf16);
  EXPECT_TRUE(s.model.tf32);
  EXPECT_EQ(s.rule, (Rule{RuleKind::adamw, 1, 0.9, 0.8, 0.99, 1e-6, 0.01}));
  EXPECT_EQ(s.train.epochs, 3u);
  EXPECT_EQ(s.train.steps, 17u);
  EXPECT_EQ(s.train.seed, 9223372036854775807u);
  EXPECT_TRUE(s.train.deterministic);
  EXPECT_EQ(s.placement.device, "cpu");
  EXPECT_EQ(s.placement.cores, 2u);
  EXPECT_EQ(s.evaluate.every_epochs, 0u);
  EXPECT_EQ(s.report.dir, "out");
  EXPECT_EQ(s.report.format, "json");
  EXPECT_EQ(s.faults.dead, std::chrono::milliseconds{500});
  EXPECT_EQ(s.faults.start, std::chrono::milliseconds{2500});
  EXPECT_EQ(s.faults.exchange, std::chrono::milliseconds{1000});
  EXPECT_EQ(s.faults.stop, std::chrono::milliseconds{250});
}

TEST(Config, EveryRuleIsReadByItsName) {
  for (const RuleKind kind : kRuleKinds) {
    if (entry_of(kind).word != name_of(kind)) continue;  // no setting of its own
    const auto read = parse_configuration(text("[optimizer]\nrule = \"", name_of(kind), "\"\n"), "app.toml", {});
    EXPECT_EQ(read.settings.rule.kind, kind);
  }
}

TEST(Config, RmspropHasAMomentumOnlyWhereOneIsGiven) {
  EXPECT_EQ(settings("optimizer.rule = \"rmsprop\"\n").rule.momentum, 0);
  EXPECT_EQ(settings("[optimizer]\nrule = \"rmsprop\"\nmomentum = 0.0\n").rule.kind, RuleKind::rmsprop);
  const auto with = parse_configuration("[optimizer]\nrule = \"rmsprop\"\nmomentum = 0.5\nalpha = 0.9\n", "", {});
  EXPECT_EQ(with.settings.rule, (Rule{.kind = RuleKind::rmsprop_momentum, .momentum = 0.5, .alpha = 0.9}));
  for (const EffectiveValue& value : with.values) {
    if (value.key == "optimizer.rule") {
      EXPECT_EQ(value.value, "\"rmsprop\"");
    }
  }
}

TEST(Config, ReadsWhatIsJudgedAndWhatDoesNotDecay) {
  const Settings s =
      settings("[optimizer]\nclip_norm = 1.5\nno_decay = [\"*.bias\", \"out.*\"]\n[train]\nnon_finite = \"skip\"\n");
  EXPECT_EQ(s.rule.clip_norm, 1.5);
  EXPECT_TRUE(s.rule.skips_non_finite);
  EXPECT_EQ(s.no_decay, (std::vector<std::string>{"*.bias", "out.*"}));
  EXPECT_FALSE(needs_verdict(settings("").rule));
}

TEST(Config, ReadsARateAndItsScheduleFromATable) {
  const RateSettings expected{.shape = RateShape::cosine,
                              .over = {.epochs = 12.5},
                              .end_factor = 0.01,
                              .warmup = {.samples = 5000},
                              .linear = true,
                              .reference_batch = 256};
  for (const std::string& toml :
       {std::string{"[optimizer]\nrate = { base = 0.5, schedule = \"cosine\", over_epochs = 12.5, end_factor = 0.01, "
                    "warmup_samples = 5000, scale = \"linear\", reference_batch = 256 }\n"},
        std::string{"[optimizer.rate]\nbase = 0.5\nschedule = \"cosine\"\nover_epochs = 12.5\nend_factor = 0.01\n"
                    "warmup_samples = 5000\nscale = \"linear\"\nreference_batch = 256\n"}}) {
    const Settings s = settings(toml);
    EXPECT_EQ(s.rule.rate, 0.5);
    EXPECT_EQ(s.rate, expected) << to_string(s.rate);
  }
  const Settings steps =
      settings("optimizer.rate = { schedule = \"multi_step\", at_epochs = [2, 3.5], factor = 0.2 }\n");
  EXPECT_EQ(steps.rule.rate, Rule{}.rate);
  EXPECT_EQ(steps.rate,
            (RateSettings{.shape = RateShape::multi_step, .at = {{.epochs = 2}, {.epochs = 3.5}}, .factor = 0.2}));
}

TEST(Config, AWholeTableInAnOverrideReplacesThatOfTheFile) {
  const Configuration c = parse_configuration(
      "[optimizer]\nrate = { base = 0.5, schedule = \"multi_step\", at_epochs = [2], factor = 0.3 }\n", "app.toml",
      {"optimizer.rate={base=0.1, schedule=\"cosine\"}", "optimizer.rate.end_factor=0.5"});
  EXPECT_EQ(c.origin_of("optimizer.rate"), "--set optimizer.rate");
  EXPECT_EQ(c.origin_of("optimizer.rate.at_epochs"), "default");
  EXPECT_EQ(c.origin_of("optimizer.rate.end_factor"), "--set optimizer.rate.end_factor");
}

TEST(Config, OverridesReachIntoARatesTable) {
  const Configuration c = parse_configuration("[optimizer]\nrate = { base = 0.5, schedule = \"cosine\" }\n", "app.toml",
                                              {"optimizer.rate.base=0.25", "optimizer.rate.warmup_epochs=2"});
  EXPECT_EQ(c.settings.rule.rate, 0.25);
  EXPECT_EQ(c.settings.rate, (RateSettings{.shape = RateShape::cosine, .warmup = {.epochs = 2}}));
  EXPECT_EQ(c.origin_of("optimizer.rate"), "--set optimizer.rate.base");
  EXPECT_EQ(c.origin_of("optimizer.rate.schedule"), "app.toml:2:33");
  const Configuration table = parse_configuration(
      "", "app.toml", {"optimizer.rate={base = 0.5, schedule = \"exponential\", every_epochs = 1}"});
  EXPECT_EQ(table.settings.rate.shape, RateShape::exponential);
  EXPECT_EQ(table.settings.rule.rate, 0.5);
}

TEST(Config, EveryDefaultPrintedAsTomlReadsBackAsItself) {
  const Configuration defaults = parse_configuration("", "", {});
  for (const EffectiveValue& value : defaults.values) {
    const std::string_view leaf = std::string_view{value.key}.substr(value.key.rfind('.') + 1);
    if (value.key == "optimizer.momentum" || leaf == "alpha" || leaf == "trust") continue;  // not with the default rule
    if (leaf.ends_with("factor") || leaf == "power" || leaf == "rise" || leaf == "warmup_from") continue;  // schedule
    const auto again = parse_configuration(text(value.key, " = ", value.value, "\n"), "app.toml", {});
    EXPECT_EQ(again.hash(), defaults.hash()) << value.key << " = " << value.value;
    EXPECT_EQ(again.origin_of(value.key), text("app.toml:1:", value.key.size() + 4));
  }
  EXPECT_EQ(settings("optimizer.rule = \"momentum\"\noptimizer.momentum = 0.9\n").rule.momentum, Rule{}.momentum);
}

TEST(Config, EveryExampleInTheSchemaIsValid) {
  for (const detail::SettingKey& key : detail::setting_keys()) {
    const auto value = detail::parse_toml_value(key.example);
    ASSERT_TRUE(value.has_value()) << key.name;
    EXPECT_FALSE(detail::check_value(key, *value).has_value()) << key.name << " = " << key.example;
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
}

TEST(Config, AllValuesPrintedAsAFileGiveTheSameConfiguration) {
  const auto first =
      parse_configuration("[optimizer]\nrule = \"sgd\"\nrate = 0.1\n[data]\npath = \"a \\\"b\\\" \\\\ \\t c\"\n",
                          "app.toml", {"faults.stop_s=0.125", "model.units=[3]"});
  std::string file;
  for (const EffectiveValue& value : first.values) {
    if (value.origin != "default") file += text(value.key, " = ", value.value, "\n");
  }
  EXPECT_EQ(parse_configuration(file, "again.toml", {}).hash(), first.hash());
}

TEST(Config, TakesABatchSizeOrAScheduleOfThem) {
  const auto schedule = parse_configuration("[data]\nbatch = [[64, 0.5], [128, 10], [256, 0]]\n", "app.toml", {});
  const auto& batches = schedule.settings.data.batches;
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(schedule.settings.data.batch, 64u);
  EXPECT_EQ(batches[0].epochs, 0.5);
  EXPECT_EQ(batches[2].rows, 256u);
  EXPECT_EQ(schedule.settings.data.batches.back().epochs, 0);
  const auto shown = std::ranges::find(schedule.values, "data.batch", &EffectiveValue::key)->value;
  EXPECT_EQ(shown, "[[64, 0.5], [128, 10], [256, 0]]");
  EXPECT_EQ(parse_configuration("data.batch = " + shown, "again.toml", {}).hash(), schedule.hash());
  const auto one = parse_configuration("[data]\nbatch = [[64, 1], [128, 0]]\n", "app.toml", {"data.batch=50"});
  EXPECT_EQ(one.settings.data.batch, 50u);
  EXPECT_TRUE(one.settings.data.batches.empty());
}

TEST(Config, TakesASwitchThatWaitsForAStraggler) {
  const auto switches =
      settings("[update]\nswitch = [{ at_straggler = 2.5, policy = \"local_sgd\", every_steps = 8 }]\n").switches;
  ASSERT_EQ(switches.size(), 1u);
  EXPECT_EQ(switches[0].trigger, PolicySwitch::Trigger::straggler);
  EXPECT_EQ(switches[0].ratio, 2.5);
  EXPECT_EQ(switches[0].policy.every_steps, 8u);
  for (const char* ratio : {"1", "0.5", "\"2\"", "1e9", "nan"}) {
    const Status wrong = failure(text("[update]\nswitch = [{ at_straggler = ", ratio, ", policy = \"sync\" }]\n"));
    EXPECT_THAT(std::string{wrong.text()}, HasSubstr("a number above 1")) << ratio;
  }
}

TEST(Config, EveryWrongFileIsAnsweredWithPlaceCauseAndCure) {
  for (const WrongConfiguration& wrong : wrong_configurations()) {
    const Status status = failure(wrong.toml);
    EXPECT_EQ(status.code(), wrong.code) << wrong.toml << "\n" << status.text();
    EXPECT_THAT(std::string{status.text()}, StartsWith(std::string{wrong.says.front()})) << wrong.toml;
    EXPECT_THAT(std::string{status.text()}, ContainsRegex("^app.toml:[0-9]+:[0-9]+: ")) << wrong.toml;
    for (const auto part : wrong.says)
      EXPECT_THAT(std::string{status.text()}, HasSubstr(std::string{part})) << wrong.toml;
  }
}

TEST(Config, WrongFilesAreAnsweredAtOnce) {
  Clock::duration longest{};
  for (const WrongConfiguration& wrong : wrong_configurations()) {
    const auto start = Clock::now();
    failure(wrong.toml);
    longest = std::max(longest, Clock::now() - start);
  }
  RecordProperty("longest_us",
                 static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(longest).count()));
  EXPECT_LT(longest, std::chrono::seconds{1});
}

TEST(Config, SeveralProblemsAreToldTogetherInTheOrderOfTheFile) {
  const Status status =
      failure("[train]\nepochs = 0\n[data]\nbach = 1\n[update]\npolicy = \"gossip\"\n", {"train.seed=x"});
  const std::string text{status.text()};
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_THAT(text, StartsWith("app.toml:2:10: train.epochs"));
  EXPECT_LT(text.find("train.epochs"), text.find("data.bach"));
  EXPECT_LT(text.find("data.bach"), text.find("update.policy"));
  EXPECT_LT(text.find("update.policy"), text.find("\n--set train.seed: is the text \"x\""));
}

TEST(Config, AFileFullOfWrongKeysIsAnsweredShortly) {
  std::string file = "[data]\n";
  for (int i = 0; i < 20000; ++i) file += text("wrong", i, " = 1\n");
  const std::string answer{failure(file).text()};
  EXPECT_LT(answer.size(), 4096u);
  EXPECT_THAT(answer, HasSubstr("(and more)"));
}

TEST(Config, OverridesWinInTheirOrderAndKeepTheirOrigin) {
  const auto configuration =
      parse_configuration("[data]\nbatch = 10\n", "app.toml", {"data.batch=20", "data.batch = 30"});
  EXPECT_EQ(configuration.settings.data.batch, 30u);
  EXPECT_EQ(configuration.origin_of("data.batch"), "--set data.batch");
  EXPECT_EQ(configuration.origin_of("data.path"), "default");
}

TEST(Config, OverridesTakeTomlAndBareWords) {
  const Settings s = settings(
      "", {"model.dtype=bf16", "model.units=[500,500]", "cluster.nodes=local:2", "report.dir=2026-11-21",
           "optimizer.rate=1e-2", "train.deterministic=true", "data.path=/mnt/my data/x=y", "report.format=\"json\""});
  EXPECT_EQ(s.model.dtype, DType::bf16);
  EXPECT_EQ(s.model.units, (std::vector<std::uint32_t>{500, 500}));
  EXPECT_EQ(s.cluster.local, 2u);
  EXPECT_EQ(s.report.dir, "2026-11-21");
  EXPECT_EQ(s.rule.rate, 0.01);
  EXPECT_TRUE(s.train.deterministic);
  EXPECT_EQ(s.data.path, "/mnt/my data/x=y");
  EXPECT_EQ(s.report.format, "json");
}

TEST(Config, HostsAreListedAndShownWithTheirSlots) {
  const auto configuration = parse_configuration(
      "[cluster]\nnodes = [\"a\", \"b[08-10].cluster:2\", \"a\"]\nremote_shell = \"rsh -n\"\nport = 29500\n",
      "app.toml", {});
  const Settings::Cluster& cluster = configuration.settings.cluster;
  EXPECT_EQ(cluster.hosts.hosts,
            (std::vector<HostSlots>{{"a", 2}, {"b08.cluster", 2}, {"b09.cluster", 2}, {"b10.cluster", 2}}));
  EXPECT_EQ(cluster.local, 0u);
  EXPECT_EQ(cluster.remote_shell, "rsh -n");
  EXPECT_EQ(cluster.port, 29500);
  EXPECT_EQ(configuration.values[0].value, R"(["a:2", "b08.cluster:2", "b09.cluster:2", "b10.cluster:2"])");
  EXPECT_EQ(host_list(configuration), cluster.hosts);
}

TEST(Config, OfAHostFileThatIsNotThereTellsWhatNamedIt) {
  const auto configuration = parse_configuration("[cluster]\nnodes = \"gone/hosts.txt\"\n", "jobs/app.toml", {});
  EXPECT_EQ(configuration.settings.cluster.host_file, "gone/hosts.txt");
  try {
    host_list(configuration);
    FAIL() << "a file that is not there was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid);
    EXPECT_THAT(error.what(), StartsWith("jobs/app.toml:2:9: cluster.nodes = \"gone/hosts.txt\", from the folder of "
                                         "app.toml: jobs/gone/hosts.txt: cannot open the host file"));
  }
}

TEST(Config, RanksMayDifferInWhatOnlyALauncherReads) {
  const auto with = [](const std::string& nodes) {
    return parse_configuration("", "app.toml", {"cluster.nodes=" + nodes}).hash();
  };
  EXPECT_EQ(with("local:2"), with("[\"a:4\"]"));
}

TEST(Config, AnOverrideMakesAFileValidThatWasNot) {
  EXPECT_EQ(settings("[update]\npolicy = \"async\"\n", {"update.policy=sync"}).update.kind, PolicyKind::sync);
}

TEST(Config, WrongOverridesAreAnsweredWithTheirName) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"data.bach=3", "--set data.bach: unknown key data.bach; did you mean data.batch?"},
      {"data.batch", "--set data.batch: has no key and value; write --set data.batch=100"},
      {"=3", "--set \"=3\": has no key and value"},
      {"", "--set \"\": has no key and value"},
      {"data.batch=", "--set data.batch: cannot read \"\" as a value"},
      {"data.batch=ten", "--set data.batch: is the text \"ten\", but takes an integer"},
      {"data.batch=0", "--set data.batch: is the integer 0, but takes an integer from 1"},
      {"data.batch:100", "--set \"data.batch:100\": has no key and value; write --set data.batch=100"},
      {"report.dir=r\xe9sum", "--set report.dir: cannot read \"r\\xe9sum\" as a value"},
      {"data.batch=1e2", "--set data.batch: is the number 100.0, but takes an integer"},
      {"data.path=\"a",
       "--set data.path: cannot read \"\\\"a\" as a value; lists are written [500, 500], text in quotes"},
      {"model.units=500,500", "--set model.units: is the text \"500,500\", but takes an array of 1 to 8 integers"},
      {"model.units=500", "--set model.units: is the integer 500, but takes an array of 1 to 8 integers"},
      {"optimizer.rate=.1", "--set optimizer.rate: is the text \".1\", but takes a number above 0"},
      {"optimizer.lr=0.1", "--set optimizer.lr: unknown key optimizer.lr; here it is called optimizer.rate"},
      {"train.deterministic=yes", "--set train.deterministic: is the text \"yes\", but takes true or false"},
      {"data.batch.size=3", "--set data.batch.size: unknown key data.batch.size; did you mean data.batch?"},
      {"cluster.nodes=4", "--set cluster.nodes: is the text \"4\", but takes \"local:N\""},
      {"cluster.nodes=[\"a:0\"]", "--set cluster.nodes: has the text \"a:0\" as entry 1: 0 slots leave the host"},
      {"checkpoint.resume=", "--set checkpoint.resume: is empty; write \"never\", \"auto\", or the path"},
      {"faults.dead_ms=30001", "--set faults.dead_ms: an exchange gives up"},
      {"model.units=[500", "--set model.units: cannot read \"[500\" as a value"},
      {"train.seed=1\n[evil]\nx=1", "--set train.seed: is the text"},
      {"data={batch=3}", "--set data: unknown key data; did you mean the section [data]?"},
      {"batch=3", "--set batch: unknown key batch; batch belongs to [data]: write data.batch"},
      {"optimizer.momentum=0.9",
       "--set optimizer.momentum: optimizer.momentum is not used by optimizer.rule = \"adam\" (default)"},
      {"update.replay=logs",
       "--set update.replay: update.replay is not used by update.policy = \"sync\" (default); leave it out, or "
       "choose \"async\", \"ssp\" or \"easgd\""},
      {"update.error_feedback=true",
       "--set update.error_feedback: update.error_feedback is not used by update.compress = \"none\" (default); "
       "leave "
       "it out, or choose \"bf16\""},
      {"model.loss_scale=1024",
       "--set model.loss_scale: model.loss_scale is not used by model.dtype = \"f32\" (default); leave it out, or "
       "choose "
       "\"f16\""},
      {"model.loss_scale=small", "--set model.loss_scale: is the text \"small\""},
      {"model.layers=x", "--set model.layers: is the text \"x\", but takes an array of layers"},
  };
  for (const auto& [assignment, answer] : cases) {
    EXPECT_THAT(std::string{failure("", {assignment}).text()}, StartsWith(answer)) << assignment;
  }
}

TEST(Config, SilenceEndsARankNoLaterThanAnExchangeGivesUp) {
  const auto dead = [](const std::vector<std::string>& overrides) { return settings("", overrides).faults.dead; };
  EXPECT_EQ(dead({}), std::chrono::seconds(10));
  EXPECT_EQ(dead({"faults.exchange_s=4"}), std::chrono::seconds(4));
  EXPECT_EQ(dead({"faults.exchange_s=0.1"}), std::chrono::milliseconds(100));
  EXPECT_EQ(dead({"faults.exchange_s=4", "faults.dead_ms=500"}), std::chrono::milliseconds(500));
  EXPECT_EQ(dead({"faults.exchange_s=60"}), std::chrono::seconds(10));
}

TEST(Config, AContradictionWithAnOverrideNamesBothPlaces) {
  const Status status = failure("[optimizer]\nrule = \"nesterov\"\nmomentum = 0.8\n", {"optimizer.rule=adam"});
  EXPECT_THAT(
      std::string{status.text()},
      StartsWith("app.toml:3:12: optimizer.momentum is not used by optimizer.rule = \"adam\" (--set optimizer.rule)"));
}

TEST(Config, DeviceThreadsAreANumberOrAWordAndATrialIsNotDeterministic) {
  const auto read = [](const std::string& value) {
    return parse_configuration("[placement]\ndevice_threads = " + value + "\n", "app.toml", {})
        .settings.placement.device_threads;
  };
  EXPECT_EQ(read("3"), (Settings::Placement::DeviceThreads{3, false}));
  EXPECT_EQ(read("\"cores\""), Settings::Placement::DeviceThreads{});
  EXPECT_EQ(read("\"auto\""), (Settings::Placement::DeviceThreads{0, true}));
  EXPECT_THAT(std::string{failure("[placement]\ndevice_threads = 0\n", {}).text()},
              HasSubstr("is the integer 0, but takes an integer from 1 to 4096, or one of \"cores\", \"auto\""));
  EXPECT_THAT(std::string{failure("", {"placement.device_threads=many"}).text()}, HasSubstr("is the text \"many\""));
  EXPECT_THAT(std::string{failure("", {"placement.device_threads=auto", "train.deterministic=true"}).text()},
              HasSubstr("must always be the same; write the number, or \"cores\""));
}

TEST(Config, TakesF16WithALossScaleWhereEachUpdateCanBeLeftOut) {
  const Settings s = settings("[model]\ndtype = \"f16\"\nloss_scale_start = 1024\nloss_scale_steps = 7\n");
  EXPECT_EQ(s.model.dtype, DType::f16);
  EXPECT_TRUE(s.rule.scales_loss);
  EXPECT_EQ(s.model.scaling, (LossScaling{0, 1024, 7}));
  EXPECT_EQ(settings("", {"model.dtype=f16", "model.loss_scale=128"}).model.scaling.fixed, 128);
  EXPECT_EQ(settings("", {"model.dtype=f16", "model.loss_scale=dynamic"}).model.scaling, LossScaling{});
  EXPECT_FALSE(settings("", {"model.dtype=bf16"}).rule.scales_loss);
  EXPECT_NO_THROW(settings("", {"model.dtype=f16", "update.policy=block_momentum", "update.block_samples=4000"}));
  const auto why = [](std::vector<std::string> more) {
    more.emplace_back("model.dtype=f16");
    return std::string{failure("", more).text()};
  };
  EXPECT_THAT(why({"placement.device=cpu"}), HasSubstr("needs GPUs, and placement.device = \"cpu\""));
  EXPECT_THAT(why({"train.non_finite=roll_back"}), HasSubstr("leave one of the two out"));
  EXPECT_THAT(why({"model.loss_scale=128", "model.loss_scale_steps=7"}), HasSubstr("is not used by model.loss_scale"));
  EXPECT_THAT(why({"update.group=[{name=\"biases\",match=\"*.bias\",policy=\"sync\"}]"}),
              HasSubstr("model.dtype = \"f16\""));
}

TEST(Config, TheHashCoversValuesAndNotOrigins) {
  const auto a = parse_configuration("[data]\nbatch = 50\n", "a.toml", {});
  const auto b = parse_configuration("\n\n[data]\nbatch = 50 # the same\n", "b.toml", {});
  const auto c = parse_configuration("", "c.toml", {"data.batch=50"});
  const auto d = parse_configuration("", "c.toml", {"data.batch=51"});
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_EQ(a.hash(), c.hash());
  EXPECT_NE(a.hash(), d.hash());
  EXPECT_EQ(a.lines(), b.lines());
  EXPECT_NE(a.lines(), d.lines());
}

TEST(Config, ReadsAFileAndKnowsItsFolder) {
  const TemporaryFolder folder;
  const std::string file = folder.file("my.toml", "[data]\nbatch = 7\n");
  const Configuration configuration = read_configuration(file, {});
  EXPECT_EQ(configuration.settings.data.batch, 7u);
  EXPECT_EQ(configuration.folder, folder.path().string());
  EXPECT_EQ(configuration.origin_of("data.batch"), file + ":2:9");
  EXPECT_EQ(parse_configuration("", "app.toml", {}).folder, ".");
}

TEST(Config, FilesThatCannotBeReadAreAnsweredWithTheReason) {
  const TemporaryFolder folder;
  const auto answer = [](const std::string& file) -> std::string {
    try {
      read_configuration(file, {});
      return "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid);
      return error.what();
    }
  };
  const std::string pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(answer(folder.path() / "none.toml"), HasSubstr("No such file"));
  EXPECT_THAT(answer(folder.file("file", "") + "/app.toml"), HasSubstr("Not a directory"));
  EXPECT_THAT(answer(folder.path()), HasSubstr("is a folder"));
  EXPECT_THAT(answer(pipe), HasSubstr("not a regular file"));
  EXPECT_THAT(answer(folder.file("big.toml", std::string((1 << 20) + 1, '#'))), HasSubstr("at most 1048576"));
}

TEST(Config, AskingForTheOriginOfNoSettingIsAnError) {
  EXPECT_THROW(parse_configuration("", "app.toml", {}).origin_of("data.bach"), Error);
}

}  // namespace
}  // namespace troupe
