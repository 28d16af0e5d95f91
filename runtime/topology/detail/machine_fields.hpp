#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/topology/machine.hpp"

// One list of fields per type, which the reader of JSON, its writer and its schema all go through: a field is added in
// one place.
namespace troupe::topology::detail {

template <class T>
struct Of {};

template <class E>
struct Words;
template <>
struct Words<CacheAttributes::Holds> {
  static constexpr std::array<std::string_view, 3> kAll{"both", "data", "instructions"};
};
template <>
struct Words<OsDevice::Kind> {
  static constexpr std::array<std::string_view, 7> kAll{"block", "gpu",         "network", "openfabrics",
                                                        "dma",   "coprocessor", "memory"};
};
template <>
struct Words<GpuState> {
  static constexpr std::array<std::string_view, 4> kAll{"unknown", "ok", "lost", "no_permission"};
};
template <>
struct Words<AcceleratorLink::Kind> {
  static constexpr std::array<std::string_view, 3> kAll{"nvlink", "xgmi", "c2c"};
};
template <>
struct Words<PartKind> {
  static constexpr std::array<std::string_view, 14> kAll{
      "machine", "package", "die",         "group",      "numa",       "memory_cache", "cache",
      "core",    "pu",      "host_bridge", "pci_bridge", "pci_switch", "pci_function", "misc"};
};

// The library's macro that repeats another one for each of its arguments, 63 at most.
#define TROUPE_FIELD(member) v(#member, &X::member);
#define TROUPE_FIELDS(Type, ...)                                         \
  void fields(auto& v, Of<Type>) {                                       \
    using X = Type;                                                      \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(TROUPE_FIELD, __VA_ARGS__)) \
  }

TROUPE_FIELDS(PciLink, gigatransfers, lanes, gigabytes)
TROUPE_FIELDS(CacheAttributes, level, holds, line_bytes, ways)
void fields(auto& v, Of<PciAttributes>) {
  using X = PciAttributes;
  NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(TROUPE_FIELD, bus, below))
  v("class", &X::class_code);
  NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(TROUPE_FIELD, vendor, device, subsystem_vendor, subsystem_device, revision,
                                           now, possible, physical_function, acs_redirect))
}
TROUPE_FIELDS(OsDevice, kind, name, backend, infos)
void fields(auto& v, Of<Part>) {
  using X = Part;
  NLOHMANN_JSON_EXPAND(
      NLOHMANN_JSON_PASTE(TROUPE_FIELD, kind, parent, os_index, name, subtype, bytes, cache, pci, cpus))
  v("faces", &X::os_devices);
  NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(TROUPE_FIELD, infos))
}
TROUPE_FIELDS(Gpu, part, vendor, model, memory_bytes, architecture, uuid, serial, firmware, state, utilization_percent,
              clock_mhz, most_clock_mhz, cores, most_memory_clock_mhz, memory_bus_bits, throttle_reasons,
              uncorrected_errors, mig, infos)
TROUPE_FIELDS(Interface, name, address, bits_per_second, mtu_bytes, up)
TROUPE_FIELDS(RdmaPort, device, port, active, link_layer, bits_per_second, mtu_bytes, guid, rising, infos)
TROUPE_FIELDS(Nic, part, driver, firmware, interfaces, ports)
TROUPE_FIELDS(AcceleratorLink, from, kind, to, to_class, lanes, lanes_down, bytes_per_second)
TROUPE_FIELDS(Distances, name, kind, parts, values)
TROUPE_FIELDS(CpuKind, cpus, efficiency, infos)
TROUPE_FIELDS(Limits, cpu_quota, memory_bytes, locked_bytes, open_files, allowed)
TROUPE_FIELDS(SystemFacts, kernel, gpu_driver, governor, numa_balancing, clock_synchronized, peer_memory,
              iommu_translates, clock_ahead_ms, clock_within_ms, gpus_without_file, nccl_file, nccl_file_not_found)
TROUPE_FIELDS(ThreadPlace, name, cpus, planned)
TROUPE_FIELDS(Placement, threads, planned_numa, pages, memory_refused, planned_devices, chosen_devices, open_devices)
TROUPE_FIELDS(RankSteps, steps, last, load_ms, compute_ms, update_ms, copy_ms, exchange_ms, slower_part, others_part_ms)
TROUPE_FIELDS(RankPlace, rank, pid, cpus, numa_bytes, gpu, nic, transports, placement, steps)
TROUPE_FIELDS(Machine, host, parts, gpus, nics, links, distances, cpu_kinds, limits, system, ranks)

#undef TROUPE_FIELDS
#undef TROUPE_FIELD

}  // namespace troupe::topology::detail
