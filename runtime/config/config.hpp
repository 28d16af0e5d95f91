#pragma once

// The room config: app.toml: the keys and what they take (schema), how the file is read and checked, the messages about
// its errors (config.hpp), and the hosts that a launcher was given (hosts.hpp). settings.hpp has the result, as a
// value. The room planning decides what a setting means for the given ranks and machines.

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

/// Settings, with the origin of each value.
struct Configuration {
  Settings settings;
  std::string file;                    // as given; empty: no file
  std::string folder;                  // of the file: relative data paths are relative to it
  std::vector<EffectiveValue> values;  // every key, in the order of the schema
  std::string origin_of(std::string_view key) const;
  /// xxh3 of the effective values, except those that only a launcher reads (cluster.nodes, .remote_shell, .port): the
  /// ranks of a job compare it when they connect.
  std::uint64_t hash() const;
  /// The lines that hash() hashes, for messages about a difference: "data.batch = 100" for each key; a value of more
  /// than 80 bytes is cut, and its checksum is appended.
  std::vector<std::string> lines() const;
};

/// Reads a TOML file and applies `overrides` ("a.b=c", in order; from --set). Strict: every wrong key, type, range or
/// contradiction throws Error{invalid}, a key that is planned and not in this build Error{unsupported}. The text gives
/// file:line:column (or that it came from --set), what is wrong, and what to write instead (the nearest valid key, the
/// range). Also throws Error{invalid} if the file is missing, unreadable, or over 1 MiB.
Configuration read_configuration(const std::string& file, const std::vector<std::string>& overrides);
/// The hosts in the list cluster.nodes, or in its host file; empty if it has neither. Throws Error{invalid} like
/// read_host_file; if the file cannot be read, the text says which setting named it.
HostList host_list(const Configuration& configuration);
/// The same from text; `name` stands for the file in messages.
Configuration parse_configuration(std::string_view toml, std::string name, const std::vector<std::string>& overrides);

/// The policy called `name` with `settings` ("every_steps=8"), in the form of `rtrun control`. Throws Error{invalid},
/// which says what is wrong with which setting.
PolicySettings parse_policy(std::string_view name, std::span<const std::string> settings);

}  // namespace troupe
