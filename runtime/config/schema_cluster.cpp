#include <variant>

#include "runtime/base/words.hpp"
#include "runtime/config/detail/host_entries.hpp"
#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

constexpr std::uint32_t kMostLocal = 1024;

/// The N of "local:N"; 0 if the text is something else.
std::uint32_t local_count(std::string_view text) {
  constexpr std::string_view kPrefix = "local:";
  if (!text.starts_with(kPrefix)) return 0;
  const auto count = number_in<std::uint32_t>(text.substr(kPrefix.size()));
  return count && *count <= kMostLocal ? *count : 0;
}

/// Whether the text is a list of hosts rather than the path of a host file.
bool lists_hosts(std::string_view text) {
  if (text.find_first_of(",;[ ") != text.npos && text.find('/') == text.npos) return true;
  const auto colon = text.rfind(':');
  return colon != text.npos && colon + 1 < text.size() && text.find_first_not_of("0123456789", colon + 1) == text.npos;
}

/// The hosts in a list, or what is wrong with it.
std::variant<HostList, Finding> hosts_of(const TomlValue& list) {
  constexpr std::string_view kAsIn = ", as in cluster.nodes = [\"node1:4\", \"node2:4\"]";
  if (list.items.empty()) return invalid(text("is an empty list; name hosts", kAsIn));
  HostGathering hosts;
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const TomlValue& item = list.items[i];
    const auto wrong = [&](std::string_view why) {
      return invalid(text("has ", describe(item), " as entry ", i + 1, ": ", why));
    };
    if (item.kind != TomlValue::Kind::text) return wrong(text("each entry is text", kAsIn));
    HostEntry entry;
    if (const auto problem = read_host_entry(item.text, entry)) return wrong(problem->text);
    if (const auto why = hosts.add(entry, text("entry ", i + 1))) return wrong(*why);
  }
  return hosts.take();
}

std::optional<Finding> check_nodes(const TomlValue& value) {
  if (value.kind == TomlValue::Kind::array) {
    auto hosts = hosts_of(value);
    const auto* finding = std::get_if<Finding>(&hosts);
    return finding == nullptr ? std::nullopt : std::optional{std::move(*finding)};
  }
  const std::string_view text = value.text;
  if (text.empty() || local_count(text) > 0) return std::nullopt;
  const bool local = text.starts_with("local") || text.starts_with("Local") || text.starts_with("LOCAL");
  const bool number = text.find_first_not_of("0123456789") == std::string_view::npos;
  if ((local && text.find_first_of("./") == text.npos) || number) {
    return invalid(troupe::text("is ", describe(value), ", but takes \"local:N\" with N from 1 to ", kMostLocal,
                                ", as in cluster.nodes = \"local:2\", a list of hosts, or the path of a host file"));
  }
  if (!lists_hosts(text)) return std::nullopt;
  return invalid(troupe::text("is ", describe(value),
                              "; hosts are written as a list, as in cluster.nodes = [\"node1:4\", \"node2:4\"], or one "
                              "per line in a file, whose path is given here"));
}

void store_nodes(Settings& settings, const TomlValue& value) {
  Settings::Cluster& cluster = settings.cluster;
  cluster.local = local_count(value.text);
  cluster.hosts = {};
  cluster.host_file = cluster.local == 0 ? value.text : "";
  if (value.kind != TomlValue::Kind::array) return;
  auto hosts = hosts_of(value);
  cluster.hosts = std::move(std::get<HostList>(hosts));
}

std::string show_nodes(const Settings& settings) {
  const Settings::Cluster& cluster = settings.cluster;
  if (cluster.local != 0) return text("\"local:", cluster.local, '"');
  if (cluster.hosts.hosts.empty()) return in_quotes(cluster.host_file);
  std::string list;
  for (const HostSlots& host : cluster.hosts.hosts)
    list += text(list.empty() ? "" : ", ", in_quotes(text(host.name, ':', host.slots)));
  return "[" + list + "]";
}

std::optional<Finding> check_remote_shell(const TomlValue& v) {
  if (v.text.find_first_not_of(" \t\r\n") != v.text.npos) return std::nullopt;
  return invalid("is empty; name a program, as in cluster.remote_shell = \"ssh\"");
}

}  // namespace

Keys cluster_keys() {
  return {
      {"cluster.nodes",
       Custom{store_nodes, show_nodes},
       {.kind = ValueKind::hosts, .check = check_nodes},
       "where ranks run; empty: the launcher decides",
       "\"local:2\"",
       "\"local:N\": N processes on this machine, one rank each. A list of hosts with their slots, `[\"node1:4\", "
       "\"node[02-08]:4\"]`, or the path of a host file, relative to the folder of this file, with a line such as "
       "`node1 slots=4` for each host: one rank for each slot, in this order. Ranks on other machines are started by "
       "cluster.remote_shell. Without the key rtrun reads its rank from RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
       "MASTER_PORT, or from mpirun or srun --mpi=pmix, and is the only rank when there is no launcher. A launcher's "
       "settings override the key."},
      {"cluster.remote_shell", at<&Settings::cluster, &Settings::Cluster::remote_shell>,
       text_in_quotes(check_remote_shell), "command that starts a rank on another machine", "\"ssh -p 2222\"",
       "A shell command, to which rtrun appends the host's name and the command to run there. It must pass its stdin "
       "on to that command. It has no terminal, so it cannot ask for a password."},
      {"cluster.port", at<&Settings::cluster, &Settings::Cluster::port>, integer(0, 65535),
       "TCP port on the first host, to which ranks on several hosts connect at the start; 0: rtrun chooses", "29500",
       "For jobs that rtrun starts on hosts. With 0 rtrun takes a free port if rank 0 is on this machine, otherwise "
       "one from 20000 to 32767."},
      {"cluster.transport", at<&Settings::cluster, &Settings::Cluster::transport>,
       one_of({"auto", "shm", "tcp"}, {"rdma"}, "cluster.transport = \"auto\""),
       "transport of messages between processes", "\"auto\"",
       "shm: shared memory, ranks of one node only. tcp: sockets only. auto: shared memory between ranks of one host, "
       "otherwise the transport that UCX chooses. Gradients of ranks on one node are not sent over it."},
      {"cluster.collectives", at<&Settings::cluster, &Settings::Cluster::collectives>,
       one_of({"auto", "nccl", "nccl_in_nodes", "own"}), "how ranks on GPUs exchange gradients", "\"auto\"",
       "nccl: NVIDIA's NCCL (libnccl.so.2, 2.18 or newer), for jobs whose ranks each have a GPU of their own; an error "
       "if it cannot be used. nccl_in_nodes: NCCL within each node, and the transport between nodes, for jobs in which "
       "NCCL cannot connect the nodes or gradients are compressed. own: Troupe's own collectives, in memory that the "
       "ranks "
       "of a node share, and over the transport between nodes. auto: nccl if it can be used, otherwise nccl_in_nodes "
       "if that can be used, otherwise own; `rtrun plan` prints which one is used, and why."},
  };
}

}  // namespace troupe::detail
