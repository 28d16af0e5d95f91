#pragma once

// The room config: app.toml: what may stand in it (schema), how it is read and checked, and what is said where it is
// wrong (config.hpp), and the hosts that a launcher was given (hosts.hpp). settings.hpp is the result, as a value. What
// a setting means for the ranks and machines at hand is planning's.

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/settings.hpp"

namespace troupe {

/// One effective value, for `rtrun check`.
struct EffectiveValue {
  std::string key;     // data.batch
  std::string value;   // as TOML
  std::string origin;  // "app.toml:7:9", "--set", "default"
};

/// Settings with the place where each value came from.
struct Configuration {
  Settings settings;
  std::string file;                    // as given; empty: none
  std::string folder;                  // of the file: relative data paths start here
  std::vector<EffectiveValue> values;  // every key, in the order of the schema
  std::string origin_of(std::string_view key) const;
  /// xxh3 over the effective values, but for those that only a launcher reads (cluster.nodes, .remote_shell, .port):
  /// ranks of one job compare it when they meet.
  std::uint64_t hash() const;
  /// What hash() is over, for messages about a difference: "data.batch = 100" for each key; a value of more than 80
  /// bytes is cut, and its checksum follows.
  std::vector<std::string> lines() const;
};

/// Reads a TOML file and applies `overrides` ("a.b=c", in order; from --set). Strict: every wrong key, type, range or
/// contradiction throws Error{invalid}, a key that DESIGN knows but this build has not Error{unsupported}; the text
/// tells file:line:column (or that it came from --set), what is wrong, and what to write instead (the nearest valid
/// key, the range). Error{invalid} too when the file is missing, unreadable, or over 1 MiB.
Configuration read_configuration(const std::string& file, const std::vector<std::string>& overrides);
/// The hosts that cluster.nodes lists, or its host file does; none when it does neither. Throws Error{invalid}, as
/// read_host_file, with what named the file when it cannot be read.
HostList host_list(const Configuration& configuration);
/// The same from text; `name` stands for the file in messages.
Configuration parse_configuration(std::string_view toml, std::string name, const std::vector<std::string>& overrides);

/// The policy called `name` with `settings` ("every_steps=8"), as `rtrun control` takes them. Throws Error{invalid}
/// that says what is wrong with which.
PolicySettings parse_policy(std::string_view name, std::span<const std::string> settings);

}  // namespace troupe
