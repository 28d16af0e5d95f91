#include <array>

#include "runtime/config/detail/schema.hpp"

namespace troupe::detail {
namespace {

constexpr std::array kDevices{Choice{"auto"}, Choice{"cpu"}, Choice{"cuda", false}};
constexpr std::array kSplits{Choice{"equal"}, Choice{"measured"}};
constexpr std::size_t kMostRanks = 1024;

template <std::vector<double> Settings::Placement::*kMember>
void store_numbers(Settings& s, const TomlValue& v) {
  (s.placement.*kMember).clear();
  for (const TomlValue& item : v.items) (s.placement.*kMember).push_back(item.number);
}

template <std::vector<double> Settings::Placement::*kMember>
std::string show_numbers(const Settings& s) {
  std::string out;
  for (const double value : s.placement.*kMember) out += (out.empty() ? "" : ", ") + number_text(value);
  return "[" + out + "]";
}

using S = Settings;
using V = TomlValue;
using K = ValueKind;

constexpr std::array kPlacement{
    SettingKey{.name = "placement.device",
               .kind = K::choice,
               .help = "what a rank computes on",
               .example = "\"auto\"",
               .more = "auto is cpu in this build.",
               .choices = kDevices,
               .today = "placement.device = \"cpu\" (or \"auto\")",
               .store = [](S& s, const V& v) { s.placement.device = v.text; },
               .show = [](const S& s) { return quoted(s.placement.device); }},
    SettingKey{
        .name = "placement.cores",
        .kind = K::integer,
        .help = "number of cores for each rank; 0: the node's cores are divided among its ranks",
        .example = "2",
        .more = "These cores compute. The node's remaining cores go to the lanes, which then poll: first one for the "
                "control lane of each rank, then one for its bulk lane. More cores than the node has is an error.",
        .range = {0, 4096},
        .store = [](S& s, const V& v) { s.placement.cores = static_cast<std::uint32_t>(v.integer); },
        .show = [](const S& s) { return std::to_string(s.placement.cores); }},
    SettingKey{.name = "placement.split",
               .kind = K::choice,
               .help = "how ranks share a step's samples",
               .example = "\"measured\"",
               .more = "equal: each rank takes data.batch. measured: in proportion to the speed at which each rank is "
                       "seen to compute. The sum stays data.batch times the number of ranks, and the gradient is still "
                       "the mean over all samples.",
               .choices = kSplits,
               .store = [](S& s, const V& v) { s.placement.split = v.text; },
               .show = [](const S& s) { return quoted(s.placement.split); }},
    SettingKey{
        .name = "placement.min_share",
        .kind = K::number,
        .help = "smallest number of samples of a rank with split = \"measured\", as a fraction of data.batch",
        .example = "0.05",
        .more = "Rounded up to a multiple of 8 samples (of 4 if data.batch is below 64, of 1 if it is below 16).",
        .range = {0, 1},
        .store = [](S& s, const V& v) { s.placement.min_share = v.number; },
        .show = [](const S& s) { return number_text(s.placement.min_share); }},
    SettingKey{.name = "placement.max_share",
               .kind = K::number,
               .help = "largest number of samples of a rank with split = \"measured\", as a multiple of data.batch",
               .example = "4",
               .more = "Every slot of the loader's pool has room for that many.",
               .range = {1, 1024},
               .store = [](S& s, const V& v) { s.placement.max_share = v.number; },
               .show = [](const S& s) { return number_text(s.placement.max_share); }},
    SettingKey{.name = "placement.stripes",
               .kind = K::numbers,
               .help = "share of the parameters that each rank owns, one number per rank; []: equal shares",
               .example = "[1, 1, 1, 0]",
               .more =
                   "The numbers are proportions. An owner keeps the optimizer's state of its share (its stripe) and "
                   "updates it, or lets a shard do so. Shares are whole blocks of 1,024 parameters. 0: no share, for "
                   "a rank that is slow or badly connected.",
               .range = {0, 1e9},
               .least_items = 0,
               .most_items = kMostRanks,
               .store = store_numbers<&S::Placement::stripes>,
               .show = show_numbers<&S::Placement::stripes>},
    SettingKey{
        .name = "placement.bandwidth",
        .kind = K::numbers,
        .help = "network bandwidth of each rank, in any unit, from which the shares of the parameters are computed; "
                "[]: not used",
        .example = "[10, 10, 10, 2.5]",
        .more =
            "The shares are those with which an exchange takes the least time. Not together with placement.stripes.",
        .range = {0, 1e15, true},
        .least_items = 0,
        .most_items = kMostRanks,
        .store = store_numbers<&S::Placement::bandwidth>,
        .show = show_numbers<&S::Placement::bandwidth>},
};

}  // namespace

std::span<const SettingKey> placement_keys() { return kPlacement; }

}  // namespace troupe::detail
