#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bootstrap {

/// How to reach rank 0 of a job and be let in: what it hands to the other ranks through a launcher's own server.
struct Contact {
  std::vector<std::string> addresses;  // numeric
  std::uint16_t port = 0;
  std::string secret;  // hexadecimal; empty: every rank has it already
};

std::string to_text(const Contact& contact);
/// Throws Error{corrupt} for a text that is no contact.
Contact contact_from(std::string_view text);

/// A job secret that nobody can guess: 64 hexadecimal digits.
std::string fresh_secret();

/// An address of a network interface: 4 or 16 bytes, and how many of their first bits all hosts of the link share.
struct NetworkAddress {
  std::vector<std::byte> bytes;
  unsigned prefix_bits = 0;
  std::string to_string() const;
};

/// Addresses of this host's interfaces that are up, without loopback and those that mean nothing elsewhere
/// (link-local).
std::vector<NetworkAddress> own_addresses();

/// Adds what is not there yet.
void add_once(std::vector<std::string>& addresses, std::string address);

/// Numeric addresses from which connections of this host may come: those of all its interfaces that are up, loopback
/// included, each once.
std::vector<std::string> source_addresses();

/// The address among `theirs` (not empty) by which a host with the addresses `mine` reaches their host: of those that
/// are not its own too (as container bridges' are on every host) the first on a link of its own, else the first.
std::string reachable(std::span<const std::string> theirs, std::span<const NetworkAddress> mine);

}  // namespace troupe::bootstrap
