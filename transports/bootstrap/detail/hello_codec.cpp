#include "transports/bootstrap/detail/hello_codec.hpp"

#include <algorithm>
#include <ios>

#include "runtime/base/error.hpp"
#include "runtime/base/text_stream.hpp"
#include "runtime/wire/detail/messages.hpp"
#include "runtime/wire/hello.capnp.h"

namespace troupe::bootstrap {
namespace {

constexpr capnp::ReaderOptions kLimits{.traversalLimitInWords = kMaxHelloBytes / sizeof(capnp::word),
                                       .nestingLimit = 16};

unsigned list_size(std::size_t size) {
  TROUPE_CHECK(size < kMaxHelloBytes, Code::invalid, "a topology with a list of ", size,
               " entries is too large to tell");
  return static_cast<unsigned>(size);
}

void write(capnp::List<capnp::Text>::Builder to, const std::vector<std::string>& from) {
  for (unsigned i = 0; i < to.size(); ++i) to.set(i, from[i]);
}

void write(capnp::List<wire::Topology::Gpu>::Builder to, const std::vector<Accelerator>& from) {
  for (unsigned i = 0; i < to.size(); ++i) {
    const Accelerator& gpu = from[i];
    to[i].setName(gpu.name);
    to[i].setModel(gpu.model);
    to[i].setMemoryBytes(gpu.memory_bytes);
    to[i].setNuma(gpu.numa);
    to[i].setBus(gpu.bus);
    to[i].setExclusive(gpu.exclusive);
    write(to[i].initNearestNics(list_size(gpu.nearest_nics.size())), gpu.nearest_nics);
    write(to[i].initReaches(list_size(gpu.reaches.size())), gpu.reaches);
  }
}

void write(wire::Topology::Builder to, const Topology& from) {
  to.setBootId(from.identity.boot_id);
  to.setNetworkNamespace(from.identity.network_namespace);
  to.setHost(from.host);
  to.setCpuModel(from.cpu_model);
  auto numa = to.initNuma(list_size(from.numa.size()));
  for (unsigned i = 0; i < numa.size(); ++i) {
    numa[i].setOsIndex(from.numa[i].os_index);
    numa[i].setMemoryBytes(from.numa[i].memory_bytes);
  }
  auto cores = to.initCores(list_size(from.cores.size()));
  for (unsigned i = 0; i < cores.size(); ++i) {
    const Core& core = from.cores[i];
    cores[i].setIndex(core.index);
    cores[i].setNuma(core.numa);
    cores[i].setPackage(core.package);
    cores[i].setL3(core.l3);
    auto cpus = cores[i].initCpus(list_size(core.cpus.size()));
    for (unsigned c = 0; c < cpus.size(); ++c) cpus.set(c, core.cpus[c]);
  }
  auto nics = to.initNics(list_size(from.nics.size()));
  for (unsigned i = 0; i < nics.size(); ++i) {
    const Nic& nic = from.nics[i];
    nics[i].setName(nic.name);
    nics[i].setAddress(nic.address);
    nics[i].setNuma(nic.numa);
    nics[i].setBitsPerSecond(nic.bits_per_second);
    nics[i].setUp(nic.up);
    nics[i].setLoopback(nic.loopback);
    nics[i].setInfiniband(nic.infiniband);
  }
  write(to.initGpus(list_size(from.accelerators.size())), from.accelerators);
  to.setL2Bytes(from.l2_bytes);
  to.setL3Bytes(from.l3_bytes);
  to.setCpuQuota(from.cpu_quota);
  to.setMemoryBytes(from.memory_bytes);
  to.setMemoryLimitBytes(from.memory_limit_bytes);
}

Topology read(wire::Topology::Reader from) {
  Topology to;
  to.identity = {from.getBootId(), from.getNetworkNamespace()};
  to.host = from.getHost();
  to.cpu_model = from.getCpuModel();
  for (const auto numa : from.getNuma()) to.numa.push_back({numa.getOsIndex(), numa.getMemoryBytes()});
  for (const auto core : from.getCores()) {
    to.cores.push_back({core.getIndex(), core.getNuma(), core.getPackage(), {}, core.getL3()});
    for (const std::uint32_t cpu : core.getCpus()) to.cores.back().cpus.push_back(cpu);
  }
  for (const auto nic : from.getNics()) {
    to.nics.push_back({nic.getName(), nic.getAddress(), nic.getNuma(), nic.getBitsPerSecond(), nic.getUp(),
                       nic.getLoopback(), nic.getInfiniband()});
  }
  for (const auto gpu : from.getGpus()) {
    Accelerator& made = to.accelerators.emplace_back();
    made.name = gpu.getName();
    made.model = gpu.getModel();
    made.memory_bytes = gpu.getMemoryBytes();
    made.numa = gpu.getNuma();
    made.bus = gpu.getBus();
    made.vendor = "nvidia";
    made.cuda = true;
    made.exclusive = gpu.getExclusive();
    for (const auto nic : gpu.getNearestNics()) made.nearest_nics.emplace_back(nic);
    for (const auto bus : gpu.getReaches()) made.reaches.emplace_back(bus);
  }
  to.l2_bytes = from.getL2Bytes();
  to.l3_bytes = from.getL3Bytes();
  to.cpu_quota = from.getCpuQuota();
  to.memory_bytes = from.getMemoryBytes();
  to.memory_limit_bytes = from.getMemoryLimitBytes();
  return to;
}

WireHello read(wire::Hello::Reader from) {
  WireHello to;
  to.hello.rank = from.getRank();
  to.world_size = from.getWorldSize();
  to.hello.protocol = from.getProtocol();
  to.hello.troupe_version = from.getTroupeVersion();
  to.hello.caf_version = from.getCafVersion();
  to.hello.ucx_version = from.getUcxVersion();
  to.hello.settings_hash = from.getSettingsHash();
  to.hello.type_table_hash = from.getTypeTableHash();
  to.hello.pid = from.getPid();
  to.hello.pid_namespace = from.getPidNamespace();
  to.hello.topology = read(from.getTopology());
  for (const auto address : from.getAddresses()) to.hello.addresses.emplace_back(address);
  to.hello.nccl = from.getNccl();
  to.hello.end_mark = from.getEndMark();
  for (const auto line : from.getSettings()) to.hello.settings.emplace_back(line.cStr(), line.size());
  return to;
}

/// Collects differences: "settings: 0x1f on rank 1, 0x2e on rank 0".
class Comparison {
 public:
  Comparison(std::uint32_t mine, std::uint32_t theirs) : mine_(mine), theirs_(theirs) {}
  template <class T>
  void check(const char* what, const T& mine, const T& theirs, const char* cure) {
    if (mine == theirs) return;
    out_ << (out_.tellp() > 0 ? "; " : "") << what << " " << show(theirs) << " on rank " << theirs_ << ", "
         << show(mine) << " on rank " << mine_ << " (" << cure << ")";
  }
  /// Both have the same keys in the same order, or no lines: then only the hashes are compared.
  void check_settings(const Hello& mine, const Hello& theirs) {
    constexpr std::size_t kShown = 4;
    const char* const cure = "start every rank with the same app.toml and --set";
    if (mine.settings_hash == theirs.settings_hash) return;
    std::size_t count = 0;
    for (std::size_t i = 0; i < std::min(mine.settings.size(), theirs.settings.size()); ++i) {
      if (mine.settings[i] == theirs.settings[i] || ++count > kShown) continue;
      out_ << (count > 1          ? ", and "
               : out_.tellp() > 0 ? "; settings: "
                                  : "settings: ")
           << theirs.settings[i] << " on rank " << theirs_ << ", " << mine.settings[i] << " on rank " << mine_;
    }
    if (count == 0) return check("settings", mine.settings_hash, theirs.settings_hash, cure);
    if (count > kShown) out_ << ", and " << count - kShown << " more";
    out_ << " (" << cure << ")";
  }
  std::string result() const { return out_.str(); }

 private:
  static std::string show(const std::string& value) { return value.empty() ? "none" : value; }
  static std::string show(std::uint32_t value) { return std::to_string(value); }
  static std::string show(std::uint64_t value) { return text("0x", hexadecimal(value)); }

  std::uint32_t mine_;
  std::uint32_t theirs_;
  TextStream out_;
};

}  // namespace

std::vector<std::byte> encode(const WireHello& hello) {
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<wire::Hello>();
  const Hello& from = hello.hello;
  root.setRank(from.rank);
  root.setWorldSize(hello.world_size);
  root.setProtocol(from.protocol);
  root.setTroupeVersion(from.troupe_version);
  root.setCafVersion(from.caf_version);
  root.setUcxVersion(from.ucx_version);
  root.setSettingsHash(from.settings_hash);
  root.setTypeTableHash(from.type_table_hash);
  root.setPid(from.pid);
  root.setPidNamespace(from.pid_namespace);
  root.setNccl(from.nccl);
  root.setEndMark(from.end_mark);
  write(root.initTopology(), from.topology);
  write(root.initAddresses(list_size(from.addresses.size())), from.addresses);
  write(root.initSettings(list_size(from.settings.size())), from.settings);
  std::vector<std::byte> bytes = wire::encoded(message);
  TROUPE_CHECK(bytes.size() <= kMaxHelloBytes, Code::invalid, "this host's topology takes ", bytes.size(),
               " bytes to tell, over the limit of ", kMaxHelloBytes);
  return bytes;
}

WireHello decode_hello(std::span<const std::byte> bytes) {
  TROUPE_CHECK(bytes.size() <= kMaxHelloBytes, Code::corrupt, "a hello of ", bytes.size(), " bytes: at most ",
               kMaxHelloBytes, " bytes");
  return wire::decoded<wire::Hello>(
      bytes, "a hello", [](wire::Hello::Reader root) { return read(root); }, kLimits);
}

std::string differences(const WireHello& mine, const WireHello& theirs) {
  const Hello& a = mine.hello;
  const Hello& b = theirs.hello;
  Comparison compare{a.rank, b.rank};
  compare.check("Troupe version", a.troupe_version, b.troupe_version, "install the same on every host");
  compare.check("wire protocol", a.protocol, b.protocol, "install the same Troupe on every host");
  compare.check("CAF version", a.caf_version, b.caf_version, "install the same on every host");
  compare.check("UCX version", a.ucx_version, b.ucx_version, "install the same on every host");
  compare.check("world size", mine.world_size, theirs.world_size, "WORLD_SIZE must be the same for every rank");
  compare.check_settings(a, b);
  compare.check("message types", a.type_table_hash, b.type_table_hash, "run the same program on every rank");
  return compare.result();
}

}  // namespace troupe::bootstrap
