#pragma once

#include <array>
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

void fields(auto& v, Of<PciLink>) {
  v("gigatransfers", &PciLink::gigatransfers), v("lanes", &PciLink::lanes), v("gigabytes", &PciLink::gigabytes);
}
void fields(auto& v, Of<CacheAttributes>) {
  v("level", &CacheAttributes::level), v("holds", &CacheAttributes::holds),
      v("line_bytes", &CacheAttributes::line_bytes), v("ways", &CacheAttributes::ways);
}
void fields(auto& v, Of<PciAttributes>) {
  v("bus", &PciAttributes::bus), v("below", &PciAttributes::below), v("class", &PciAttributes::class_code),
      v("vendor", &PciAttributes::vendor), v("device", &PciAttributes::device);
  v("subsystem_vendor", &PciAttributes::subsystem_vendor), v("subsystem_device", &PciAttributes::subsystem_device),
      v("revision", &PciAttributes::revision);
  v("now", &PciAttributes::now), v("possible", &PciAttributes::possible),
      v("physical_function", &PciAttributes::physical_function);
  v("acs_redirect", &PciAttributes::acs_redirect);
}
void fields(auto& v, Of<OsDevice>) {
  v("kind", &OsDevice::kind), v("name", &OsDevice::name), v("backend", &OsDevice::backend),
      v("infos", &OsDevice::infos);
}
void fields(auto& v, Of<Part>) {
  v("kind", &Part::kind), v("parent", &Part::parent), v("os_index", &Part::os_index), v("name", &Part::name),
      v("subtype", &Part::subtype);
  v("bytes", &Part::bytes), v("cache", &Part::cache), v("pci", &Part::pci), v("cpus", &Part::cpus),
      v("faces", &Part::os_devices);
  v("infos", &Part::infos);
}
void fields(auto& v, Of<Gpu>) {
  v("part", &Gpu::part), v("vendor", &Gpu::vendor), v("model", &Gpu::model), v("memory_bytes", &Gpu::memory_bytes);
  v("architecture", &Gpu::architecture), v("uuid", &Gpu::uuid), v("serial", &Gpu::serial),
      v("firmware", &Gpu::firmware);
  v("state", &Gpu::state), v("utilization_percent", &Gpu::utilization_percent), v("clock_mhz", &Gpu::clock_mhz);
  v("most_clock_mhz", &Gpu::most_clock_mhz), v("cores", &Gpu::cores);
  v("most_memory_clock_mhz", &Gpu::most_memory_clock_mhz), v("memory_bus_bits", &Gpu::memory_bus_bits);
  v("throttle_reasons", &Gpu::throttle_reasons);
  v("uncorrected_errors", &Gpu::uncorrected_errors), v("mig", &Gpu::mig), v("infos", &Gpu::infos);
}
void fields(auto& v, Of<Interface>) {
  v("name", &Interface::name), v("address", &Interface::address), v("bits_per_second", &Interface::bits_per_second),
      v("mtu_bytes", &Interface::mtu_bytes);
  v("up", &Interface::up);
}
void fields(auto& v, Of<RdmaPort>) {
  v("device", &RdmaPort::device), v("port", &RdmaPort::port), v("active", &RdmaPort::active),
      v("link_layer", &RdmaPort::link_layer);
  v("bits_per_second", &RdmaPort::bits_per_second), v("mtu_bytes", &RdmaPort::mtu_bytes), v("guid", &RdmaPort::guid),
      v("rising", &RdmaPort::rising);
  v("infos", &RdmaPort::infos);
}
void fields(auto& v, Of<Nic>) {
  v("part", &Nic::part), v("driver", &Nic::driver), v("firmware", &Nic::firmware), v("interfaces", &Nic::interfaces);
  v("ports", &Nic::ports);
}
void fields(auto& v, Of<AcceleratorLink>) {
  v("from", &AcceleratorLink::from), v("kind", &AcceleratorLink::kind), v("to", &AcceleratorLink::to),
      v("to_class", &AcceleratorLink::to_class), v("lanes", &AcceleratorLink::lanes);
  v("lanes_down", &AcceleratorLink::lanes_down), v("bytes_per_second", &AcceleratorLink::bytes_per_second);
}
void fields(auto& v, Of<Distances>) {
  v("name", &Distances::name), v("kind", &Distances::kind), v("parts", &Distances::parts),
      v("values", &Distances::values);
}
void fields(auto& v, Of<CpuKind>) {
  v("cpus", &CpuKind::cpus), v("efficiency", &CpuKind::efficiency), v("infos", &CpuKind::infos);
}
void fields(auto& v, Of<Limits>) {
  v("cpu_quota", &Limits::cpu_quota), v("memory_bytes", &Limits::memory_bytes),
      v("locked_bytes", &Limits::locked_bytes);
  v("open_files", &Limits::open_files), v("allowed", &Limits::allowed);
}
void fields(auto& v, Of<SystemFacts>) {
  v("kernel", &SystemFacts::kernel), v("gpu_driver", &SystemFacts::gpu_driver), v("governor", &SystemFacts::governor);
  v("numa_balancing", &SystemFacts::numa_balancing), v("clock_synchronized", &SystemFacts::clock_synchronized);
  v("peer_memory", &SystemFacts::peer_memory), v("iommu_translates", &SystemFacts::iommu_translates);
  v("clock_ahead_ms", &SystemFacts::clock_ahead_ms), v("clock_within_ms", &SystemFacts::clock_within_ms);
  v("gpus_without_file", &SystemFacts::gpus_without_file), v("nccl_file", &SystemFacts::nccl_file);
  v("nccl_file_not_found", &SystemFacts::nccl_file_not_found);
}
void fields(auto& v, Of<ThreadPlace>) {
  v("name", &ThreadPlace::name), v("cpus", &ThreadPlace::cpus), v("planned", &ThreadPlace::planned);
}
void fields(auto& v, Of<Placement>) {
  v("threads", &Placement::threads), v("planned_numa", &Placement::planned_numa), v("pages", &Placement::pages),
      v("memory_refused", &Placement::memory_refused);
  v("planned_devices", &Placement::planned_devices), v("chosen_devices", &Placement::chosen_devices),
      v("open_devices", &Placement::open_devices);
}
void fields(auto& v, Of<RankSteps>) {
  v("steps", &RankSteps::steps), v("last", &RankSteps::last), v("load_ms", &RankSteps::load_ms),
      v("compute_ms", &RankSteps::compute_ms), v("update_ms", &RankSteps::update_ms);
  v("copy_ms", &RankSteps::copy_ms), v("exchange_ms", &RankSteps::exchange_ms),
      v("slower_part", &RankSteps::slower_part), v("others_part_ms", &RankSteps::others_part_ms);
}
void fields(auto& v, Of<RankPlace>) {
  v("rank", &RankPlace::rank), v("pid", &RankPlace::pid), v("cpus", &RankPlace::cpus),
      v("numa_bytes", &RankPlace::numa_bytes), v("gpu", &RankPlace::gpu);
  v("nic", &RankPlace::nic), v("transports", &RankPlace::transports), v("placement", &RankPlace::placement),
      v("steps", &RankPlace::steps);
}
void fields(auto& v, Of<Machine>) {
  v("host", &Machine::host), v("parts", &Machine::parts), v("gpus", &Machine::gpus), v("nics", &Machine::nics),
      v("links", &Machine::links);
  v("distances", &Machine::distances), v("cpu_kinds", &Machine::cpu_kinds), v("limits", &Machine::limits),
      v("system", &Machine::system);
  v("ranks", &Machine::ranks);
}

}  // namespace troupe::topology::detail
