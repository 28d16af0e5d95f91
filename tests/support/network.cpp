#include "tests/support/network.hpp"

#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "tests/support/process.hpp"

namespace troupe::testing {
namespace {

using crew::IpRun;
using crew::must_run_ip;
using crew::Namespaces;
using crew::run_ip;

Blocking blocking() { return Blocking::on_thread("test"); }

Namespaces made(std::size_t nodes) {
  Blocking here = blocking();
  return {here, nodes};
}

}  // namespace

std::string why_no_namespaces() {
  if (::geteuid() != 0) return "network namespaces need root";
  Blocking here = blocking();
  const std::string probe = "tr" + std::to_string(::getpid()) + "p";
  const IpRun added = run_ip(here, {"netns", "add", probe});
  if (!added.well) return "ip netns add fails: " + added.said;
  const IpRun entered = run_ip(here, {"netns", "exec", probe, "true"});
  run_ip(here, {"netns", "del", probe});
  return entered.well ? std::string{} : "ip netns exec fails: " + entered.said;
}

NamespaceCluster::NamespaceCluster(std::size_t nodes) : nodes_(made(nodes)) {}

void NamespaceCluster::join_again(std::size_t a, std::size_t b) const {
  Blocking here = blocking();
  must_run_ip(here, {"-n", nodes_.name(a), "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns",
                     nodes_.name(b)});
  for (const std::size_t node : {a, b}) {
    std::string address = this->address(node);
    address.replace(0, 5, "10.78");
    must_run_ip(here, {"-n", nodes_.name(node), "addr", "add", address + "/24", "dev", "eth1"});
    must_run_ip(here, {"-n", nodes_.name(node), "link", "set", "eth1", "up"});
  }
  // The kernel says some time later that it can be used, and until then UCX passes over it.
  const auto is_up = [&](std::size_t node) {
    return run_ip(here, {"netns", "exec", nodes_.name(node), "grep", "-q", "up", "/sys/class/net/eth1/operstate"}).well;
  };
  if (!becomes_true([&] { return is_up(a) && is_up(b); }, std::chrono::seconds(20)))
    throw std::runtime_error("eth1 does not come up");
}

}  // namespace troupe::testing
