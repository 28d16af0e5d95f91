#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bootstrap {

/// How to connect to rank 0 of a job: what rank 0 gives to the other ranks through a launcher's own server.
struct Contact {
  std::vector<std::string> addresses;  // numeric
  std::uint16_t port = 0;
  std::string secret;  // hexadecimal; empty: every rank has it already
};

std::string to_text(const Contact& contact);
/// Throws Error{corrupt} if the text is not a contact.
Contact contact_from(std::string_view text);

/// A random job secret: 64 hexadecimal digits.
std::string fresh_secret();

/// An address of a network interface: 4 or 16 bytes, and the number of leading bits that all hosts of the link share.
struct NetworkAddress {
  std::vector<std::byte> bytes;
  unsigned prefix_bits = 0;
  std::string to_string() const;
};

/// Addresses of this host's interfaces that are up, without loopback and addresses that have no meaning on other hosts
/// (link-local).
std::vector<NetworkAddress> own_addresses();

/// Adds the address if the list does not have it.
void add_once(std::vector<std::string>& addresses, std::string address);

/// Numeric addresses from which connections of this host may come: those of all its interfaces that are up, including
/// loopback, each once.
std::vector<std::string> source_addresses();

/// The address in `theirs` (not empty) by which a host with the addresses `mine` reaches their host. Addresses that the
/// host itself has, such as those of container bridges, are not considered. Of the others: the first one on a link of
/// its own, otherwise the first.
std::string reachable(std::span<const std::string> theirs, std::span<const NetworkAddress> mine);

}  // namespace troupe::bootstrap
