#include "tests/support/network.hpp"

#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "tests/support/process.hpp"

namespace troupe::testing {
namespace {

using namespace std::chrono_literals;

int run(const std::vector<std::string>& arguments, std::string* message = nullptr) {
  Program program{{.arguments = arguments, .environment = {}, .unset = {}, .folder = {}}};
  const int code = program.wait(20s);
  if (message != nullptr) *message = program.err();
  return code;
}

void must(const std::vector<std::string>& arguments) {
  std::string message;
  if (run(arguments, &message) == 0) return;
  std::string command;
  for (const std::string& argument : arguments) command += argument + " ";
  throw std::runtime_error{command + "failed: " + message};
}

}  // namespace

std::string why_no_namespaces() {
  if (::geteuid() != 0) return "network namespaces need root";
  const std::string probe = "tr" + std::to_string(::getpid()) + "p";
  std::string message;
  const int code = run({"ip", "netns", "add", probe}, &message);
  if (code == 127) return "there is no `ip` (package iproute2)";
  if (code != 0) return "ip netns add fails: " + message;
  const bool enters = run({"ip", "netns", "exec", probe, "true"}, &message) == 0;
  run({"ip", "netns", "del", probe});
  return enters ? std::string{} : "ip netns exec fails: " + message;
}

NamespaceCluster::NamespaceCluster(std::size_t nodes)
    : tag_("tr" + std::to_string(::getpid() % 1000000)),
      subnet_("10.77." + std::to_string(::getpid() % 250) + "."),
      nodes_(nodes) {
  must({"ip", "link", "add", tag_ + "b", "type", "bridge"});
  must({"ip", "link", "set", tag_ + "b", "up"});
  for (std::size_t node = 0; node < nodes_; ++node) {
    must({"ip", "netns", "add", name(node)});
    must({"ip", "link", "add", port(node), "type", "veth", "peer", "name", "eth0", "netns", name(node)});
    must({"ip", "link", "set", port(node), "master", tag_ + "b", "up"});
    must({"ip", "-n", name(node), "addr", "add", address(node) + "/24", "dev", "eth0"});
    must({"ip", "-n", name(node), "link", "set", "eth0", "up"});
    must({"ip", "-n", name(node), "link", "set", "lo", "up"});
  }
}

NamespaceCluster::~NamespaceCluster() {
  for (std::size_t node = 0; node < nodes_; ++node) {
    run({"ip", "link", "del", port(node)});
    run({"ip", "netns", "del", name(node)});
  }
  run({"ip", "link", "del", tag_ + "b"});
}

std::string NamespaceCluster::address(std::size_t node) const { return subnet_ + std::to_string(node + 1); }

std::vector<std::string> NamespaceCluster::enter(std::size_t node) const { return {"ip", "netns", "exec", name(node)}; }

std::string NamespaceCluster::file(std::size_t node) const { return "/run/netns/" + name(node); }

void NamespaceCluster::join_again(std::size_t a, std::size_t b) const {
  must({"ip", "-n", name(a), "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", name(b)});
  for (const std::size_t node : {a, b}) {
    std::string address = this->address(node);
    address.replace(0, 5, "10.78");
    must({"ip", "-n", name(node), "addr", "add", address + "/24", "dev", "eth1"});
    must({"ip", "-n", name(node), "link", "set", "eth1", "up"});
  }
  // The kernel says some time later that it can be used, and until then UCX passes over it.
  const auto both_up = [&] {
    return run({"ip", "netns", "exec", name(a), "grep", "-q", "up", "/sys/class/net/eth1/operstate"}) == 0 &&
           run({"ip", "netns", "exec", name(b), "grep", "-q", "up", "/sys/class/net/eth1/operstate"}) == 0;
  };
  if (!becomes_true(both_up, std::chrono::seconds(20))) throw std::runtime_error("eth1 does not come up");
}

void NamespaceCluster::cut(std::size_t node) const { must({"ip", "link", "set", port(node), "down"}); }

std::string NamespaceCluster::name(std::size_t node) const { return tag_ + "n" + std::to_string(node); }
std::string NamespaceCluster::port(std::size_t node) const { return tag_ + "v" + std::to_string(node); }

}  // namespace troupe::testing
