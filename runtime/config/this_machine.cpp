#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <string>

#include "runtime/base/host_identity.hpp"
#include "runtime/base/words.hpp"
#include "runtime/config/hosts.hpp"

namespace troupe {
namespace {

/// Whether one of this machine's interfaces has this address.
bool has_address(in_addr wanted) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, &::freeifaddrs};
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr == wanted.s_addr) return true;
  }
  return false;
}

}  // namespace

bool names_loopback(std::string_view name) {
  in_addr number{};
  if (lower_case(name) == "localhost") return true;
  return ::inet_pton(AF_INET, std::string{name}.c_str(), &number) == 1 && (ntohl(number.s_addr) >> 24) == 127;
}

bool names_this_machine(std::string_view name) {
  if (names_loopback(name)) return true;
  in_addr number{};
  if (::inet_pton(AF_INET, std::string{name}.c_str(), &number) == 1) return has_address(number);
  const std::string own = lower_case(host_name());
  const std::string asked = lower_case(name);
  const auto first_part = [](const std::string& full) { return full.substr(0, full.find('.')); };
  // node1 is the same host as node1.cluster, but node1.cluster is not node1.cloud.
  if (own.find('.') != own.npos && asked.find('.') != asked.npos) return own == asked;
  return first_part(own) == first_part(asked);
}

}  // namespace troupe
