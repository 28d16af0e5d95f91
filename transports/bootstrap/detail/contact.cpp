#include "transports/bootstrap/detail/contact.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "transports/bootstrap/detail/proof.hpp"

namespace troupe::bootstrap {
namespace {

constexpr std::size_t kMaxContactBytes = 16 << 10;

std::vector<std::byte> bytes_at(const void* from, std::size_t size) {
  const auto* first = static_cast<const std::byte*>(from);
  return {first, first + size};
}

/// The bytes of a socket address, without the port.
std::vector<std::byte> address_bytes(const sockaddr* from) {
  if (from->sa_family == AF_INET) return bytes_at(&reinterpret_cast<const sockaddr_in*>(from)->sin_addr, 4);
  return bytes_at(&reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr, 16);
}

std::optional<std::vector<std::byte>> parse(const std::string& address) {
  std::vector<std::byte> bytes(16);
  if (inet_pton(AF_INET6, address.c_str(), bytes.data()) == 1) return bytes;
  bytes.resize(4);
  if (inet_pton(AF_INET, address.c_str(), bytes.data()) == 1) return bytes;
  return std::nullopt;
}

bool useful(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || entry.ifa_netmask == nullptr) return false;
  if ((entry.ifa_flags & IFF_UP) == 0 || (entry.ifa_flags & IFF_LOOPBACK) != 0) return false;
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto host = ntohl(reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr.s_addr);
    return (host >> 16) != 0xa9fe;  // 169.254.0.0/16
  }
  return entry.ifa_addr->sa_family == AF_INET6 &&
         !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
}

bool on_link(const std::vector<std::byte>& theirs, const NetworkAddress& mine) {
  if (theirs.size() != mine.bytes.size()) return false;
  for (unsigned bit = 0; bit < mine.prefix_bits; ++bit) {
    const auto differ = std::to_integer<unsigned>(theirs[bit / 8] ^ mine.bytes[bit / 8]);
    if ((differ & (0x80U >> (bit % 8))) != 0) return false;
  }
  return true;
}

std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> interface_addresses() {
  ifaddrs* list = nullptr;
  TROUPE_CHECK_ERRNO(getifaddrs(&list) == 0, Code::environment, "cannot read this host's network addresses");
  return {list, freeifaddrs};
}

/// Removes and returns the part of `from` before `end`; `end` is removed, too.
std::string_view take_until(std::string_view& from, char end) {
  const std::size_t at = std::min(from.find(end), from.size());
  const std::string_view part = from.substr(0, at);
  from.remove_prefix(std::min(at + 1, from.size()));
  return part;
}

}  // namespace

std::string to_text(const Contact& contact) {
  std::string result = text("troupe1 ", contact.port, ' ', contact.secret);
  for (const std::string& address : contact.addresses) result += ' ' + address;
  return result;
}

Contact contact_from(std::string_view from) {
  const std::string_view whole = from;
  TROUPE_CHECK(whole.size() <= kMaxContactBytes && take_until(from, ' ') == "troupe1", Code::corrupt,
               "rank 0 left no word of where it listens, but ", whole.size(), " bytes of something else");
  Contact contact;
  const std::string_view port = take_until(from, ' ');
  contact.port = number_in<std::uint16_t>(port).value_or(0);
  TROUPE_CHECK(contact.port != 0, Code::corrupt, "rank 0 says it listens at port '", port, "'");
  contact.secret = take_until(from, ' ');
  while (!from.empty()) {
    const std::string& address = contact.addresses.emplace_back(take_until(from, ' '));
    TROUPE_CHECK(parse(address).has_value(), Code::corrupt, "rank 0 says it listens at '", address, "'");
  }
  TROUPE_CHECK(!contact.addresses.empty(), Code::corrupt, "rank 0 does not say at which address it listens");
  return contact;
}

void add_once(std::vector<std::string>& addresses, std::string address) {
  if (std::find(addresses.begin(), addresses.end(), address) == addresses.end())
    addresses.push_back(std::move(address));
}

std::string fresh_secret() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string secret;
  for (const std::byte byte : fresh_nonce()) {
    secret += kDigits[std::to_integer<unsigned>(byte) >> 4];
    secret += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return secret;
}

std::string NetworkAddress::to_string() const {
  char name[INET6_ADDRSTRLEN] = "";
  inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), name, sizeof name);
  return name;
}

std::vector<std::string> source_addresses() {
  const auto list = interface_addresses();
  std::vector<std::string> result;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) continue;
    add_once(result, NetworkAddress{address_bytes(entry->ifa_addr)}.to_string());
  }
  return result;
}

std::vector<NetworkAddress> own_addresses() {
  const auto list = interface_addresses();
  std::vector<NetworkAddress> result;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (!useful(*entry)) continue;
    NetworkAddress& address = result.emplace_back();
    address.bytes = address_bytes(entry->ifa_addr);
    for (const std::byte byte : address_bytes(entry->ifa_netmask))
      address.prefix_bits += static_cast<unsigned>(std::popcount(std::to_integer<unsigned>(byte)));
  }
  return result;
}

std::string reachable(std::span<const std::string> theirs, std::span<const NetworkAddress> mine) {
  const std::string* first = nullptr;
  for (const std::string& address : theirs) {
    const auto bytes = parse(address);
    const auto own = [&](const NetworkAddress& a) { return bytes == a.bytes; };
    const auto near = [&](const NetworkAddress& a) { return bytes && on_link(*bytes, a); };
    if (std::any_of(mine.begin(), mine.end(), own)) continue;
    if (std::any_of(mine.begin(), mine.end(), near)) return address;
    if (first == nullptr) first = &address;
  }
  return first != nullptr ? *first : theirs.front();
}

}  // namespace troupe::bootstrap
