#include "tests/runtime/topology/machines.hpp"

#include <array>
#include <cstdio>

namespace troupe::topology::testing {
namespace {

constexpr PciLink kGen4x16{.gigatransfers = 16, .lanes = 16};

std::string bus(unsigned number) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "0000:%02x:00.0", number);
  return text.data();
}

class Maker {
 public:
  PartIndex add(PartKind kind, PartIndex parent, std::int32_t os_index = -1) {
    machine.parts.push_back({.kind = kind, .parent = parent, .os_index = os_index});
    return static_cast<PartIndex>(machine.parts.size() - 1);
  }
  PartIndex pci(PartKind kind, PartIndex parent, std::string bus_id, std::uint32_t class_code, std::uint16_t vendor,
                std::uint16_t device) {
    const PartIndex part = add(kind, parent);
    machine.parts[part].pci = PciAttributes{.bus = std::move(bus_id),
                                            .class_code = class_code,
                                            .vendor = vendor,
                                            .device = device,
                                            .now = kGen4x16,
                                            .possible = kGen4x16};
    return part;
  }
  void add_package(std::uint32_t number, bool whole_switches) {
    const PartIndex package = add(PartKind::package, kRoot, static_cast<std::int32_t>(number));
    machine.parts[package].infos.push_back({"CPUModel", "Made Up 9000"});
    machine.parts[add(PartKind::numa, package, static_cast<std::int32_t>(number))].bytes = 64'000'000'000;
    for (std::uint32_t core = 0; core < 4; ++core) {
      const PartIndex part = add(PartKind::core, package, static_cast<std::int32_t>(number * 4 + core));
      for (std::uint32_t pu = 0; pu < 2; ++pu)
        add(PartKind::pu, part, static_cast<std::int32_t>((number * 4 + core) * 2 + pu));
    }
    const unsigned first = 0x10 * (number + 1);
    PartIndex host = package;
    if (!whole_switches) {
      host = add(PartKind::host_bridge, package);
      machine.parts[host].pci.emplace();
      host = pci(PartKind::pci_bridge, host, bus(first - 1), 0x060400, 0x8086, 0x2030);
    }
    const PartIndex up =
        pci(whole_switches ? PartKind::pci_switch : PartKind::pci_bridge, host, bus(first), 0x060400, 0x1000, 0xc010);
    for (const unsigned each : {first + 2, first + 3, first + 4}) {
      const PartIndex port =
          whole_switches ? up : pci(PartKind::pci_bridge, up, bus(each + 6), 0x060400, 0x1000, 0xc010);
      if (each == first + 4) {
        const PartIndex part = pci(PartKind::pci_function, port, bus(each), 0x020700, 0x15b3, 0x101b);
        RdmaPort rdma{.device = "mlx5_" + std::to_string(number), .active = true, .link_layer = "InfiniBand"};
        rdma.bits_per_second = 200'000'000'000;
        machine.nics.push_back({.part = part, .driver = "mlx5_core", .firmware = "20.31", .ports = {rdma}});
      } else {
        const PartIndex part = pci(PartKind::pci_function, port, bus(each), 0x030200, 0x10de, 0x20b0);
        machine.gpus.push_back({.part = part,
                                .vendor = "nvidia",
                                .model = "Made Up Accelerator",
                                .memory_bytes = 40'000'000'000,
                                .architecture = "sm_80",
                                .uuid = "GPU-" + bus(each),
                                .state = GpuState::ok});
        machine.links.push_back(
            {.from = part, .to = bus(each == first + 2 ? each + 1 : each - 1), .to_class = 0x030200, .lanes = 4});
      }
    }
  }
  Machine machine;
};

}  // namespace

Machine two_sockets(bool whole_switches) {
  Maker maker;
  maker.machine.host = "made-up";
  maker.add_package(0, whole_switches);
  maker.add_package(1, whole_switches);
  return std::move(maker.machine);
}

PciAttributes& pci_at(Machine& machine, std::string_view bus) {
  return *machine.parts.at(Index{machine}.at_bus(bus)).pci;
}

}  // namespace troupe::topology::testing
