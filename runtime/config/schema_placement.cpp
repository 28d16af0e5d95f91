#include "runtime/base/words.hpp"
#include "runtime/config/detail/sections.hpp"

namespace troupe::detail {
namespace {

using S = Settings;
using P = Settings::Placement;
using V = TomlValue;
using K = ValueKind;

constexpr std::size_t kMostRanks = 1024;
constexpr std::uint32_t kMostThreads = 4096;
constexpr std::uint32_t kMostMeshRanks = 65'536;

/// "2x4": 2 nodes with 4 ranks each.
std::optional<S::Placement::Mesh> mesh_of(std::string_view words) {
  const std::size_t times = words.find('x');
  if (times == words.npos) return std::nullopt;
  const auto nodes = number_in<std::uint32_t>(words.substr(0, times));
  const auto ranks = number_in<std::uint32_t>(words.substr(times + 1));
  if (nodes.value_or(0) == 0 || ranks.value_or(0) == 0 || std::uint64_t{*nodes} * *ranks > kMostMeshRanks)
    return std::nullopt;
  return S::Placement::Mesh{*nodes, *ranks};
}
std::optional<Finding> check_mesh(const V& v) {
  if (v.text.empty() || mesh_of(v.text)) return std::nullopt;
  return invalid(text("is ", describe(v), ", but takes nodes x ranks of each, as in placement.mesh = \"2x4\", at most ",
                      kMostMeshRanks, " ranks together"));
}
void store_mesh(S& s, const V& v) { s.placement.mesh = mesh_of(v.text).value_or(S::Placement::Mesh{}); }
std::string show_mesh(const S& s) {
  const S::Placement::Mesh& mesh = s.placement.mesh;
  return in_quotes(mesh.nodes == 0 ? std::string{} : text(mesh.nodes, 'x', mesh.ranks));
}

void store_device_threads(S& s, const V& v) {
  const bool is_word = v.kind == V::Kind::text;
  s.placement.device_threads = {is_word ? 0 : static_cast<std::uint32_t>(v.integer), is_word && v.text == "auto"};
}
std::string show_device_threads(const S& s) {
  const P::DeviceThreads& threads = s.placement.device_threads;
  return threads.count != 0 ? std::to_string(threads.count) : in_quotes(threads.tried ? "auto" : "cores");
}

}  // namespace

Keys placement_keys() {
  return {
      {"placement.device", at<&S::placement, &P::device>, one_of({"auto", "cpu", "cuda"}), "what a rank computes on",
       "\"auto\"",
       "cpu: its cores. cuda: a GPU of its node, by NVIDIA's driver; the ranks of a node take its GPUs in turn, and "
       "may share one. auto: a GPU if CUDA lists one and it can compute the model's layers, otherwise the cores. auto "
       "is "
       "cpu in programs that embed a session, which may read its tensors, and for machines from files (rtrun plan "
       "--nodes), since a file does not say what CUDA can use."},
      {"placement.policy", at<&S::placement, &P::policy>, one_of({"auto", "spread", "pack"}),
       "which cores of its node a rank gets", "\"spread\"",
       "auto: cores in order, the same number for each rank; if a machine from a file has GPUs, those near the rank's "
       "GPU. spread: ranks as far from each other as the node allows, over all NUMA nodes. pack: ranks as near "
       "each other as possible, one NUMA node after another. Under spread and pack a rank has cores of several NUMA "
       "nodes only if it needs more than one NUMA node has, and shares no core with another rank. For rtrun plan "
       "--nodes it also sets how many ranks a machine gets."},
      {"placement.mesh", Custom{store_mesh, show_mesh}, text_in_quotes(check_mesh),
       "nodes x ranks of each node that the job must have; \"\": any", "\"2x4\"",
       "A job with a different number of nodes, or of ranks per node, is an error. rtrun plan --nodes places that many "
       "ranks."},
      {"placement.cores", at<&S::placement, &P::cores>, integer(0, 4096),
       "number of cores for each rank; 0: the node's cores are divided among its ranks", "2",
       "These cores compute. The node's remaining cores go to the lanes, which then poll: first one for the control "
       "lane of each rank, then one for its bulk lane. More cores than the node has is an error."},
      {"placement.device_threads", Custom{store_device_threads, show_device_threads},
       integer_or({"cores", "auto"}, 1, kMostThreads), "number of threads on which a rank's CPU device computes",
       "\"auto\"",
       "cores: one for each of the rank's cores. auto: a trial at the start of the run, which takes about a second, "
       "lets each rank compute steps of the model on all of its cores, on half and a quarter of them, and on one, and "
       "takes the fastest; a note reports what was tried and chosen. On cores that other programs use, one thread can "
       "be "
       "faster than several, which wait for each other in every layer. Not together with train.deterministic, since "
       "the bits of a run depend on the number of threads. A number above that of the rank's cores is an error."},
      {"placement.affinity", at<&S::placement, &P::affinity>, one_of({"plan", "threads", "none"}),
       "what is pinned where the plan places a rank", "\"none\"",
       "plan: its threads stay on the rank's processors, its memory comes from the rank's NUMA nodes, and its "
       "transport uses the rank's network device (UCX_NET_DEVICES comes first). threads: only the threads. none: "
       "nothing, and waits sleep at once; for machines whose processors other jobs use too. What was not possible is "
       "reported at the start of the run."},
      {"placement.split", at<&S::placement, &P::split>, one_of({"equal", "measured"}),
       "how ranks share a step's samples", "\"measured\"",
       "equal: each rank takes data.batch. measured: in proportion to the speed at which each rank was measured to "
       "compute. The sum stays data.batch times the number of ranks, and the gradient is still the mean over all "
       "samples."},
      {"placement.min_share", at<&S::placement, &P::min_share>, number(0, 1),
       "smallest number of samples of a rank with split = \"measured\", as a fraction of data.batch", "0.05",
       "Rounded up to a multiple of 8 samples (of 4 if data.batch is below 64, of 1 if it is below 16)."},
      {"placement.max_share", at<&S::placement, &P::max_share>, number(1, 1024),
       "largest number of samples of a rank with split = \"measured\", as a multiple of data.batch", "4",
       "Every slot of the loader's pool has room for that many."},
      {"placement.stripes", at<&S::placement, &P::stripes>, array_of(K::numbers, 0, kMostRanks, {0, 1e9}),
       "share of the parameters that each rank owns, one number per rank; []: equal shares", "[1, 1, 1, 0]",
       "The numbers are proportions. An owner keeps the optimizer's state of its share (its stripe) and updates it, or "
       "lets a shard do so. Shares are whole blocks of 1,024 parameters. 0: no share, for a rank that is slow or badly "
       "connected."},
      {"placement.bandwidth", at<&S::placement, &P::bandwidth>, array_of(K::numbers, 0, kMostRanks, {0, 1e15, true}),
       "network bandwidth of each rank, in any unit, from which the shares of the parameters are computed; []: not "
       "used",
       "[10, 10, 10, 2.5]",
       "The shares are those with which an exchange takes the least time. Not together with placement.stripes."},
  };
}

}  // namespace troupe::detail
