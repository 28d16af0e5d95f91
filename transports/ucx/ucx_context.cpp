#include <net/if.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/host_identity.hpp"
#include "transports/ucx/detail/check.hpp"
#include "transports/ucx/detail/context.hpp"
#include "transports/ucx/detail/shortage.hpp"

namespace troupe {
namespace {

constexpr std::uint32_t kMostAddressBytes = 1u << 20;
constexpr std::uint32_t kMagic = 0x58555254;  // "TRUX"

/// Landing buffers of 8 KiB, of which UCX allocates this number at once, in shared memory. Its default, 512, takes 4.3
/// MB for each of two lanes; 64 are in the lane's queue. The file that contains them has a name until it is written,
/// and remains if the process is killed meanwhile: the shorter that takes, the better.
constexpr const char* kSharedBuffers = "128";
/// The size of a TCP segment that UCX passes to the system. With its default, 8 KiB, two ranks that exchange gradients
/// on two cores need a tenth more time for a step (docs/benchmarks.md).
constexpr const char* kTcpSegment = "32k";

struct ConfigRelease {
  void operator()(ucp_config_t* config) const noexcept { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigRelease>;

void set(ucp_config_t* config, const char* name, const std::string& value) {
  TROUPE_UCX(ucp_config_modify(config, name, value.c_str()), Code::environment, "UCX refuses ", name, " = ", value);
}

/// UCX 1.13 wants the name without the transport's prefix, and ignores the whole name; UCX 1.22 refuses the former.
void set_of_transport(ucp_config_t* config, const char* transport, const char* name, const std::string& value) {
  if (ucp_config_modify(config, name, value.c_str()) != UCS_OK) set(config, text(transport, '_', name).c_str(), value);
}

/// Whether the environment names transports; "all" is UCX's default.
bool user_chose() {
  const char* const named = std::getenv("UCX_TLS");
  return named != nullptr && std::string_view{named} != "all";
}

/// Otherwise UCX would continue without the interfaces that it does not find.
void check_interfaces(std::string_view devices) {
  while (!devices.empty()) {
    const std::string device{devices.substr(0, devices.find(','))};
    devices.remove_prefix(std::min(devices.size(), device.size() + 1));
    TROUPE_CHECK(if_nametoindex(device.c_str()) != 0, Code::environment, "there is no network device ", device,
                 " in this network namespace; `ip link` lists them");
  }
}

/// `chosen`: the transports are not those that the user named.
Config read_config(const UcxOptions& options, bool chosen) {
  ucp_config_t* raw = nullptr;
  TROUPE_UCX(ucp_config_read(nullptr, nullptr, &raw), Code::environment,
             "UCX cannot read its configuration; look at the UCX_ variables in the environment");
  Config config{raw};
  switch (options.means) {
    // Never sysv: its segments may remain after kill -9.
    case UcxMeans::automatic:
      if (!user_chose()) set(raw, "TLS", "^sysv");
      break;
    case UcxMeans::shm:
      set(raw, "TLS", "posix,cma,self");
      if (const std::string folder = chosen ? other_shared_folder(options.hosts.size()) : ""; !folder.empty())
        set_of_transport(raw, "POSIX", "DIR", folder);
      break;
    case UcxMeans::tcp: set(raw, "TLS", "tcp,self"); break;
  }
  if (options.means != UcxMeans::shm && std::getenv("UCX_TCP_TX_SEG_SIZE") == nullptr)
    set_of_transport(raw, "TCP", "TX_SEG_SIZE", kTcpSegment);
  if (options.means != UcxMeans::tcp) set(raw, "MM_RX_BUFS_GROW", kSharedBuffers);
  // Without this setting UCX does not use shared memory for endpoints that must be told of their peer's death.
  if (options.means != UcxMeans::tcp) set(raw, "MM_ERROR_HANDLING", "y");
  if (!options.network_devices.empty()) {
    if (options.means == UcxMeans::tcp) check_interfaces(options.network_devices);
    set(raw, "NET_DEVICES", options.network_devices);
  }
  return config;
}

/// The same in processes that can access each other's memory: same boot of the same host, same pid namespace.
std::uint64_t host_key() { return std::hash<std::string>{}(text(boot_id(), '/', pid_namespace())); }

std::pair<std::uint16_t, std::uint16_t> library_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return {static_cast<std::uint16_t>(major), static_cast<std::uint16_t>(minor)};
}

std::string_view name_of(std::uint8_t means) {
  switch (static_cast<UcxMeans>(means)) {
    case UcxMeans::automatic: return "automatic";
    case UcxMeans::shm: return "shm";
    case UcxMeans::tcp: return "tcp";
  }
  return "unknown";
}

}  // namespace

UcxOptions with_means(UcxOptions options) {
  if (options.means != UcxMeans::automatic || options.hosts.empty() || user_chose()) return options;
  // UCX opens another process's memory through /proc, and wakes it through a socket of the network namespace.
  using Place = std::pair<NodeIdentity, std::uint64_t>;
  std::map<std::string_view, Place> places;  // of the first process of each machine
  bool two_on_a_machine = false;
  for (const ProcessLocation& host : options.hosts) {
    const Place place{host.node, host.pid_namespace};
    two_on_a_machine = two_on_a_machine || places.try_emplace(host.node.boot_id, place).first->second != place;
  }
  const bool all_share = places.size() == 1 && !two_on_a_machine;
  if (all_share) options.means = UcxMeans::shm;
  if (two_on_a_machine) options.means = UcxMeans::tcp;
  return options;
}

UcxContext::UcxContext(const UcxOptions& options, bool chosen) {
  const Config config = read_config(options, chosen);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // two workers, each with its own thread
  params.name = "troupe";
  TROUPE_UCX(ucp_init(&params, config.get(), &context_), Code::environment, "UCX cannot start with transports ",
             name_of(static_cast<std::uint8_t>(options.means)), ", network device ",
             options.network_devices.empty() ? "any" : options.network_devices);
  ucp_context_attr_t found{};
  found.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  reads_cuda_ = ucp_context_query(context_, &found) == UCS_OK &&
                (found.memory_types & (std::uint64_t{1} << UCS_MEMORY_TYPE_CUDA)) != 0;
}

UcxContext::~UcxContext() { ucp_cleanup(context_); }

/// Parsed from UCX's description for people, "#      resource 1  :  md 1  dev 1  flags -- tcp/eth0": there is no other
/// way to get it.
std::vector<std::string> UcxContext::network_devices() const {
  char* raw = nullptr;
  std::size_t size = 0;
  std::FILE* const stream = ::open_memstream(&raw, &size);
  TROUPE_CHECK_ERRNO(stream != nullptr, Code::out_of_memory, "cannot ask UCX for its devices");
  ucp_context_print_info(context_, stream);
  std::fclose(stream);
  std::istringstream lines{std::string{raw, size}};
  std::free(raw);
  std::vector<std::string> devices;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t slash = line.rfind('/');
    const std::size_t transport = slash == line.npos ? slash : line.rfind(' ', slash);
    if (transport == line.npos || line.find(" resource ") == line.npos) continue;
    const std::string device = line.substr(slash + 1);
    const bool is_memory = device.starts_with("memory");  // of self, posix, cma: not a device
    if (!is_memory && std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

struct Directory::Head {
  std::uint32_t magic;
  std::uint16_t ucx_major;
  std::uint16_t ucx_minor;
  std::uint64_t host;
  std::uint32_t peer;
  std::uint8_t means;
  std::uint8_t bulk_errors;
  std::uint16_t reserved;
  std::array<std::uint32_t, 2> worker_bytes;
};

namespace {

std::uint8_t bulk_errors_of(const UcxOptions& options) { return static_cast<std::uint8_t>(options.bulk_errors); }

}  // namespace

Directory::Directory(const UcxOptions& options) : options_(options), host_(host_key()) {}

std::vector<std::byte> Directory::describe(const std::array<std::vector<std::byte>, 2>& workers) const {
  static_assert(sizeof(Head) == 32);
  const auto [major, minor] = library_version();
  const Head head{kMagic,
                  major,
                  minor,
                  host_,
                  options_.self.value,
                  static_cast<std::uint8_t>(options_.means),
                  bulk_errors_of(options_),
                  0,
                  {static_cast<std::uint32_t>(workers[0].size()), static_cast<std::uint32_t>(workers[1].size())}};
  const auto* raw = reinterpret_cast<const std::byte*>(&head);
  std::vector<std::byte> bytes(raw, raw + sizeof head);
  for (const auto& worker : workers) bytes.insert(bytes.end(), worker.begin(), worker.end());
  return bytes;
}

void Directory::add(Peer peer, std::span<const std::byte> bytes) {
  TROUPE_CHECK(peer != options_.self, Code::invalid, "ucx: peer ", peer.value, " is this process itself");
  Head head{};
  TROUPE_CHECK(bytes.size() >= sizeof head, Code::environment, "ucx: the address of peer ", peer.value, " has only ",
               bytes.size(), " bytes");
  std::memcpy(&head, bytes.data(), sizeof head);
  const std::uint64_t size = sizeof head + std::uint64_t{head.worker_bytes[0]} + head.worker_bytes[1];
  TROUPE_CHECK(head.magic == kMagic && bytes.size() == size && head.worker_bytes[0] > 0 && head.worker_bytes[1] > 0 &&
                   size <= kMostAddressBytes && head.peer == peer.value,
               Code::environment, "ucx: the bytes given for peer ", peer.value, " are not an address of that peer");
  const auto [major, minor] = library_version();
  TROUPE_CHECK(head.ucx_major == major && head.ucx_minor == minor, Code::environment, "ucx: peer ", peer.value,
               " runs UCX ", head.ucx_major, '.', head.ucx_minor, ", this process ", major, '.', minor,
               "; install the same version everywhere");
  TROUPE_CHECK(head.means == static_cast<std::uint8_t>(options_.means) && head.bulk_errors == bulk_errors_of(options_),
               Code::environment, "ucx: peer ", peer.value, " uses transports ", name_of(head.means), ", this process ",
               name_of(static_cast<std::uint8_t>(options_.means)), "; give all processes the same settings");

  auto address = std::make_shared<PeerAddress>();
  auto rest = bytes.subspan(sizeof head);
  for (std::size_t lane = 0; lane < 2; ++lane) {
    const auto part = rest.first(head.worker_bytes[lane]);
    address->worker[lane].assign(part.begin(), part.end());
    rest = rest.subspan(part.size());
  }
  address->bulk_silent = options_.bulk_errors == UcxPeerErrors::silent;

  const std::scoped_lock hold(mutex_);
  const auto [place, fresh] = peers_.emplace(peer, address);
  TROUPE_CHECK(fresh || place->second->worker == address->worker, Code::invalid, "ucx: peer ", peer.value,
               " is connected already, and by another address; a new process needs a new number");
}

std::shared_ptr<const PeerAddress> Directory::find(Peer peer) const {
  const std::scoped_lock hold(mutex_);
  const auto found = peers_.find(peer);
  return found == peers_.end() ? nullptr : found->second;
}

}  // namespace troupe
