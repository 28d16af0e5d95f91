#include "devices/discovery/memory_binding.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "runtime/base/error.hpp"

namespace troupe {
namespace {

struct EndTopology {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
struct EndBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using NodeSet = std::unique_ptr<hwloc_bitmap_s, EndBitmap>;

/// Only a preference (no HWLOC_MEMBIND_STRICT): a full node must not end a run.
constexpr auto kPolicy = HWLOC_MEMBIND_BIND;
constexpr int kThread = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;

class HwlocBinding final : public MemoryBinding {
 public:
  HwlocBinding(std::vector<std::uint32_t> nodes, const std::string& synthetic) : nodes_(std::move(nodes)) {
    std::sort(nodes_.begin(), nodes_.end());
    load(synthetic);
    if (topology_ == nullptr) return;
    set_.reset(hwloc_bitmap_alloc());
    for (const std::uint32_t node : nodes_) hwloc_bitmap_set(set_.get(), node);
    may_bind_ = has_all_nodes() && !has_policy();
  }

  const std::vector<std::uint32_t>& nodes() const noexcept override { return nodes_; }

  void bind(std::byte* base, std::uint64_t size_bytes) noexcept override {
    if (!may_bind_) return;
    if (hwloc_set_area_membind(topology_.get(), base, size_bytes, set_.get(), kPolicy, HWLOC_MEMBIND_BYNODESET) != 0)
      refuse_by_system("shared memory");
  }

  void bind_thread(bool moves) noexcept override {
    if (!may_bind_) return;
    const int flags = kThread | (moves ? HWLOC_MEMBIND_MIGRATE : 0);
    if (hwloc_set_membind(topology_.get(), set_.get(), kPolicy, flags) != 0) refuse_by_system("a thread's memory");
  }

  void release_thread() noexcept override {
    if (!may_bind_) return;
    (void)hwloc_set_membind(topology_.get(), set_.get(), HWLOC_MEMBIND_DEFAULT, kThread);
  }

  std::map<std::uint32_t, std::uint64_t> locate(const std::byte* base, std::uint64_t size_bytes,
                                                std::size_t samples) const noexcept override {
    std::map<std::uint32_t, std::uint64_t> found;
    if (topology_ == nullptr || size_bytes == 0) return found;
    const NodeSet where{hwloc_bitmap_alloc()};
    for (std::size_t i = 0; i < samples; ++i) {
      const std::byte* const page = base + size_bytes / samples * i;
      // The system reports only pages that this process has mapped, and maps a shared page at its first use here.
      (void)*static_cast<const volatile std::byte*>(page);
      if (hwloc_get_area_memlocation(topology_.get(), page, 1, where.get(), HWLOC_MEMBIND_BYNODESET) != 0) continue;
      if (hwloc_bitmap_weight(where.get()) == 1) ++found[static_cast<std::uint32_t>(hwloc_bitmap_first(where.get()))];
    }
    return found;
  }

  std::string refusal() const override {
    const std::lock_guard lock{mutex_};
    return refusal_;
  }

 private:
  /// Loads NUMA nodes only: no devices, and no components that would wake drivers.
  void load(const std::string& synthetic) {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) return refuse("hwloc cannot start");
    std::unique_ptr<hwloc_topology, EndTopology> topology{raw};
    for (const char* component : {"opencl", "gl", "x86", "pci"})
      hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
    hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (!synthetic.empty() && hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0)
      fail(Code::invalid, text("hwloc knows no machine \"", synthetic, '"'));
    if (hwloc_topology_load(raw) != 0) return refuse("hwloc cannot look at this host's NUMA nodes");
    topology_ = std::move(topology);
  }

  bool has_all_nodes() {
    const hwloc_const_nodeset_t here = hwloc_topology_get_topology_nodeset(topology_.get());
    for (const std::uint32_t node : nodes_)
      if (hwloc_bitmap_isset(here, node) == 0) refuse(text("this process may use no NUMA node ", node));
    return hwloc_bitmap_isincluded(set_.get(), here) != 0;
  }

  /// Whether this process already had a memory policy: what a user has set by hand is kept.
  bool has_policy() {
    if (hwloc_topology_is_thissystem(topology_.get()) == 0) return false;  // a described machine has no processes
    const NodeSet now{hwloc_bitmap_alloc()};
    hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
    if (hwloc_get_membind(topology_.get(), now.get(), &policy, kThread) != 0) {
      refuse_by_system("a thread's memory");
      return true;
    }
    if (policy == HWLOC_MEMBIND_DEFAULT || policy == HWLOC_MEMBIND_FIRSTTOUCH) return false;
    refuse("the process was started with a memory policy of its own (numactl, srun --mem-bind), which stays");
    return true;
  }

  void refuse_by_system(const char* what) noexcept {
    const int why = errno;
    try {
      refuse(text("the system does not bind ", what, ": ", std::strerror(why)));
    } catch (const std::bad_alloc&) {
      // Only the text is lost.
    }
  }
  void refuse(const std::string& why) {
    const std::lock_guard lock{mutex_};
    if (refusal_.empty()) refusal_ = why;
  }

  std::vector<std::uint32_t> nodes_;
  std::unique_ptr<hwloc_topology, EndTopology> topology_;
  NodeSet set_;
  bool may_bind_ = false;
  mutable std::mutex mutex_;  // guards refusal_
  std::string refusal_;
};

}  // namespace

std::unique_ptr<MemoryBinding> make_memory_binding(std::vector<std::uint32_t> nodes, const std::string& synthetic) {
  if (nodes.empty()) return nullptr;
  return std::make_unique<HwlocBinding>(std::move(nodes), synthetic);
}

}  // namespace troupe
