#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A host and how many ranks it takes.
struct HostSlots {
  std::string name;
  std::uint32_t slots = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

/// Hosts in the order of their ranks, no name twice.
struct HostList {
  std::vector<HostSlots> hosts;
  std::uint32_t count_ranks() const noexcept;
  friend bool operator==(const HostList&, const HostList&) = default;
};

/// What is longer is a mistake, and is refused before memory is taken for it.
inline constexpr std::size_t kMostHostFileBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMostHosts = 4096;
inline constexpr std::uint32_t kMostSlots = 1024;       // of a host
inline constexpr std::uint32_t kMostHostRanks = 65536;  // of all hosts
inline constexpr std::size_t kLongestHostName = 253;    // as in the DNS

/// Reads a host file's text; `name` stands for the file in messages. A line is `name`, `name:4` or `name slots=4
/// max-slots=8`, then perhaps a # comment; `node[01-03,07]` is four names. A name alone takes one rank, and each time
/// it stands there alone again one more, as schedulers list it once for each slot; ranks of a host stand together,
/// where it is named first. Throws Error{invalid} with file:line:column, cause and cure of at most ten mistakes:
/// another character in a name, slots of 0 or above kMostSlots, a name with two numbers of slots, a list without a host
/// or over a limit.
HostList parse_host_file(std::string_view text, std::string_view name);
/// The same from a file. Throws Error{invalid} too when it cannot be read or is over kMostHostFileBytes, of which
/// nothing is then read; that message begins with `named_by`, which tells who wants the file.
HostList read_host_file(const std::string& path, std::string_view named_by = {});

/// a:4, b:4, c:1; of a long list its beginning and how many more there are. For people.
std::string describe(const HostList& list);

/// Whether the name is this machine's: localhost, its host name (with or without the domain), or an address of one of
/// its interfaces in numbers. Asks no name server.
bool names_this_machine(std::string_view name);
/// Whether it means another machine on every machine: localhost, or a loopback address in numbers.
bool names_loopback(std::string_view name);

}  // namespace troupe
