#include "runtime/planning/gpu_models.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/topology/paths.hpp"

namespace troupe {
namespace {

using topology::ComputeFigure;
using topology::GpuFigure;
using topology::GpuLinkFigure;
using topology::Repeats;

constexpr double kMega = 1e6, kGiga = 1e9;
constexpr std::uint16_t kNvidia = 0x10de;

/// A model by its PCI device ids. Source: NVIDIA's data sheets (highest clock, memory bandwidth) and white papers of
/// the architectures (number of cores); ids: the PCI ID repository.
struct KnownGpu {
  std::string_view name;
  std::array<std::uint16_t, 4> devices;  // 0: no further one
  std::string_view architecture;
  std::uint32_t cores;
  std::uint32_t clock_mhz;
  double gigabytes;  // per second
};
constexpr KnownGpu kKnown[] = {
    {"P100", {0x15f8, 0x15f9}, "sm_60", 3584, 1303, 732},
    {"V100", {0x1db1, 0x1db4, 0x1db5, 0x1db8}, "sm_70", 5120, 1530, 900},
    {"T4", {0x1eb8}, "sm_75", 2560, 1590, 320},
    {"A100 40GB", {0x20b0, 0x20f1}, "sm_80", 6912, 1410, 1555},
    {"A100 80GB", {0x20b2, 0x20b5}, "sm_80", 6912, 1410, 1935},
    {"A10", {0x2236, 0x2237}, "sm_86", 9216, 1695, 600},
    {"L4", {0x27b8}, "sm_89", 7424, 2040, 300},
    {"L40S", {0x26b9}, "sm_89", 18176, 2520, 864},
    {"H100 PCIe", {0x2331}, "sm_90", 14592, 1755, 2000},
    {"H100 SXM", {0x2330}, "sm_90", 16896, 1980, 3350},
    {"H200", {0x2335}, "sm_90", 16896, 1980, 4800},
    {"B200", {0x2901}, "sm_100", 18944, 1965, 8000},
};
/// What an unknown GPU is taken for: a slow one of those in use.
constexpr const KnownGpu& kUnknown = kKnown[2];

/// How many times as fast as f32 tensor cores are, without sparsity. Source: the same white papers, operations of a
/// multiprocessor in a cycle; of sm_86, sm_89 and sm_120 those of the models for data centers.
struct TensorCores {
  std::string_view architecture;
  double tf32, bf16;
};
constexpr TensorCores kTensorCores[] = {{"sm_80", 8, 16},   {"sm_86", 2, 4},    {"sm_89", 2, 4}, {"sm_90", 8, 16},
                                        {"sm_100", 16, 32}, {"sm_103", 16, 32}, {"sm_120", 2, 4}};

// Of the driver and the GPU, where nothing was measured.
constexpr double kLaunchSeconds = 10e-6, kKernelSeconds = 2e-6;
// Of a step of a ring. Source: NCCL's model of its own speed (tuning.cc: ring, simple protocol).
constexpr double kLinkSeconds = 3.4e-6, kPciSeconds = 5.7e-6;

Repeats exactly(double value) { return {value, value, value}; }

const KnownGpu* known_by(const topology::Part& part) {
  if (!part.pci || part.pci->device == 0 || (part.pci->vendor != kNvidia && part.pci->vendor != 0)) return nullptr;
  const auto is_it = [&](const KnownGpu& gpu) {
    return std::ranges::find(gpu.devices, part.pci->device) != gpu.devices.end();
  };
  const auto* const found = std::ranges::find_if(kKnown, is_it);
  return found == std::end(kKnown) ? nullptr : found;
}

/// Peak rates of a GPU.
struct Peaks {
  std::string from;  // where they come from
  std::string architecture;
  double f32 = 0;               // operations per second
  double bytes_per_second = 0;  // of its memory
};

std::optional<Peaks> told_peaks(const topology::Gpu& gpu) {
  const auto is_told = [](const std::optional<std::uint32_t>& number) { return number.value_or(0) != 0; };
  if (!is_told(gpu.cores) || !is_told(gpu.most_clock_mhz) || !is_told(gpu.most_memory_clock_mhz) ||
      !is_told(gpu.memory_bus_bits))
    return std::nullopt;
  // Memory moves two bits over each wire in a cycle of the clock that NVML tells.
  return Peaks{.from = text("what NVML tells: ", *gpu.cores, " cores at ", *gpu.most_clock_mhz, " MHz, memory of ",
                            *gpu.memory_bus_bits, " bits at ", *gpu.most_memory_clock_mhz, " MHz"),
               .architecture = gpu.architecture,
               .f32 = 2.0 * *gpu.cores * *gpu.most_clock_mhz * kMega,
               .bytes_per_second = 2.0 * *gpu.most_memory_clock_mhz * kMega * *gpu.memory_bus_bits / 8};
}

/// `known`: null: nothing is known.
Peaks peaks_of(const KnownGpu* known) {
  const KnownGpu& taken = known != nullptr ? *known : kUnknown;
  return {.from = known != nullptr ? text("the data sheet of the ", known->name)
                                   : text("the data sheet of a ", kUnknown.name, ", since its model is not known"),
          .architecture = std::string{taken.architecture},
          .f32 = 2.0 * taken.cores * taken.clock_mhz * kMega,
          .bytes_per_second = taken.gigabytes * kGiga};
}

ComputeFigure peak_figure(const char* dtype, double flops_per_second) {
  return {.dtype = dtype, .rows = 1, .units = 1, .flops_per_second = exactly(flops_per_second), .layers = 1};
}

GpuFigure figure_of(const Peaks& peaks, const std::string& id, const std::string& model) {
  const auto* const found = std::ranges::find(kTensorCores, peaks.architecture, &TensorCores::architecture);
  const TensorCores times = found == std::end(kTensorCores) ? TensorCores{"", 1, 1} : *found;
  GpuFigure made{
      .bus = id, .model = model, .products = {}, .bytes_per_second = {}, .launch_seconds = {}, .kernel_seconds = {}};
  made.modelled_from = peaks.from;
  made.bytes_per_second = exactly(peaks.bytes_per_second);
  made.launch_seconds = exactly(kLaunchSeconds);
  made.kernel_seconds = exactly(kKernelSeconds);
  made.compute = {peak_figure("f32", peaks.f32), peak_figure("tf32", peaks.f32 * times.tf32),
                  peak_figure("bf16", peaks.f32 * times.bf16)};
  made.own = {peak_figure("f32", peaks.f32), peak_figure("bf16", peaks.f32)};  // without tensor cores
  return made;
}

GpuLinkFigure link_of(const std::string& from, const std::string& to, const topology::Path& path) {
  const bool is_link = path.path_class == topology::PathClass::link || path.path_class == topology::PathClass::hop ||
                       path.path_class == topology::PathClass::c2c;
  // Nothing is known of a path whose rate is 0; such a rate would be an exchange that never ends.
  constexpr double kLeast = 1e9;
  return {.from = from,
          .to = to,
          .bytes = 1,
          .seconds = exactly(is_link ? kLinkSeconds : kPciSeconds),
          .bytes_per_second = exactly(std::max(kLeast, path.bytes_per_second))};
}

}  // namespace

GpuFigure unknown_gpu(const std::string& bus, const std::string& model) {
  return figure_of(peaks_of(nullptr), bus, model);
}

GpuLinkFigure unknown_gpu_link(const std::string& from, const std::string& to) {
  constexpr double kPci3 = 15.75e9;
  topology::Path path;
  path.bytes_per_second = kPci3 * topology::kPciEfficiency;
  return link_of(from, to, path);
}

void add_modelled_gpus(const topology::Machine& machine, topology::Measurements& figures) {
  const topology::Index index{machine};
  struct Named {
    const topology::Gpu* gpu;
    std::string id;
  };
  std::vector<Named> gpus;
  for (const topology::Gpu& gpu : machine.gpus) {
    if (gpu.vendor != "nvidia" && !gpu.vendor.empty()) continue;
    const auto& pci = machine.parts[gpu.part].pci;
    gpus.push_back({&gpu, pci && !pci->bus.empty() ? pci->bus : topology::label_of(index, gpu.part)});
  }
  for (const Named& each : gpus) {
    const auto told = told_peaks(*each.gpu);
    const Peaks peaks = told ? *told : peaks_of(known_by(machine.parts[each.gpu->part]));
    figures.gpus.push_back(figure_of(peaks, each.id, each.gpu->model));
    const topology::PartIndex memory = index.numa_of(each.gpu->part);
    const topology::Path to_host =
        topology::best_path(index, each.gpu->part, memory == topology::kNoPart ? topology::kRoot : memory);
    figures.gpu_links.push_back(link_of(GpuLinkFigure::kHost, each.id, to_host));
    figures.gpu_links.push_back(link_of(each.id, GpuLinkFigure::kHost, to_host));
    for (const Named& other : gpus)
      if (other.gpu != each.gpu)
        figures.gpu_links.push_back(
            link_of(each.id, other.id, topology::best_path(index, each.gpu->part, other.gpu->part)));
  }
}

}  // namespace troupe
