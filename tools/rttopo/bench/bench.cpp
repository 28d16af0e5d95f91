#include "tools/rttopo/bench/bench.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>

#include "apps/topology/measured_view.hpp"
#include "devices/cpu/cpu_device.hpp"
#include "devices/discovery/discovery.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/host_identity.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/config/hosts.hpp"
#include "tools/crew/process_usage.hpp"
#include "tools/rtrun/control.hpp"
#include "tools/rtrun/job.hpp"
#include "tools/rtrun/launcher.hpp"
#include "tools/rtrun/sites.hpp"
#include "tools/rtrun/version.hpp"
#include "tools/rttopo/bench/measures.hpp"
#include "tools/rttopo/bench/members.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe::rttopo {
namespace {

using topology::Measurements;

constexpr std::chrono::seconds kMeetPatience{60};
constexpr std::chrono::minutes kOthersMeasure{5};
constexpr std::chrono::milliseconds kLookForOthers{300};

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

std::map<std::string, std::string> versions() {
  std::map<std::string, std::string> all{{"troupe", TROUPE_VERSION}};
  if (const std::string ucx = ucx_available() ? ucx_version() : ""; !ucx.empty()) all["ucx"] = ucx;
  if (const std::string onednn = rtrun::onednn_version(); !onednn.empty()) all["onednn"] = onednn;
  if (utsname names{}; ::uname(&names) == 0) all["kernel"] = names.release;
  return all;
}

/// How many CPUs other processes use; this process must do nothing meanwhile.
double busy_cpus() {
  const crew::Busyness busyness;
  ::usleep(static_cast<useconds_t>(std::chrono::microseconds(kLookForOthers).count()));
  return busyness.so_far();
}

Measurements measure_host(const Measuring& how, const rtrun::Signals& signals, const Topology& topology) {
  Measurements all;
  all.date = now_text();
  all.versions = versions();
  all.host = topology.host;
  all.cpu_model = topology.cpu_model;
  all.cores = static_cast<std::uint32_t>(topology.cores.size());
  all.busy = busy_cpus();
  if (all.busy > 0.1)
    how.say(
        fmt::format("note     others use {:.0f} % of this host's processors: figures will be too low", 100 * all.busy));
  all.copies = measure_copies(how, topology);
  all.winograd = cpu_device_has_winograd();
  all.compute = measure_compute(how, topology);
  all.messages = measure_messages_here(how, signals, topology);
  measure_gpus(how, signals, all);
  return all;
}

void write_measurements(const std::string& file, const Measurements& figures) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path{file}.parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  TROUPE_CHECK(!error, Code::environment, "cannot make the folder ", folder.string(), ": ", error.message(),
               "; name another file with --out");
  write_new_file(file, to_json(figures));
}

/// The ranks of a job on the hosts to measure.
class BenchJob {
 public:
  BenchJob(Blocking& blocking, const LaunchPlace& place, const Topology& topology) : rank_(place.rank) {
    Hello hello;
    hello.rank = place.rank;
    hello.troupe_version = TROUPE_VERSION;
    hello.ucx_version = ucx_available() ? ucx_version() : std::string{};
    hello.pid = ::getpid();
    hello.pid_namespace = pid_namespace();
    hello.topology = topology;
    bootstrap_ = Bootstrap::join(blocking, place, hello, Deadline::after(kMeetPatience),
                                 [](const std::string& note) { std::cerr << note << '\n'; });
  }
  /// Whether this rank measures its host: it is the first one there. Network namespaces of a host count as one host.
  bool measures_host() const {
    const auto& hellos = bootstrap_->hellos();
    const std::string& mine = hellos.at(rank_).topology.identity.boot_id;
    return std::none_of(hellos.begin(), hellos.begin() + rank_,
                        [&](const Hello& other) { return other.topology.identity.boot_id == mine; });
  }
  /// Adds figures for the paths between nodes to those of each rank; the result is the same at every rank.
  void add_messages(const Measuring& how, Measurements& mine) {
    gather(how.blocking, "hosts measured", {});
    Measurements between;
    between.messages = measure_messages_between(how, *bootstrap_, rank_);
    const std::string told = rank_ == 0 ? to_json(between) : std::string{};
    const auto all = gather(how.blocking, "ways measured", told);
    const std::string_view said{reinterpret_cast<const char*>(all.front().data()), all.front().size()};
    const Measurements theirs = topology::measurements_from_json(said, "what rank 0 told");
    mine.messages.insert(mine.messages.end(), theirs.messages.begin(), theirs.messages.end());
    bootstrap_->leave();
  }

 private:
  std::vector<std::vector<std::byte>> gather(Blocking& blocking, std::string_view what, std::string_view mine) {
    return bootstrap_->all_gather(blocking, what, std::as_bytes(std::span{mine}), Deadline::after(kOthersMeasure));
  }
  const std::uint32_t rank_;
  std::unique_ptr<Bootstrap> bootstrap_;
};

/// Starts one rank on each of --hosts, in the same way as rtrun.
int launch_on_hosts(Blocking& blocking, const rtrun::Signals& signals, const CommandLine& line) {
  std::string lines = line.hosts;
  std::replace(lines.begin(), lines.end(), ',', '\n');
  Settings::Cluster cluster;
  cluster.hosts = parse_host_file(lines, "--hosts");
  cluster.remote_shell = line.remote_shell;
  rtrun::LaunchOptions options;
  options.sites = rtrun::sites_of(cluster, cluster.hosts);
  options.arguments = line.arguments;
  options.name = "rttopo";
  options.dead_setting.clear();
  options.remote_shell = line.remote_shell;
  options.idle = std::chrono::duration_cast<std::chrono::milliseconds>(kOthersMeasure);
  return rtrun::launch(blocking, signals, options);
}

/// The measurements of one process, and whether this process prints them.
int measure_and_tell(Blocking& blocking, const rtrun::Signals& signals, const CommandLine& line,
                     const std::optional<LaunchPlace>& place, std::ostream& out) {
  Measuring how{.blocking = blocking, .repeats = line.repeats, .span = std::chrono::milliseconds(line.repeat_ms)};
  how.say = [](const std::string& what) { std::cerr << what << std::endl; };
  how.check_stop = [&signals] {
    if (const int signal = signals.take(); signal != 0 && signal != SIGUSR1)
      fail(Code::aborted, text("stopped by ", rtrun::signal_name(signal)));
  };
  const Topology topology = discover();
  std::unique_ptr<BenchJob> job;
  if (place && place->world_size > 1) job = std::make_unique<BenchJob>(blocking, *place, topology);
  const bool tells = !place || place->rank == 0;
  const bool measures = !job || job->measures_host();
  Measurements figures;
  if (measures) figures = measure_host(how, signals, topology);
  if (job) job->add_messages(how, figures);
  if (!measures) return 0;
  std::string file = line.out.empty() ? topology::measurements_file(topology.host) : line.out;
  TROUPE_CHECK(!file.empty(), Code::environment,
               "there is no folder for figures: neither XDG_CACHE_HOME nor HOME is set; name a file with --out");
  if (!line.out.empty() && !tells) file += text(".rank-", place->rank);
  write_measurements(file, figures);
  if (!tells) return 0;
  out << (line.json ? to_json(figures) : topology::measured_text(figures) + "\nWritten to " + file + ".\n");
  return 0;
}

}  // namespace

int bench(const CommandLine& line, std::ostream& out) {
  const rtrun::Signals signals;  // before any thread is started
  Blocking blocking = Blocking::on_thread("main");
  const std::optional<LaunchPlace> place = launch_place_from_environment();
  try {
    if (!place && !line.hosts.empty()) return launch_on_hosts(blocking, signals, line);
    return measure_and_tell(blocking, signals, line, place, out);
  } catch (const Error& error) {
    if (error.code() != Code::aborted) throw;
    std::cerr << "rttopo: " << error.what() << "; nothing was written\n";
    constexpr int kInterrupted = 128 + SIGINT;
    return kInterrupted;
  }
}

void be_bench_member(Blocking& blocking, int fd) {
  constexpr std::chrono::seconds kAnswerPatience{60};
  crew::Line line{Fd{fd}, kAnswerPatience};
  const auto role = line.hear();
  if (!role) return;
  role->contains("gpu") ? be_gpu_member(blocking, line, *role) : be_message_end(blocking, line, *role);
}

std::vector<Node> nodes_of_run(Blocking& blocking, const std::string& folder) {
  constexpr std::chrono::minutes kPatience{2};
  const rtrun::ControlAnswer answer = rtrun::ask_run(blocking, folder, {"machines"}, Deadline::after(kPatience));
  TROUPE_CHECK(answer.done, Code::environment, answer.text);
  return nodes_from_json(answer.text, "the run in " + folder);
}

}  // namespace troupe::rttopo
