#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/topology/machine.hpp"
#include "runtime/topology/nccl_xml.hpp"

namespace troupe::topology {

enum class Format : std::uint8_t { json, hwloc_xml, nccl_xml, nccl_graphs };

/// The format, by how the text begins. Throws Error{invalid}, whose text begins with `source`, for any other.
Format format_of(std::string_view text, std::string_view source);

/// A topology in any format but nccl_graphs. Throws Error{invalid} or Error{unsupported}; `source` comes first.
Machine machine_from(std::string_view text, std::string_view source);

/// The whole file, at most 32 MiB. Throws Error{environment} if it cannot be read, Error{invalid} if it is larger.
std::string read_topology_file(const std::string& path);

}  // namespace troupe::topology
