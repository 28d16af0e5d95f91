#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/topology/machine.hpp"
#include "runtime/topology/nccl_xml.hpp"

namespace troupe::topology {

enum class Format : std::uint8_t { json, hwloc_xml, nccl_xml, nccl_graphs };
std::string_view name_of(Format format) noexcept;

/// Tells the format by how the text begins. Throws Error{invalid} with `source` in front when it is none of them.
Format format_of(std::string_view text, std::string_view source);

/// A topology in any format but nccl_graphs. Throws Error{invalid} or Error{unsupported} with `source` in front.
Machine machine_from(std::string_view text, std::string_view source);

/// The whole file; at most 32 MiB. Throws Error{environment}: it cannot be read; Error{invalid}: it is larger.
std::string read_topology_file(const std::string& path);

}  // namespace troupe::topology
