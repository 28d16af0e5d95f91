#include "runtime/planning/detail/assign_gpus.hpp"

#include <algorithm>
#include <map>

#include "runtime/base/error.hpp"
#include "runtime/planning/detail/amounts.hpp"

namespace troupe::detail {
namespace {

constexpr const char* kWantsCuda = "placement.device = \"cuda\": ";

const char* plural_s(std::size_t count) { return count == 1 ? "" : "s"; }

std::string bytes_of_gpu(std::uint64_t bytes) { return scaled(static_cast<double>(bytes), "B"); }

/// "GPU 0 (NVIDIA H100) at 0000:3b:00.0"
std::string title_of_gpu(const Accelerator& gpu) {
  return text(gpu.name, gpu.model.empty() ? "" : text(" (", gpu.model, ')'), gpu.bus.empty() ? "" : " at ", gpu.bus);
}

/// By which plans name it.
const std::string& gpu_id_of(const Accelerator& gpu) { return gpu.bus.empty() ? gpu.name : gpu.bus; }

/// The GPUs of one host, and how many ranks each has got.
class GpusOfHost {
 public:
  /// A file does not say which GPUs CUDA can use, so they count only where they are asked for, also those whose vendor
  /// it does not tell.
  GpusOfHost(const Topology& node, bool asked) {
    for (const Accelerator& gpu : node.accelerators)
      if (gpu.cuda || (asked && (gpu.vendor == "nvidia" || gpu.vendor.empty()))) gpus_.push_back({&gpu});
  }

  bool empty() const noexcept { return gpus_.empty(); }
  std::size_t size() const noexcept { return gpus_.size(); }
  bool any_exclusive() const {
    return std::ranges::any_of(gpus_, [](const Entry& entry) { return entry.gpu->exclusive; });
  }
  std::size_t used() const {
    return static_cast<std::size_t>(std::ranges::count_if(gpus_, [](const Entry& entry) { return entry.ranks > 0; }));
  }
  /// The one with the fewest ranks; null: there is none that takes one more.
  const Accelerator* take(const std::optional<std::vector<Accelerator>>& seen) {
    Entry* best = nullptr;
    for (Entry& entry : gpus_) {
      const bool is_seen = !seen || std::ranges::find(*seen, entry.gpu->bus, &Accelerator::bus) != seen->end();
      const bool takes_one = !entry.gpu->exclusive || entry.ranks == 0;
      if (is_seen && takes_one && (best == nullptr || entry.ranks < best->ranks)) best = &entry;
    }
    if (best == nullptr) return nullptr;
    ++best->ranks;
    return best->gpu;
  }

 private:
  struct Entry {
    const Accelerator* gpu;
    std::size_t ranks = 0;
  };
  std::vector<Entry> gpus_;
};

[[noreturn]] void refuse_rank(const GpusOfHost& gpus, const std::string& host, const RankPlan& rank,
                              std::size_t ranks) {
  if (!gpus.any_exclusive()) {
    fail(Code::environment, text(kWantsCuda, "rank ", rank.rank.value, " on node ", host,
                                 " sees no GPU that CUDA can use; nvidia-smi lists those of the node, "
                                 "CUDA_VISIBLE_DEVICES may hide them from the rank; or write \"auto\""));
  }
  fail(Code::invalid,
       text(kWantsCuda, ranks, " rank", plural_s(ranks), " on node ", host, ", and ", gpus.size(), " GPU",
            plural_s(gpus.size()),
            " in exclusive mode, which takes one process each; start fewer ranks there, or nvidia-smi -c "
            "DEFAULT allows several"));
}

}  // namespace

void assign_gpus(const Settings::Placement& placement, const PlanInputs& inputs, const Topology& node,
                 const std::string& host, const std::vector<RankPlan*>& ranks, std::vector<std::string>& reasons) {
  const bool asked = placement.device == "cuda";
  if (placement.device == "cpu") return;
  GpusOfHost gpus{node, asked};
  if (gpus.empty() && !asked) return;
  if (!inputs.cuda_refusal.empty()) {
    TROUPE_CHECK(!asked, Code::unsupported, kWantsCuda, inputs.cuda_refusal,
                 "; choose other layers, or write \"auto\" or \"cpu\"");
    reasons.push_back(text("Node ", host, ": its GPUs are left out, since ", inputs.cuda_refusal, "."));
    return;
  }
  std::size_t on_gpus = 0;
  for (RankPlan* const rank : ranks) {
    const Accelerator* const gpu = gpus.take(inputs.ranks.at(rank->rank.value).gpus);
    if (gpu == nullptr && asked) refuse_rank(gpus, host, *rank, ranks.size());
    if (gpu == nullptr) continue;
    rank->device = "cuda";
    rank->gpu = gpu_id_of(*gpu);
    rank->accelerator = gpu->name;
    ++on_gpus;
  }
  if (on_gpus == 0) return;
  const std::size_t used = gpus.used();
  reasons.push_back(text("Node ", host, ": ", on_gpus, " rank", plural_s(on_gpus),
                         on_gpus == 1 ? " computes" : " compute", " on ", used, " GPU", plural_s(used),
                         used > 1 && on_gpus > used ? ", which they take in turn" : "",
                         on_gpus < ranks.size() ? text(", ", ranks.size() - on_gpus, " on CPUs") : "", "."));
}

namespace {

/// Whether the process of a rank with these facts reaches the memory of another rank's GPU.
bool reaches(const RankFacts& facts, const std::string& own, const std::string& other) {
  if (!facts.gpus || own == other) return true;
  const auto gpu = std::ranges::find(*facts.gpus, own, gpu_id_of);
  return gpu != facts.gpus->end() && std::ranges::find(gpu->reaches, other) != gpu->reaches.end();
}

}  // namespace

bool reach_each_other(Plan& plan, const PlanInputs& inputs) {
  if (std::ranges::none_of(plan.ranks, &RankPlan::on_gpu)) return false;
  constexpr const char* kOverTheBus = "all train in the hosts' memory, which GPUs read and write over their bus.";
  if (!std::ranges::all_of(plan.ranks, &RankPlan::on_gpu)) {
    plan.reasons.push_back(text("Some ranks compute on GPUs, others on CPUs: ", kOverTheBus));
    return false;
  }
  std::vector<std::vector<const RankPlan*>> members(plan.nodes.size());
  for (const RankPlan& rank : plan.ranks) members[rank.node].push_back(&rank);
  for (const auto& ranks : members) {
    for (const RankPlan* const rank : ranks) {
      const RankFacts& facts = inputs.ranks[rank->rank.value];
      const auto far = std::ranges::find_if(
          ranks, [&](const RankPlan* other) { return facts.gpus && !reaches(facts, rank->gpu, other->gpu); });
      if (far == ranks.end()) continue;
      plan.reasons.push_back(text("Node ", plan.nodes[rank->node].host, ": the GPU of rank ", rank->rank.value,
                                  " does not reach the memory of rank ", (*far)->rank.value,
                                  "'s, or its process does not see that GPU: ", kOverTheBus));
      return false;
    }
  }
  return true;
}

namespace {

/// What takes less of the part of a rank's GPU memory that is the largest.
std::string remedy_for(const std::string& part, const Plan& plan) {
  if (part == "activations" && plan.batch > 1)
    return text("write a smaller data.batch than ", plan.batch,
                plan.dtype == DType::f32 ? " (model.dtype = \"bf16\" halves them, too)" : "");
  if (part == "NCCL's buffers" || part == "staging") return "write cluster.collectives = \"own\", or use fewer ranks";
  if (part == "optimizer state") return "choose an optimizer.rule with less state, or use more GPUs, which divide it";
  return "use a smaller model, or GPUs with more memory";
}

/// What the ranks on a GPU take of its memory.
struct Taken {
  std::uint64_t bytes = 0;
  std::size_t ranks = 0;
  std::uint32_t first = 0;  // of these ranks
};

[[noreturn]] void refuse_memory(const Plan& plan, const std::string& host, const Accelerator& gpu, const Taken& taken,
                                const MemoryNeeds& needs) {
  const auto parts = gpu_memory_parts(plan, needs);
  std::string all;
  for (const auto& [name, bytes] : parts) all += text(all.empty() ? "" : ", ", name, ' ', bytes_of_gpu(bytes));
  fail(Code::invalid,
       text("node ", host, ": ", title_of_gpu(gpu), " has ", bytes_of_gpu(gpu.memory_bytes), " of memory, and its ",
            taken.ranks, " rank", plural_s(taken.ranks), taken.ranks == 1 ? " takes " : " take ",
            bytes_of_gpu(taken.bytes), ", rank ", taken.first, " for ", all, "; ",
            taken.ranks > 1 ? "use fewer ranks there" : remedy_for(parts.front().first, plan),
            ", or placement.device = \"cpu\""));
}

}  // namespace

void fit_gpu_memory(Plan& plan, const std::vector<const Topology*>& nodes,
                    const std::function<MemoryNeeds(Rank)>& needs_of) {
  std::map<std::pair<std::string, std::string>, Taken> used;  // by host and bus: namespaces of a host share its GPUs
  for (const RankPlan& rank : plan.ranks) {
    if (!rank.on_gpu()) continue;
    Taken& use = used[{plan.nodes[rank.node].identity.boot_id, rank.gpu}];
    use.bytes += rank.gpu_bytes;
    if (use.ranks++ == 0) use.first = rank.rank.value;
    NodePlan& node = plan.nodes[rank.node];
    if (std::ranges::find(node.gpus, rank.gpu, &GpuUse::bus) == node.gpus.end())
      node.gpus.push_back({.bus = rank.gpu, .model = {}});
  }
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    NodePlan& node = plan.nodes[n];
    for (GpuUse& gpu : node.gpus) {
      const auto found = std::ranges::find(nodes[n]->accelerators, gpu.bus, gpu_id_of);
      const Taken& use = used.at({node.identity.boot_id, gpu.bus});
      if (found == nodes[n]->accelerators.end()) continue;
      gpu.model = found->model;
      gpu.there = found->memory_bytes;
      gpu.used = use.bytes;
      if (gpu.there != 0 && gpu.used > gpu.there)
        refuse_memory(plan, node.host, *found, use, needs_of(Rank{use.first}));
    }
  }
}

}  // namespace troupe::detail
