#include "actors/caf_compatibility.hpp"

#include <set>
#include <string_view>

namespace troupe {

std::uint64_t message_table_hash(const caf::actor_system_config& config) {
  std::set<std::string_view> names;
  for (const auto& [name, factory] : config.value_factories_by_name) names.insert(name);
  // FNV-1a, 64 bits: the same in every build and on every machine.
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const std::string_view name : names) {
    for (const char letter : name) mix(static_cast<unsigned char>(letter));
    mix('\n');
  }
  return hash;
}

}  // namespace troupe
