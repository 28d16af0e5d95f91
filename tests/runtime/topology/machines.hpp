#pragma once

#include <string>
#include <string_view>

#include "runtime/topology/machine.hpp"

namespace troupe::topology::testing {

/// A made-up machine: 2 packages, each with a NUMA node of 64 GB, 4 cores of 2 PUs, and one PCI switch with 2 GPUs and
/// a NIC behind it (hwloc's ports of it, or one pci_switch where `whole_switches`). GPUs 0-1 and 2-3 have 4 NVLink
/// lanes to each other. Bus ids: switch 10 (20): GPUs 12, 13 (22, 23), NIC 14 (24).
Machine two_sockets(bool whole_switches = false);

/// The PCI attributes of the part with this bus id.
PciAttributes& pci_at(Machine& machine, std::string_view bus);

inline constexpr const char* kHwloc2 = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" allowed_cpuset="0x0000000f" nodeset="0x00000001" complete_nodeset="0x00000001" allowed_nodeset="0x00000001" gp_index="1">
    <info name="HostName" value="made-up"/>
    <object type="Package" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <info name="CPUModel" value="Made Up 9000"/>
      <object type="NUMANode" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="8589934592"/>
      <object type="L3Cache" cpuset="0x0000000f" complete_cpuset="0x0000000f" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4" cache_size="8388608" depth="3" cache_linesize="64" cache_associativity="16" cache_type="0">
        <object type="Core" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="5">
          <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="6"/>
          <object type="PU" os_index="1" cpuset="0x00000002" complete_cpuset="0x00000002" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="7"/>
        </object>
        <object type="Core" os_index="1" cpuset="0x0000000c" complete_cpuset="0x0000000c" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="8">
          <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="9"/>
          <object type="PU" os_index="3" cpuset="0x00000008" complete_cpuset="0x00000008" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="10"/>
        </object>
      </object>
      <object type="Bridge" gp_index="11" bridge_type="0-1" depth="0" bridge_pci="0000:[00-02]">
        <object type="Bridge" gp_index="12" bridge_type="1-1" depth="1" bridge_pci="0000:[01-01]" pci_busid="0000:00:01.0" pci_type="0604 [8086:3c03] [0000:0000] 07" pci_link_speed="15.753846">
          <object type="PCIDev" gp_index="13" pci_busid="0000:01:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1" pci_link_speed="15.753846">
            <object type="OSDev" gp_index="14" name="cuda0" subtype="CUDA" osdev_type="5">
              <info name="GPUModel" value="Made Up Accelerator"/>
              <info name="CUDAGlobalMemorySize" value="1048576"/>
            </object>
            <object type="OSDev" gp_index="15" name="opencl0d0" subtype="OpenCL" osdev_type="5"/>
            <object type="OSDev" gp_index="16" name="nvml0" subtype="NVML" osdev_type="1">
              <info name="NVIDIASerial" value="123"/>
            </object>
          </object>
        </object>
        <object type="PCIDev" gp_index="17" pci_busid="0000:02:00.0" pci_type="0200 [15b3:1013] [15b3:0034] 00" pci_link_speed="7.876923">
          <object type="OSDev" gp_index="18" name="eth0" osdev_type="2">
            <info name="Address" value="02:00:00:00:00:01"/>
          </object>
          <object type="OSDev" gp_index="19" name="mlx5_0" osdev_type="3">
            <info name="NodeGUID" value="0200:0000:0000:0001"/>
            <info name="Port1State" value="4"/>
          </object>
        </object>
      </object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="1" kind="5" name="NUMALatency" indexing="os">
    <indexes length="2">0 </indexes>
    <u64values length="3">10 </u64values>
  </distances2>
</topology>
)";

/// Two NUMA nodes that contain their packages, and a third, of a GPU, without processors.
inline constexpr const char* kHwloc1 = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
  <object type="Machine" os_index="0" cpuset="0x00000003" complete_cpuset="0x00000003" allowed_cpuset="0x00000003">
    <distances nbobjs="3" relative_depth="1" latency_base="10.000000">
      <latency value="1.0"/><latency value="2.0"/><latency value="8.0"/>
      <latency value="2.0"/><latency value="1.0"/><latency value="8.0"/>
      <latency value="8.0"/><latency value="8.0"/><latency value="1.0"/>
    </distances>
    <object type="NUMANode" os_index="0" cpuset="0x00000001" local_memory="1000">
      <object type="Socket" os_index="0" cpuset="0x00000001">
        <object type="Cache" cpuset="0x00000001" cache_size="32768" depth="2" cache_linesize="64" cache_associativity="8" cache_type="0">
          <object type="Core" os_index="0" cpuset="0x00000001"><object type="PU" os_index="0" cpuset="0x00000001"/></object>
        </object>
      </object>
      <object type="Bridge" bridge_type="0-1" depth="0" bridge_pci="0004:[00-01]">
        <object type="PCIDev" pci_busid="0004:01:00.0" pci_type="0302 [10de:1db1] [10de:1212] a1" pci_link_speed="0.0"/>
      </object>
    </object>
    <object type="NUMANode" os_index="8" cpuset="0x00000002" local_memory="2000">
      <object type="Socket" os_index="1" cpuset="0x00000002">
        <object type="Core" os_index="1" cpuset="0x00000002"><object type="PU" os_index="1" cpuset="0x00000002"/></object>
      </object>
    </object>
    <object type="NUMANode" os_index="255" cpuset="0x0" local_memory="3000"><info name="Type" value="GPUMemory"/></object>
  </object>
</topology>
)";

inline constexpr const char* kNccl = R"(<system version="1">
  <cpu numaid="0" affinity="00000000,0000000f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x060400" vendor="0x1000" device="0xc030" subsystem_vendor="0x1000" subsystem_device="0x0072" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:12:00.0" class="0x030200" vendor="0x10de" device="0x2330" subsystem_vendor="0x10de" subsystem_device="0x16c1" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:22:00.0" count="18" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:14:00.0" class="0x020700" vendor="0x15b3" device="0x1021" subsystem_vendor="0x15b3" subsystem_device="0x0038" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.000000" guid="0x9a70" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="00000000,000000f0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:22:00.0" class="0x030200" vendor="0x10de" device="0x2330" subsystem_vendor="0x10de" subsystem_device="0x16c1" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="1" gdr="1">
        <nvlink target="0000:12:00.0" count="18" tclass="0x030200"/>
      </gpu>
    </pci>
    <nic>
      <net name="eth0" dev="1" speed="10000" port="0" guid="0x0" maxconn="65536" gdr="0"/>
    </nic>
  </cpu>
</system>
)";

}  // namespace troupe::topology::testing
