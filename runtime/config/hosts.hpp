#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A host and the number of ranks on it.
struct HostSlots {
  std::string name;
  std::uint32_t slots = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// Hosts in the order of their ranks; each name appears once.
struct HostList {
  std::vector<HostSlots> hosts;
  std::uint32_t count_ranks() const noexcept;
  friend bool operator==(const HostList&, const HostList&) = default;
};

/// A longer file is a mistake and is refused before memory is allocated for it.
inline constexpr std::size_t kMostHostFileBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMostHosts = 4096;
inline constexpr std::uint32_t kMostSlots = 1024;       // of a host
inline constexpr std::uint32_t kMostHostRanks = 65536;  // of all hosts
inline constexpr std::size_t kLongestHostName = 253;    // the limit of the DNS

/// Reads a host file's text; `name` stands for the file in messages. A line is `name`, `name:4` or `name slots=4
/// max-slots=8`, followed by an optional # comment; `node[01-03,07]` means four names. A name alone has one slot, and
/// one more each time that it is repeated alone, because schedulers list a host once per slot; all ranks of a host are
/// placed where it is named first. Throws Error{invalid} with file:line:column, cause and cure of up to ten mistakes:
/// an invalid character in a name, 0 slots or more than kMostSlots, a name with two numbers of slots, a list without
/// hosts or over a limit.
HostList parse_host_file(std::string_view text, std::string_view name);
/// The same from a file. Also throws Error{invalid} if it cannot be read or is over kMostHostFileBytes (then it is not
/// read at all); that message begins with `named_by`, which says which setting named the file.
HostList read_host_file(const std::string& path, std::string_view named_by = {});

/// "a:4, b:4, c:1"; for a long list its beginning and how many more there are. For people.
std::string describe(const HostList& list);

/// Whether the name means this machine: localhost, its host name (with or without the domain), or the numeric address
/// of one of its interfaces. No name server is asked.
bool names_this_machine(std::string_view name);
/// Whether the name means a different machine on each machine: localhost, or a numeric loopback address.
bool names_loopback(std::string_view name);

}  // namespace troupe
