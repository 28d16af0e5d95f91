#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/topology/machine.hpp"

namespace troupe::topology {

inline constexpr std::string_view kJsonSchema = "troupe.topology";
inline constexpr int kJsonVersion = 1;

/// The names of counts.
inline constexpr std::array<std::pair<const char*, std::uint32_t Counts::*>, 7> kCounts{
    {{"packages", &Counts::packages},
     {"numa", &Counts::numa},
     {"cores", &Counts::cores},
     {"pus", &Counts::pus},
     {"gpu_pci", &Counts::gpu_pci},
     {"nic_pci", &Counts::nic_pci},
     {"nvlink_or_xgmi", &Counts::nvlink_or_xgmi}}};
/// The machine as JSON: "schema": "troupe.topology", "version": kJsonVersion, "counts", and all fields of Machine under
/// their names. Fields that a machine does not have are left out (docs/topology.md). `indent` -1: one line.
std::string to_json(const Machine& machine, int indent = 1);
/// Reads the output of to_json(); unknown fields, and "counts", are skipped. Throws Error{invalid}, whose text begins
/// with `source`.
Machine machine_from_json(std::string_view text, std::string_view source);

/// `count` machines that are alike.
struct MachineCount {
  std::string source;  // where the description comes from
  std::uint32_t count = 1;
  Machine machine;
};
inline constexpr std::uint32_t kMostMachines = 65'536;

/// Reads the output of to_json(), or that of `rttopo show --json` for several machines ("schema": "troupe.cluster",
/// docs/topology.md). Throws Error{invalid}, whose text begins with `source`.
std::vector<MachineCount> machines_from_json(std::string_view text, std::string_view source);

}  // namespace troupe::topology
