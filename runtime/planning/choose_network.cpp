#include "runtime/planning/detail/choose_network.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

// NICs reach each other if they are in one network. RDMA devices of all nodes count as one network. Interfaces are
// compared by the beginning of their addresses; a hello contains no more. An address that two nodes have is of a
// network inside each, such as a container's bridge. Files have no addresses: then all interfaces are one network.
namespace troupe::detail {
namespace {

bool works(const Nic& nic) { return nic.up && !nic.loopback; }
bool has_rdma(const Nic& nic) { return works(nic) && !nic.infiniband.empty(); }

/// The first 16 bits of an IPv4 address, the first 64 of an IPv6 address; empty for link-local addresses.
std::optional<std::string> network_of(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET, address.c_str(), bytes.data()) == 1) {
    const bool link_only = bytes[0] == 169 && bytes[1] == 254;
    return link_only || bytes[0] == 127 ? std::nullopt : std::optional{std::string(bytes.begin(), bytes.begin() + 2)};
  }
  const std::string plain = address.substr(0, address.find('%'));
  if (::inet_pton(AF_INET6, plain.c_str(), bytes.data()) != 1) return std::nullopt;
  if (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80) return std::nullopt;
  return std::string(bytes.begin(), bytes.begin() + 8);
}

/// Facts about a network.
struct Network {
  std::set<std::size_t> nodes;
  std::set<std::string> addresses;
  std::size_t interfaces = 0;
  std::uint64_t slowest = ~std::uint64_t{0};  // bits per second; 0: not known for one of them
};

using IsOfNetwork = std::vector<std::vector<bool>>;  // by node and NIC

IsOfNetwork all_that(std::span<const Topology* const> nodes, bool (*fits)(const Nic&)) {
  IsOfNetwork chosen;
  for (const Topology* const node : nodes) {
    chosen.emplace_back();
    for (const Nic& nic : node->nics) chosen.back().push_back(fits(nic));
  }
  return chosen;
}

bool reaches_all(const IsOfNetwork& network) {
  return std::all_of(network.begin(), network.end(),
                     [](const std::vector<bool>& nics) { return std::count(nics.begin(), nics.end(), true) > 0; });
}

/// Of the networks that all nodes are in, the one with the fastest slowest interface.
std::optional<IsOfNetwork> common_network(std::span<const Topology* const> nodes) {
  std::map<std::string, Network> networks;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (const Nic& nic : nodes[n]->nics) {
      const auto name = works(nic) ? network_of(nic.address) : std::nullopt;
      if (!name) continue;
      Network& network = networks[*name];
      network.nodes.insert(n);
      network.addresses.insert(nic.address);
      ++network.interfaces;
      network.slowest = std::min(network.slowest, nic.bits_per_second);
    }
  }
  const std::pair<const std::string, Network>* best = nullptr;
  for (const auto& each : networks) {
    const bool is_private = each.second.addresses.size() < each.second.interfaces;
    if (each.second.nodes.size() < nodes.size() || is_private) continue;
    if (best == nullptr || each.second.slowest > best->second.slowest) best = &each;
  }
  if (best == nullptr) return std::nullopt;
  IsOfNetwork chosen;
  for (const Topology* const node : nodes) {
    chosen.emplace_back();
    for (const Nic& nic : node->nics) chosen.back().push_back(works(nic) && network_of(nic.address) == best->first);
  }
  return chosen;
}

/// The NICs of one node, with the number of ranks that already use each.
class NodeNics {
 public:
  NodeNics(const Topology& node, std::vector<bool> of_network)
      : node_(node), of_network_(std::move(of_network)), users_(node.nics.size()) {}

  const Nic& nearest_to(const RankPlan& rank) {
    std::size_t best = node_.nics.size();
    for (std::size_t i = 0; i < node_.nics.size(); ++i)
      if (of_network_[i] && (best == node_.nics.size() || order(rank, i) < order(rank, best))) best = i;
    ++users_[best];
    return node_.nics[best];
  }
  bool has_choice() const { return std::count(of_network_.begin(), of_network_.end(), true) > 1; }

 private:
  /// The smallest is the best: near, fast, little used.
  std::tuple<int, std::uint64_t, std::size_t> order(const RankPlan& rank, std::size_t nic) const {
    return {distance(rank, node_.nics[nic]), ~node_.nics[nic].bits_per_second, users_[nic]};
  }
  int distance(const RankPlan& rank, const Nic& nic) const {
    for (const Accelerator& device : node_.accelerators)
      if (device.name == rank.accelerator &&
          std::count(device.nearest_nics.begin(), device.nearest_nics.end(), nic.name) > 0)
        return 0;
    if (nic.numa < 0) return 2;
    const std::uint32_t number = node_.numa[static_cast<std::size_t>(nic.numa)].os_index;
    return std::count(rank.numa_nodes.begin(), rank.numa_nodes.end(), number) > 0 ? 1 : 2;
  }

  const Topology& node_;
  const std::vector<bool> of_network_;
  std::vector<std::size_t> users_;
};

void check_up(const Plan& plan, std::span<const Topology* const> nodes) {
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n]->nics.empty() || std::any_of(nodes[n]->nics.begin(), nodes[n]->nics.end(), works)) continue;
    std::vector<std::string> down;
    for (const Nic& nic : nodes[n]->nics)
      if (!nic.loopback) down.push_back(nic.name);
    fail(Code::invalid, text("node ", plan.nodes[n].host, " has no network device that is up",
                             down.empty() ? "" : text(" (", joined(down), down.size() == 1 ? " is" : " are", " down)"),
                             ", and its ranks exchange with other nodes"));
  }
}

}  // namespace

void choose_network(Plan& plan, std::string_view transport, std::span<const Topology* const> nodes) {
  if (plan.nodes.size() == 1) return;
  check_up(plan, nodes);
  const auto tells_nothing = [](const Topology* node) { return node->nics.empty(); };
  if (std::any_of(nodes.begin(), nodes.end(), tells_nothing)) return;
  const IsOfNetwork rdma = all_that(nodes, has_rdma);
  const bool takes_rdma = transport != "tcp" && reaches_all(rdma);
  if (transport == "rdma") {
    for (std::size_t n = 0; n < nodes.size(); ++n)
      TROUPE_CHECK(std::any_of(nodes[n]->nics.begin(), nodes[n]->nics.end(), has_rdma), Code::invalid,
                   "cluster.transport = \"rdma\" needs an RDMA device that is up on each node, and node ",
                   plan.nodes[n].host, " has none; write \"auto\" or \"tcp\"");
  }
  const auto has_address = [](const Nic& nic) { return !nic.loopback && !nic.address.empty(); };
  const bool has_addresses = std::any_of(nodes.begin(), nodes.end(), [&](const Topology* node) {
    return std::any_of(node->nics.begin(), node->nics.end(), has_address);
  });
  const std::optional<IsOfNetwork> network = takes_rdma      ? std::optional{rdma}
                                             : has_addresses ? common_network(nodes)
                                                             : std::optional{all_that(nodes, works)};
  if (!network) {
    plan.reasons.push_back(
        "Addresses do not tell which network devices reach all other nodes, so UCX chooses among all that are up.");
    return;
  }
  std::vector<NodeNics> nics;
  nics.reserve(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n) nics.emplace_back(*nodes[n], (*network)[n]);
  for (RankPlan& rank : plan.ranks) {
    const Nic& nic = nics[rank.node].nearest_to(rank);
    rank.network_device = takes_rdma ? rdma_name(nic) : nic.name;
  }
  if (std::any_of(nics.begin(), nics.end(), [](const NodeNics& each) { return each.has_choice(); }))
    plan.reasons.push_back(
        "Each rank sends over the network device nearest to it that is up and reaches the other nodes.");
}

}  // namespace troupe::detail
