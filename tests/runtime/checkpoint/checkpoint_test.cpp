#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <numeric>
#include <random>

#include "runtime/base/hash.hpp"
#include "runtime/checkpoint/finite.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/store.hpp"
#include "tests/support/child_process.hpp"

#include <xxhash.h>

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

#if defined(__SANITIZE_THREAD__)
constexpr int kFlips = 100;  // it has one thread, and takes fifty times as long
#else
constexpr int kFlips = 1000;
#endif

/// Two tensors, "a" of 6 and "b" of 10 elements, cut between two ranks in the middle of the second.
class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    std::string pattern = ::testing::TempDir() + "/checkpoints-XXXXXX";
    folder = ::mkdtemp(pattern.data());
    std::iota(a.begin(), a.end(), 0.F);
    std::iota(b.begin(), b.end(), 100.F);
    std::iota(state.begin(), state.end(), 1000.F);
  }
  ~Checkpoints() override { fs::remove_all(folder); }

  static PieceToWrite piece(const char* tensor, std::vector<std::uint64_t> extents, CheckpointPart part,
                            std::uint64_t first, std::span<const float> numbers) {
    return {{.tensor = tensor, .part = part, .first = first, .count = numbers.size()},
            std::move(extents),
            std::as_bytes(numbers)};
  }
  std::vector<CheckpointFile> write_files(CheckpointId id) {
    std::array first{piece("a", {2, 3}, CheckpointPart::parameters, 0, a),
                     piece("b", {10}, CheckpointPart::parameters, 0, std::span(b).first(4)),
                     piece("a", {2, 3}, CheckpointPart::state0, 0, state)};
    std::array second{piece("b", {10}, CheckpointPart::parameters, 4, std::span(b).subspan(4))};
    return {store.write(blocking, id, 0, first), store.write(blocking, id, 1, second)};
  }
  CheckpointManifest manifest_of(CheckpointId id, const std::string& run = "this run") {
    CheckpointManifest manifest{.steps = id.steps, .samples = id.steps * 200, .seed = 7, .model = "mlp"};
    manifest.groups.front().rule = "adam";
    manifest.run = run;
    manifest.first_run = "a first run";
    manifest.shapes = {{"a", {2, 3}}, {"b", {10}}};
    manifest.settings = {"data.batch = 100  # app.toml:3:1"};
    manifest.epoch = {.loss = 1.0 / 3, .correct = 12, .samples = 200};
    manifest.files = write_files(id);
    return manifest;
  }
  void save(CheckpointId id, std::optional<double> accuracy = {}, const std::string& run = "this run") {
    CheckpointManifest manifest = manifest_of(id, run);
    manifest.test_accuracy = accuracy;
    store.publish(blocking, id, manifest);
  }
  std::vector<fs::path> files_of(CheckpointId id) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(store.folder_of(id))) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }

  fs::path folder;
  CheckpointStore store{(fs::path(::testing::TempDir()) / "unset").string()};
  std::vector<float> a = std::vector<float>(6);
  std::vector<float> b = std::vector<float>(10);
  std::vector<float> state = std::vector<float>(6);
  Blocking blocking = Blocking::on_thread("test");

  void SetUp() override { store = CheckpointStore((folder / "run" / "checkpoints").string()); }
};

TEST_F(Checkpoints, GiveBackAnyRangeOfATensorWhoeverWroteIt) {
  save({1, 500});
  CheckpointReader reader(store, {1, 500});
  std::array<float, 10> whole{};
  reader.read({}, "b", CheckpointPart::parameters, 0, whole);
  EXPECT_TRUE(std::ranges::equal(whole, b));
  std::array<float, 4> middle{};
  reader.read({}, "b", CheckpointPart::parameters, 2, middle);
  EXPECT_THAT(middle, ElementsAre(102, 103, 104, 105));
  std::array<float, 6> states{};
  reader.read({}, "a", CheckpointPart::state0, 0, states);
  EXPECT_TRUE(std::ranges::equal(states, state));
}

TEST_F(Checkpoints, TellWhichElementsTheyDoNotHave) {
  save({1, 500});
  CheckpointReader reader(store, {1, 500});
  std::array<float, 4> too_far{};
  const auto read = [&](const char* tensor, CheckpointPart part) {
    return message_of([&] { reader.read({}, tensor, part, 8, too_far); });
  };
  EXPECT_THAT(read("b", CheckpointPart::parameters), HasSubstr("of elements 8 to 12 of parameters of \"b\" it has 2"));
  EXPECT_THAT(read("c", CheckpointPart::parameters), HasSubstr("it has 0"));
  EXPECT_THAT(read("b", CheckpointPart::state1), HasSubstr("state1 of \"b\" it has 0"));
}

TEST_F(Checkpoints, AreNoneWithoutTheirManifest) {
  write_files({1, 500});
  EXPECT_THAT(store.list(), ElementsAre());
  EXPECT_EQ(store.next_number(), 2u) << "ranks may still be writing there";
  store.sweep();
  EXPECT_TRUE(fs::is_empty(store.folder()));
}

TEST_F(Checkpoints, AreListedTheNewestFirst) {
  EXPECT_THAT(store.list(), ElementsAre()) << "there is no such folder yet";
  EXPECT_EQ(store.next_number(), 1u);
  save({1, 900});
  save({12, 30});
  save({2, 1000});
  fs::create_directory(fs::path(store.folder()) / "something-else");
  EXPECT_THAT(store.list(), ElementsAre(CheckpointId{12, 30}, CheckpointId{2, 1000}, CheckpointId{1, 900}));
  EXPECT_EQ(store.next_number(), 13u);
}

TEST_F(Checkpoints, KeepTheNewestAndTheBestOfTheirRun) {
  save({1, 10}, {}, "another run");
  save({2, 20}, 0.9);
  save({3, 30}, 0.97);
  save({4, 40});
  save({5, 50}, 0.95);
  store.prune("this run", 1);
  EXPECT_THAT(store.list(), ElementsAre(CheckpointId{5, 50}, CheckpointId{3, 30}, CheckpointId{1, 10}));
}

TEST_F(Checkpoints, KeepTheBestOneThatWasFoundOutLater) {
  CheckpointManifest first = manifest_of({1, 10});
  store.publish(blocking, {1, 10}, first);
  save({2, 20}, 0.5);
  save({3, 30});
  store.prune("this run", 3);
  first.test_accuracy = 0.9;
  store.publish(blocking, {1, 10}, first);
  store.prune("this run", 1);
  EXPECT_THAT(store.list(), ElementsAre(CheckpointId{3, 30}, CheckpointId{1, 10}));
  save({4, 40}, 0.6);
  CheckpointStore(store.folder()).prune("this run", 1);  // which has published none of them
  EXPECT_THAT(store.list(), ElementsAre(CheckpointId{4, 40}, CheckpointId{1, 10}));
}

TEST_F(Checkpoints, GiveBackPiecesThatFollowEachOtherInMemory) {
  std::vector<float> all(500'000);
  std::iota(all.begin(), all.end(), 1.F);
  const auto numbers = std::span(std::as_const(all));
  std::array pieces{piece("c", {3, 50'001}, CheckpointPart::parameters, 0, numbers.first(150'003)),
                    piece("d", {349'997}, CheckpointPart::parameters, 0, numbers.subspan(150'003))};
  CheckpointManifest manifest = manifest_of({3, 70});
  manifest.files = {store.write(blocking, {3, 70}, 0, pieces)};
  store.publish(blocking, {3, 70}, manifest);
  EXPECT_TRUE(store.verify(blocking, {3, 70}).ok()) << store.verify(blocking, {3, 70}).text();
  CheckpointReader reader(store, {3, 70});
  std::vector<float> found(349'997);
  reader.read({}, "d", CheckpointPart::parameters, 0, found);
  EXPECT_TRUE(std::ranges::equal(found, numbers.subspan(150'003)));
}

TEST_F(Checkpoints, HoldWhatTheirManifestSays) {
  CheckpointManifest written = manifest_of({3, 70});
  written.groups.front().policy = "sync";
  written.groups.front().policy_steps = 0;
  written.groups.push_back(
      {.name = "biases", .rule = "sgd", .policy = "local_sgd", .policy_steps = 8, .updates = 70, .parameters = {"b"}});
  store.publish(blocking, {3, 70}, written);
  EXPECT_EQ(store.read({3, 70}), written);
  EXPECT_TRUE(store.verify(blocking, {3, 70}).ok()) << store.verify(blocking, {3, 70}).text();
}

TEST_F(Checkpoints, KeepALossThatIsNoNumber) {
  CheckpointManifest written = manifest_of({3, 70});
  for (const double loss : {std::numeric_limits<double>::infinity(), 0.1, -0.0}) {
    written.epoch.loss = loss;
    store.publish(blocking, {3, 70}, written);
    EXPECT_EQ(store.read({3, 70}).epoch.loss, loss);
  }
  written.epoch.loss = std::numeric_limits<double>::quiet_NaN();
  store.publish(blocking, {3, 70}, written);
  EXPECT_TRUE(std::isnan(store.read({3, 70}).epoch.loss));
}

TEST_F(Checkpoints, AreNotPublishedWhenARanksFileIsNotThere) {
  const CheckpointManifest manifest = manifest_of({3, 70});
  fs::remove(store.folder_of({3, 70}) + "/rank-00001.safetensors");
  EXPECT_THAT(message_of([&] {
                store.publish(blocking, {3, 70}, manifest);
              }),
              HasSubstr("rank-00001.safetensors: cannot be opened"));
  EXPECT_THAT(store.list(), ElementsAre());
}

TEST_F(Checkpoints, WithPiecesThatOverlapAreNotTakenForWhole) {
  std::array pieces{piece("b", {10}, CheckpointPart::parameters, 0, std::span(b).first(5)),
                    piece("b", {10}, CheckpointPart::parameters, 0, std::span(b).first(6))};
  pieces[1].piece.first = 1;  // elements 0 to 5 and 1 to 7: eleven of ten
  CheckpointManifest manifest = manifest_of({3, 70});
  manifest.files = {store.write(blocking, {3, 70}, 0, pieces)};
  store.publish(blocking, {3, 70}, manifest);
  CheckpointReader reader(store, {3, 70});
  std::array<float, 10> whole{};
  EXPECT_THAT(message_of([&] { reader.read({}, "b", CheckpointPart::parameters, 0, whole); }), HasSubstr("it has 5"));
}

TEST_F(Checkpoints, AreReadByAnybodysReader) {
  save({1, 500});
  const SafetensorsFile file(store.folder_of({1, 500}) + "/rank-00000.safetensors");
  const SafetensorsEntry* const whole = file.header().find("a");
  ASSERT_NE(whole, nullptr);
  EXPECT_THAT(whole->extents, ElementsAre(2, 3));
  EXPECT_EQ(whole->dtype, "F32");
  EXPECT_NE(file.header().find("b[0:4]"), nullptr);
  EXPECT_NE(file.header().find("state0/a"), nullptr);
  EXPECT_EQ(file.header().header_bytes % 4096, 0u);
}

TEST_F(Checkpoints, FindEveryFlippedBitAndFallBackToThePreviousOne) {
  save({1, 10});
  save({2, 20});
  const auto files = files_of({2, 20});
  ASSERT_EQ(files.size(), 3u);
  std::mt19937 dice(20);
  for (int flip = 0; flip < kFlips; ++flip) {
    const fs::path& path = files[dice() % files.size()];
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(dice() % fs::file_size(path));
    const auto change = [&, bit = static_cast<char>(1U << (dice() % 8))] {
      char byte = 0;
      file.seekg(at).read(&byte, 1);
      byte = static_cast<char>(byte ^ bit);
      file.seekp(at).write(&byte, 1).flush();
    };
    change();
    std::string why;
    const auto found = store.newest_whole(blocking, [&](const std::string& skipped) { why = skipped; });
    ASSERT_TRUE(found) << why;
    EXPECT_EQ(*found, (CheckpointId{1, 10})) << "a flip in byte " << at << " of " << path << " was not found";
    EXPECT_THAT(why, HasSubstr(path.filename().string()));
    change();
  }
  EXPECT_EQ(store.newest_whole(blocking), (CheckpointId{2, 20}));
}

TEST_F(Checkpoints, SayWhatIsWrongWithACutASwappedAndAMissingFile) {
  save({1, 10});
  save({2, 20});
  const auto first = files_of({1, 10});
  const auto second = files_of({2, 20});
  fs::resize_file(second[1], fs::file_size(second[1]) - 4);
  EXPECT_THAT(store.verify(blocking, {2, 20}).text(), HasSubstr("rank-00000.safetensors"));
  fs::rename(first[2], second[2]);
  EXPECT_THAT(store.verify(blocking, {1, 10}).text(), HasSubstr("rank-00001.safetensors: cannot be opened"));
  EXPECT_EQ(store.newest_whole(blocking), std::nullopt);
}

TEST_F(Checkpoints, OfANewerVersionAreRefusedByName) {
  const std::string text = "troupe-checkpoint 7 0123456789abcdef\n{}\n";
  EXPECT_THAT(message_of([&] { parse_manifest(text, "m"); }), HasSubstr("m: a checkpoint of version 7"));
}

TEST_F(Checkpoints, AreFoundByTheirFolderOrThatOfAll) {
  save({1, 10});
  save({2, 20});
  EXPECT_EQ(find_checkpoint(blocking, store.folder_of({1, 10})).id, (CheckpointId{1, 10}));
  EXPECT_EQ(find_checkpoint(blocking, store.folder_of({1, 10}) + "/").id, (CheckpointId{1, 10}));
  EXPECT_EQ(find_checkpoint(blocking, store.folder()).id, (CheckpointId{2, 20}));
  EXPECT_THAT(message_of([&] { find_checkpoint(blocking, folder / "nothing"); }), HasSubstr("there is no such folder"));
  EXPECT_THAT(message_of([&] { find_checkpoint(blocking, folder); }), HasSubstr("no checkpoint is in that folder"));
}

TEST_F(Checkpoints, AreSeenByTheirNamesWithoutBeingRead) {
  save({1, 10});
  EXPECT_NO_THROW(check_holds_checkpoint(store.folder_of({1, 10}) + "/"));
  EXPECT_NO_THROW(check_holds_checkpoint(store.folder()));
  fs::create_directories(store.folder_of({2, 20}));
  const std::vector<std::pair<std::string, std::string>> refused{
      {folder / "nothing", "there is no such folder"},
      {folder, "no checkpoint is in that folder"},
      {store.folder_of({2, 20}), "manifest.json: cannot be opened: this is not a checkpoint, or it is incomplete"}};
  for (const auto& [path, why] : refused)
    EXPECT_THAT(message_of([&] { check_holds_checkpoint(path); }), HasSubstr(why)) << path;
}

TEST_F(Checkpoints, ThatAreKilledWhileTheyAreSavedLeaveThePreviousOne) {
  save({1, 10});
  const auto begun = Clock::now();
  save({2, 20});
  const auto took = Clock::now() - begun;
  store.remove({2, 20});
  std::mt19937 dice(1);
  std::uint32_t whole = 0;
  for (int round = 0; round < 200; ++round) {
    const CheckpointId id{static_cast<std::uint32_t>(round) + 2, 20};
    ChildProcess saver([&] {
      save(id);
      return 0;
    });
    const Deadline moment = Deadline::after(took * (dice() % 1200) / 1000);
    while (!moment.passed()) {
    }
    saver.kill_hard();
    saver.wait();
    const auto newest = store.newest_whole(blocking, [](const std::string& why) { ADD_FAILURE() << why; });
    ASSERT_TRUE(newest);
    whole += *newest == id ? 1 : 0;
    store.sweep();
    if (*newest == id) store.remove(id);
  }
  std::cout << whole << " of 200 were saved before the kill\n";
  EXPECT_THAT(store.list(), ElementsAre(CheckpointId{1, 10}));
}

TEST_F(Checkpoints, ThatTheDiskHasNoRoomForAreErrorsWithTheirPath) {
  save({1, 10});
  ChildProcess writer([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit little{64, 64};
    ::setrlimit(RLIMIT_FSIZE, &little);
    const std::string said = message_of([&] { write_files({2, 20}); });
    return said.find("rank-00000.safetensors: cannot be written") != said.npos ? 0 : 1;
  });
  EXPECT_EQ(writer.wait(), 0);
  EXPECT_EQ(store.newest_whole(blocking), (CheckpointId{1, 10}));
}

TEST_F(Checkpoints, ThatAreNotFiniteAreNotWrittenAndNameTheElement) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    b[7] = bad;
    EXPECT_THAT(message_of([&] { write_files({1, 10}); }), HasSubstr("element 3 of tensor \"b[4:10]\" is infinite or"));
    EXPECT_TRUE(store.list().empty());
    b[7] = 107;
    state[2] = bad;
    EXPECT_THAT(message_of([&] { write_files({1, 10}); }), HasSubstr("element 2 of tensor \"state0/a\""));
    state[2] = 1002;
  }
  save({2, 20});
}

TEST_F(Checkpoints, ThatAreNotFiniteAreNotWholeAndAreLeftForAnOlderOne) {
  save({1, 10});
  // As a build without that check saved it: with the right checksums.
  CheckpointManifest manifest = manifest_of({2, 20});
  CheckpointPiece& piece = manifest.files[1].pieces[0];
  b[9] = std::numeric_limits<float>::infinity();
  piece.hash = xxh3(std::as_bytes(std::span(b).subspan(4)));
  const std::string file = store.folder_of({2, 20}) + "/rank-00001.safetensors";
  std::fstream to{file, std::ios::in | std::ios::out | std::ios::binary};
  to.seekp(-4, std::ios::end);
  to.write(reinterpret_cast<const char*>(&b[9]), 4);
  to.close();
  store.publish(blocking, {2, 20}, manifest);
  const Status found = store.verify(blocking, {2, 20});
  EXPECT_EQ(found.code(), Code::corrupt);
  EXPECT_THAT(std::string{found.text()}, HasSubstr("element 5 of tensor \"b[4:10]\" is infinite or not a number"));
  std::string skipped;
  EXPECT_EQ(store.newest_whole(blocking, [&](const std::string& what) { skipped += what; }), (CheckpointId{1, 10}));
  EXPECT_THAT(skipped, HasSubstr("000002-step-20 is passed over: "));
}

TEST(FiniteNumbers, AreAllButInfinitiesAndNaNsWhereverTheyStand) {
  std::mt19937 dice(5);
  for (const std::size_t count : {1U, 7U, 4095U, 4096U, 4097U, 20000U}) {
    std::vector<std::byte> room(count * sizeof(float) + 1);
    for (const std::size_t shift : {0U, 1U}) {  // at any address
      const std::span<std::byte> bytes = std::span(room).subspan(shift, count * sizeof(float));
      const auto put = [&](std::size_t at, float value) { std::memcpy(bytes.data() + 4 * at, &value, 4); };
      for (std::size_t i = 0; i < count; ++i) put(i, i % 2 == 0 ? std::numeric_limits<float>::max() : -1e-45F);
      EXPECT_EQ(first_not_finite(bytes), std::nullopt) << count;
      const std::size_t at = dice() % count;
      put(count - 1, -std::numeric_limits<float>::infinity());
      put(at, std::numeric_limits<float>::quiet_NaN());
      EXPECT_EQ(first_not_finite(bytes), at) << count;
    }
  }
}

TEST_F(Checkpoints, AreLockedAgainstAnotherJobThatIsToldWhoHasThem) {
  const FolderLock mine = store.lock(blocking, "run abc", Deadline::after(std::chrono::seconds(0)));
  EXPECT_TRUE(mine.held());
  ChildProcess other([&] {
    const std::string said =
        message_of([&] { (void)store.lock(blocking, "run def", Deadline::after(std::chrono::milliseconds(30))); });
    const std::string who = "another job writes into this folder: process " + std::to_string(::getppid()) + " on ";
    return said.find(who) != said.npos && said.find(", run abc, since 20") != said.npos ? 0 : 1;
  });
  EXPECT_EQ(other.wait(), 0);
}

TEST_F(Checkpoints, AreFreeAgainWhenTheProcessThatLockedThemIsKilled) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ChildProcess holder([&] {
    const FolderLock lock = store.lock(blocking, "run abc", Deadline::after(std::chrono::seconds(0)));
    [[maybe_unused]] const auto told = ::write(pipe[1], "x", 1);
    ::pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  EXPECT_THAT(message_of([&] { (void)store.lock(blocking, "run def", Deadline::after(std::chrono::seconds(0))); }),
              HasSubstr(", run abc, since 20"));
  holder.kill_hard();
  const FolderLock mine = store.lock(blocking, "run def", Deadline::after(std::chrono::seconds(20)));
  EXPECT_TRUE(mine.held());
  holder.wait();
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Checksums, AreXxh3WholeOrPieceByPiece) {
  EXPECT_EQ(xxh3({}), 0x2d06800538d394c2u);
  std::vector<std::byte> bytes(300'001);
  std::mt19937 dice(3);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(dice());
  for (const std::size_t size : {1u, 16u, 128u, 240u, 241u, 1024u, 100'000u, 300'001u}) {
    const auto some = std::span(std::as_const(bytes)).first(size);
    EXPECT_EQ(xxh3(some), XXH3_64bits(some.data(), some.size())) << size << " bytes";
    Xxh3 pieces;
    for (std::size_t at = 0; at < size; at += 777) pieces.add(some.subspan(at, std::min<std::size_t>(777, size - at)));
    EXPECT_EQ(pieces.value(), xxh3(some)) << size << " bytes";
  }
}

/// A header as text, with `data_bytes` behind it.
std::string error_of_header(const std::string& json, std::uint64_t data_bytes) {
  std::vector<std::byte> bytes(8 + json.size());
  const std::uint64_t length = json.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + 8, json.data(), json.size());
  return message_of([&] { parse_safetensors(bytes, bytes.size() + data_bytes, "f"); });
}

TEST(Safetensors, AreRefusedWithTheReason) {
  const std::string good = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(error_of_header("{" + good + "}", 8), "nothing was thrown");
  EXPECT_THAT(error_of_header("{" + good + "}", 4), HasSubstr("leaves the file"));
  EXPECT_THAT(error_of_header("{" + good + "}", 12), HasSubstr("its tensors take 8 bytes, it has 12"));
  EXPECT_THAT(error_of_header("{" + good + "," + good + "}", 8), HasSubstr("where the one before ends at 8"));
  EXPECT_THAT(error_of_header("[1]", 0), HasSubstr("a list where none belongs"));
  EXPECT_THAT(error_of_header("{", 0), HasSubstr("no JSON at byte"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("lacks its dtype"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})", 8), HasSubstr("type Q4"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), HasSubstr("12 bytes"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"F32","shape":[-3],"data_offsets":[0,8]}})", 8), HasSubstr("negative"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"F32","shape":[9223372036854775807,9],"data_offsets":[0,8]}})", 8),
              HasSubstr("more elements than can be counted"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8),
              HasSubstr("ends before"));
  EXPECT_THAT(error_of_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8),
              HasSubstr("\"x\""));
  const std::array<std::byte, 8> endless{std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                         std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0x7f}};
  EXPECT_THAT(message_of([&] { parse_safetensors(endless, 8, "f"); }), HasSubstr("no safetensors file has more than"));
}

}  // namespace
}  // namespace troupe::testing
