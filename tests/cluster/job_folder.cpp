#include "tests/cluster/job_folder.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>

#include "runtime/base/random.hpp"
#include "runtime/data/idx.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJob = R"([cluster]
nodes = "local:2"
[data]
path = "data"
batch = 20
[model]
units = [32, 32]
[train]
epochs = 2
[placement]
cores = 1
[checkpoint]
every_steps = 0
[report]
dir = "run"
[faults]
start_s = 20
stop_s = 5
)";

const std::string kSegment = "System V segment ";

/// Images whose label can be learned: the label's row of pixels is bright, the rest is noise.
void write_set(const fs::path& folder, const std::string& name, std::uint32_t count) {
  constexpr std::uint32_t kSide = 28;
  std::vector<std::uint8_t> images(std::size_t{count} * kSide * kSide);
  std::vector<std::uint8_t> labels(count);
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::uint8_t>(random_below(1, i, 64));
  for (std::uint32_t i = 0; i < count; ++i) {
    labels[i] = static_cast<std::uint8_t>(i % 10);
    const std::size_t row = (std::size_t{i} * kSide + 2 * labels[i] + 4) * kSide;
    std::fill_n(images.begin() + static_cast<std::ptrdiff_t>(row), kSide, std::uint8_t{230});
  }
  write_idx(folder / (name + "-images-idx3-ubyte"), {IdxKind::images, count, kSide, kSide}, images);
  write_idx(folder / (name + "-labels-idx1-ubyte"), {IdxKind::labels, count}, labels);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator{folder})
    names.push_back(fs::relative(entry.path(), folder));
  std::sort(names.begin(), names.end());
  return names;
}

/// Entries of /dev/shm, and System V segments with the process that made each; no process: an entry.
std::map<std::string, std::string> shared_memory() {
  std::map<std::string, std::string> found;
  for (const std::string& name : names_in("/dev/shm")) found.emplace(name, std::string{});
  std::ifstream segments{"/proc/sysvipc/shm"};
  std::string line;
  std::getline(segments, line);  // the header
  std::string key, id, mode, size, maker;
  while (segments >> key >> id >> mode >> size >> maker && std::getline(segments, line))
    found.emplace(kSegment + id, maker);
  return found;
}

/// The files that a job that saves may leave; no temporary files.
bool is_of_checkpoints(const std::string& name) {
  return name.starts_with("run/checkpoints") && name.find("/.") == name.npos;
}

bool has(const std::vector<pid_t>& processes, pid_t process) {
  return std::find(processes.begin(), processes.end(), process) != processes.end();
}

/// Whether a process without `mark` has open what links in /proc call `target`: other programs of this host, and other
/// tests, come and go.
bool is_a_strangers(const std::string& target, const std::string& mark) {
  const std::vector<pid_t> holders = processes_with_open(target);
  const std::vector<pid_t> marked = processes_with(mark);
  return std::any_of(holders.begin(), holders.end(), [&](pid_t pid) { return !has(marked, pid); });
}

/// Whether a living process without `mark` made a System V segment.
bool made_by_a_stranger(const std::string& maker, const std::string& mark) {
  return fs::exists("/proc/" + maker) && !has(processes_with(mark), static_cast<pid_t>(std::stoi(maker)));
}

/// Sockets of this network namespace that somebody could connect to: "tcp 0100007F:1F90 INODE", "unix PATH INODE".
std::vector<std::string> listening_sockets() {
  constexpr unsigned kAccepts = 0x10000;  // __SO_ACCEPTCON, in the flags of /proc/net/unix
  std::vector<std::string> found;
  std::string line;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file{table};
    std::getline(file, line);  // the header
    while (std::getline(file, line)) {
      std::istringstream fields{line};
      std::string slot, local, remote, state, skipped, inode;
      fields >> slot >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> skipped;
      if (fields >> inode && state == "0A") found.push_back("tcp " + local + " " + inode);
    }
  }
  std::ifstream file{"/proc/net/unix"};
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields{line};
    std::string number, count, protocol, type, state, inode, path;
    unsigned flags = 0;
    fields >> number >> count >> protocol >> std::hex >> flags >> type >> state >> inode >> path;
    if ((flags & kAccepts) != 0) found.push_back("unix " + path + " " + inode);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

JobFolder::JobFolder() : sockets_(listening_sockets()) {
  for (const auto& [name, maker] : shared_memory()) shared_memory_.push_back(name);
  std::string pattern = ::testing::TempDir() + "/troupe-job-XXXXXX";
  path_ = ::mkdtemp(pattern.data());
  fs::create_directories(path_ / "data");
  fs::create_directories(path_ / "tmp");
  write_set(path_ / "data", "train", 2000);
  write_set(path_ / "data", "t10k", 200);
  std::ofstream{path_ / "app.toml"} << kJob;
}

JobFolder::~JobFolder() { fs::remove_all(path_); }

ProgramStart JobFolder::rtrun(std::vector<std::string> more) const {
  ProgramStart start;
  start.arguments = {RTRUN_PROGRAM, "app.toml"};
  start.arguments.insert(start.arguments.end(), more.begin(), more.end());
  start.environment = {
      {"TROUPE_TEST_FOLDER", path_.string()}, {"TMPDIR", path_ / "tmp"}, {"XDG_CACHE_HOME", path_ / "tmp"}};
  start.unset = {"TROUPE_DATA", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TROUPE_SECRET_FILE"};
  start.folder = path_;
  return start;
}

ProgramStart JobFolder::rank(std::uint32_t rank, std::uint32_t world, const std::string& address,
                             std::uint16_t port) const {
  ProgramStart start = rtrun();
  const std::vector<std::pair<std::string, std::string>> place{{"RANK", std::to_string(rank)},
                                                               {"WORLD_SIZE", std::to_string(world)},
                                                               {"LOCAL_RANK", std::to_string(rank)},
                                                               {"MASTER_ADDR", address},
                                                               {"MASTER_PORT", std::to_string(port)}};
  start.environment.insert(start.environment.end(), place.begin(), place.end());
  return start;
}

std::vector<std::string> JobFolder::endless() {
  return {"--set", "train.epochs=100000", "--set", "data.batch=2", "--set", "evaluate.every_epochs=0"};
}

std::vector<std::string> JobFolder::short_run() {
  return {"--set", "train.steps=1000", "--set", "data.batch=2", "--set", "evaluate.every_epochs=0"};
}

std::string JobFolder::write_secret(const std::string& name, const std::string& secret) const {
  const fs::path file = path_ / "data" / name;
  std::ofstream{file} << secret;
  ::chmod(file.c_str(), 0600);
  return file;
}

std::string JobFolder::leftovers() const {
  std::string found;
  for (const pid_t pid : processes_with(mark())) found += "process " + std::to_string(pid) + "\n";
  for (const std::string& socket : listening_sockets()) {
    if (std::binary_search(sockets_.begin(), sockets_.end(), socket)) continue;
    const std::string inode = socket.substr(socket.rfind(' ') + 1);
    if (!is_a_strangers("socket:[" + inode + "]", mark())) found += "socket " + socket + "\n";
  }
  for (const auto& [name, maker] : shared_memory()) {
    if (std::binary_search(shared_memory_.begin(), shared_memory_.end(), name)) continue;
    const bool strangers =
        maker.empty() ? is_a_strangers("/dev/shm/" + name, mark()) : made_by_a_stranger(maker, mark());
    if (!strangers) found += "shared memory " + name + "\n";
  }
  for (const std::string& name : names_in(path_)) {
    const bool known = name == "app.toml" || name == "data" || name.starts_with("data/") || name == "tmp" ||
                       name == "tmp/troupe" || name.starts_with("tmp/troupe/cudnn-") ||  // kept for the next run
                       name == "run" || name == "run/log" || name == "run/log.csv" || name == "run/report.lock" ||
                       name == "report.lock" || name == "run/report.html" || name == "run/report.json" ||
                       name == "trace.json" || name == "trace.svg" || name.starts_with("run/rank-") ||
                       is_of_checkpoints(name);
    if (!known) found += "file " + name + "\n";
  }
  return found;
}

std::uint16_t free_port() {
  // Below the ports that the kernel gives to sockets without one, and above those of documentation's examples: between
  // this call and the job that listens there only another call, in this process or another one, could take the port.
  constexpr std::uint16_t kFirst = 30000;
  constexpr std::uint16_t kCount = 2700;
  static std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const auto port = static_cast<std::uint16_t>(kFirst + random() % kCount);
    // An abstract socket, which nobody can connect to, keeps others away from the port as long as this process lives.
    const int claim = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string path = "troupe-test-port-" + std::to_string(port);
    path.copy(name.sun_path + 1, path.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    const bool claimed = ::bind(claim, reinterpret_cast<const sockaddr*>(&name), length) == 0;

    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    const bool bound = claimed && ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (bound) return port;
    ::close(claim);
  }
  throw std::runtime_error{"no free port"};
}

bool trains(const Program& program) { return program.out().find("\n1 ") != std::string::npos; }

void ClusterTest::SetUp() {
  if (!ucx_available()) GTEST_SKIP() << "this build has no UCX, over which ranks talk";
}

void ClusterTest::TearDown() {
  EXPECT_TRUE(becomes_true([&] { return folder_.leftovers().empty(); }, 5s)) << folder_.leftovers();
}

std::vector<std::unique_ptr<Program>> ClusterTest::start_two_ranks(const std::vector<std::string>& arguments) const {
  const std::uint16_t port = free_port();
  std::vector<std::unique_ptr<Program>> ranks;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    ProgramStart start = folder_.rank(rank, 2, "127.0.0.1", port);
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    ranks.push_back(std::make_unique<Program>(start));
  }
  return ranks;
}

}  // namespace troupe::testing
