#include "tools/rtrun/inspect.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace troupe::rtrun {

void print_settings(const Configuration& configuration, const DataPlace& data, const HostList& hosts,
                    std::ostream& out) {
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  for (const EffectiveValue& value : configuration.values) {
    key_width = std::max(key_width, value.key.size());
    value_width = std::max(value_width, std::min<std::size_t>(value.value.size(), 40));
  }
  for (const EffectiveValue& value : configuration.values)
    out << fmt::format("{:<{}} = {:<{}}  # {}\n", value.key, key_width, value.value, value_width, value.origin);
  if (!hosts.hosts.empty())
    out << fmt::format("Hosts: {}, {} ranks: {}\n", hosts.hosts.size(), hosts.count_ranks(), describe(hosts));
  out << "Data: " << data.description << '\n';
}

}  // namespace troupe::rtrun
