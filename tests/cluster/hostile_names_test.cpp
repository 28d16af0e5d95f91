// Names and values from outside with commands to a terminal in them, and files of the wrong kind in the place of a
// run's own: programs show them, refuse them, and never obey or wait for them.

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cluster/job_folder.hpp"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Clears the screen and sets the window's title, in the old and in the new spelling; goes back in the line.
const std::string kCommands =
    "a\x1b[2J\x1b]0;b\x07\xc2\x9b"
    "2J\x9b"
    "2J\rc<script>\x7f";
const std::string kShown = "a\\x1b[2J\\x1b]0;b\\x07\\u009b2J\\x9b2J\\x0dc<script>\\u007f";

/// A name that is UTF-8, which TOML and JSON can spell.
const std::string kName =
    "a\x1b[2J\xc2\x9b"
    "2J\r<script>\x7f";
const std::string kNameInToml = "a\\u001b[2J\\u009b2J\\r<script>\\u007f";
const std::string kNameShown = "a\\x1b[2J\\u009b2J\\x0d<script>\\u007f";

/// The first byte or letter with which a terminal could be commanded; empty: there is none.
std::string command_in(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool high = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f || high) return text.substr(i, 20);
  }
  return {};
}

class HostileNames : public ClusterTest {
 protected:
  void TearDown() override {
    for (const auto& made : fs::directory_iterator(folder_.path() / "tmp")) fs::remove_all(made);
    ClusterTest::TearDown();
  }
  struct Said {
    int code = -1;
    std::string out, err;
    std::string all() const { return out + err; }
  };
  /// Runs a program of this build in the folder. Nothing of what it writes may command a terminal.
  Said run(const char* program, std::vector<std::string> arguments) {
    ProgramStart start = folder_.rtrun();
    start.arguments = {program};
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    Program running{start};
    Said said{.code = running.wait(60s)};
    said.out = running.out();
    said.err = running.err();
    EXPECT_EQ(command_in(said.all()), "") << said.all();
    return said;
  }
  Said rtrun(std::vector<std::string> settings, std::vector<std::string> words = {}) {
    words.push_back("app.toml");
    for (std::string& setting : settings) words.insert(words.end(), {"--set", std::move(setting)});
    return run(RTRUN_PROGRAM, words);
  }
  std::string content(const fs::path& file) const {
    std::ifstream in{folder_.path() / file, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
  }
  void make_pipe(const fs::path& file) const {
    fs::create_directories((folder_.path() / file).parent_path());
    ASSERT_EQ(::mkfifo((folder_.path() / file).c_str(), 0600), 0) << file;
  }
};

TEST_F(HostileNames, OfFoldersAreShownInMessagesTablesAndReports) {
  fs::create_directory_symlink(folder_.path() / "data", folder_.path() / "tmp" / kName);
  const Said said = rtrun({"train.steps=3", "data.path=\"tmp/" + kNameInToml + "\""});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr(kNameShown));
  EXPECT_EQ(command_in(content("run/report.html")), "");
  EXPECT_THAT(content("run/report.html"), AllOf(HasSubstr("&lt;script&gt;"), Not(HasSubstr("<script>"))));
}

TEST_F(HostileNames, AreExactInJson) {
  fs::create_directory_symlink(folder_.path() / "data", folder_.path() / "tmp" / kName);
  const Said said = rtrun({"train.steps=3", "data.path=\"tmp/" + kNameInToml + "\""}, {"--json"});
  EXPECT_EQ(said.code, 0) << said.err;
  const auto first = nlohmann::json::parse(said.out.substr(0, said.out.find('\n')));
  EXPECT_THAT(first.at("data").get<std::string>(), HasSubstr(kName));
}

TEST_F(HostileNames, OnCommandLinesAreShown) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{kCommands},
                                             {"check", kCommands},
                                             {"--" + kCommands},
                                             {"check", "app.toml", "--set", kCommands},
                                             {"check", "app.toml", "--set", "train." + kCommands + "=1"},
                                             {"control", kCommands, "stop"},
                                             {"control", "run", kCommands},
                                             {"timeline", kCommands},
                                             {"plan", "app.toml", "--nodes", kCommands},
                                             {"plan", "app.toml", "--what-if", kCommands},
                                             {"completion", kCommands},
                                             {"--resume", kCommands + ".toml"},
                                             {"app.toml", "--set", "cluster.nodes=\"" + kCommands + "\""},
                                             {"app.toml", "--", kCommands}}) {
    const Said said = run(RTRUN_PROGRAM, words);
    EXPECT_TRUE(said.code == 2 || said.code == 3) << said.code << ": " << said.all();
  }
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{kCommands},
                                             {"show", "-i", kCommands},
                                             {"show", kCommands},
                                             {"explain", kCommands, kCommands},
                                             {"diff", kCommands, kCommands},
                                             {"matrix", "--nodes", kCommands + ":2"},
                                             {"show", "--run", kCommands}}) {
    const Said said = run(RTTOPO_PROGRAM, words);
    EXPECT_TRUE(said.code == 2 || said.code == 3) << said.code << ": " << said.all();
  }
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {kCommands}, {"list", kCommands}, {"verify", kCommands}, {"weights", kCommands, "-o", kCommands}}) {
    const Said said = run(CKPT_PROGRAM, words);
    EXPECT_TRUE(said.code == 2 || said.code == 3) << said.code << ": " << said.all();
  }
}

TEST_F(HostileNames, OfMachinesAreShownInTreesTablesAndPictures) {
  const Said own = run(RTTOPO_PROGRAM, {"show", "--json"});
  ASSERT_EQ(own.code, 0) << own.err;
  nlohmann::json machine = nlohmann::json::parse(own.out);
  machine["host"] = kName;
  std::ofstream{folder_.path() / "tmp/machine.json"} << machine.dump();
  for (const char* verb : {"show", "doctor", "diff"}) {
    const Said said = verb == std::string{"diff"} ? run(RTTOPO_PROGRAM, {verb, "tmp/machine.json"})
                                                  : run(RTTOPO_PROGRAM, {verb, "-i", "tmp/machine.json"});
    EXPECT_LE(said.code, 1) << verb << said.err;
    if (verb == std::string{"show"}) {
      EXPECT_THAT(said.out, HasSubstr(kNameShown));
    }
  }
  const Said exact = run(RTTOPO_PROGRAM, {"show", "-i", "tmp/machine.json", "--json"});
  EXPECT_EQ(nlohmann::json::parse(exact.out).at("host"), kName);
}

TEST_F(HostileNames, ThatARankWritesAreShown) {
  std::ofstream{folder_.path() / "tmp/program"}
      << "#!/bin/sh\n[ $RANK = 0 ] || { printf 'a\\033[2J\\r\\n' >&2; exit 7; }\n";
  fs::permissions(folder_.path() / "tmp/program", fs::perms::owner_all);
  const Said said = run(RTRUN_PROGRAM, {"app.toml", "--", "tmp/program"});
  EXPECT_EQ(said.code, 7) << said.err;
  EXPECT_THAT(said.err, HasSubstr("a\\x1b[2J"));
}

TEST_F(HostileNames, PipesInThePlaceOfARunsFilesAreRefusedAtOnce) {
  for (const std::string file : {"log", "log.csv", "report.html", "report.json", "rank-1.log"}) {
    make_pipe("run/" + file);
    const Said said = rtrun({"train.steps=3"});
    EXPECT_EQ(said.code, 3) << said.err;
    EXPECT_THAT(said.err, HasSubstr("run/" + file + ": this is a pipe, and a regular file is needed"));
    EXPECT_EQ(std::ranges::count(said.err, '\n'), 1) << said.err;
    fs::remove(folder_.path() / "run" / file);
  }
}

TEST_F(HostileNames, APipeInThePlaceOfAManifestIsADamagedCheckpoint) {
  ASSERT_EQ(rtrun({"train.steps=20", "checkpoint.every_steps=10"}).code, 0);
  const fs::path manifest = "run/checkpoints/000002-step-20/manifest.json";
  ASSERT_TRUE(fs::remove(folder_.path() / manifest));
  make_pipe(manifest);
  EXPECT_THAT(run(CKPT_PROGRAM, {"list", "run/checkpoints"}).out, HasSubstr("manifest.json: is no regular file"));
  EXPECT_EQ(run(CKPT_PROGRAM, {"verify", "run/checkpoints"}).code, 1);
  const Said resumed = rtrun({"train.steps=20", "checkpoint.every_steps=10"}, {"--resume", "auto"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("manifest.json: is no regular file"));
}

TEST_F(HostileNames, WrongUseOfCkptIsToldWithItsName) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {}, {"list"}, {"list", "run", "-x"}, {"weights", "run"}, {"lits", "run"}}) {
    const Said said = run(CKPT_PROGRAM, words);
    EXPECT_EQ(said.code, 2);
    EXPECT_THAT(said.err, ::testing::StartsWith("ckpt: error: "));
  }
}

TEST_F(HostileNames, AnExportToStdoutIsTheFileAndNothingElse) {
  ASSERT_EQ(rtrun({"train.steps=10", "checkpoint.every_steps=10"}).code, 0);
  for (const std::vector<std::string>& to :
       std::vector<std::vector<std::string>>{{"export", "--onnx"}, {"weights", "-o"}}) {
    const Said whole = run(CKPT_PROGRAM, {to[0], "run/checkpoints", to[1], "tmp/file"});
    ASSERT_EQ(whole.code, 0) << whole.err;
    EXPECT_THAT(whole.out, HasSubstr("tmp/file: "));
    ProgramStart start = folder_.rtrun();
    start.arguments = {CKPT_PROGRAM, to[0], "run/checkpoints", to[1], "/dev/stdout"};
    Program piped{start};
    EXPECT_EQ(piped.wait(60s), 0) << piped.err();
    EXPECT_TRUE(piped.out() == content("tmp/file")) << to[0] << ": " << piped.out().size() << " bytes";
    EXPECT_THAT(piped.err(), HasSubstr("/dev/stdout: "));
  }
  fs::remove(folder_.path() / "tmp/file");
  make_pipe("tmp/file");
  const Said unread = run(CKPT_PROGRAM, {"export", "run/checkpoints", "--onnx", "tmp/file"});
  EXPECT_EQ(unread.code, 3);
  EXPECT_THAT(unread.err, HasSubstr("file: this is a pipe or a device, and nothing reads"));
}

}  // namespace
}  // namespace troupe::testing
