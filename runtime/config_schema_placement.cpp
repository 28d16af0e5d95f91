#include <array>

#include "runtime/detail/config_schema.hpp"

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
    SettingKey{.name = "placement.cores",
               .kind = K::integer,
               .help = "of each rank; 0: the node's cores shared out",
               .example = "2",
               .more = "For computing. What is left of a node's cores goes to the lanes, which then poll: one for each "
                       "rank's control lane, then one for its bulk lane. More than there are is refused.",
               .range = {0, 4096},
               .store = [](S& s, const V& v) { s.placement.cores = static_cast<std::uint32_t>(v.integer); },
               .show = [](const S& s) { return std::to_string(s.placement.cores); }},
    SettingKey{.name = "placement.split",
               .kind = K::choice,
               .help = "how ranks share a step's samples",
               .example = "\"measured\"",
               .more =
                   "equal: each takes data.batch. measured: in proportion to the rates that ranks are seen to compute "
                   "at; their sum stays data.batch times the ranks, and the gradient the mean over all samples.",
               .choices = kSplits,
               .store = [](S& s, const V& v) { s.placement.split = v.text; },
               .show = [](const S& s) { return quoted(s.placement.split); }},
    SettingKey{.name = "placement.min_share",
               .kind = K::number,
               .help = "the least that a rank takes with split = \"measured\", as a part of data.batch",
               .example = "0.05",
               .more = "Rounded up to a multiple of 8 samples, of 4 below 64, of 1 below 16.",
               .range = {0, 1},
               .store = [](S& s, const V& v) { s.placement.min_share = v.number; },
               .show = [](const S& s) { return number_text(s.placement.min_share); }},
    SettingKey{.name = "placement.max_share",
               .kind = K::number,
               .help = "the most that a rank takes with split = \"measured\", times data.batch",
               .example = "4",
               .more = "Every slot of the loader's pool has room for it.",
               .range = {1, 1024},
               .store = [](S& s, const V& v) { s.placement.max_share = v.number; },
               .show = [](const S& s) { return number_text(s.placement.max_share); }},
    SettingKey{.name = "placement.stripes",
               .kind = K::numbers,
               .help = "in what proportion ranks own the parameters, a number for each; []: equally",
               .example = "[1, 1, 1, 0]",
               .more = "An owner keeps the optimizer's state of its stripe and updates it, or lets a shard do so. In "
                       "whole blocks of "
                       "1,024 parameters. 0: none, for a rank that is slow or badly connected.",
               .range = {0, 1e9},
               .least_items = 0,
               .most_items = kMostRanks,
               .store = store_numbers<&S::Placement::stripes>,
               .show = show_numbers<&S::Placement::stripes>},
    SettingKey{.name = "placement.bandwidth",
               .kind = K::numbers,
               .help = "the ranks' network bandwidths, in any unit, from which their stripes follow; []: they do not",
               .example = "[10, 10, 10, 2.5]",
               .more = "Stripes of the sizes with which an exchange takes the least time. This or placement.stripes.",
               .range = {0, 1e15, true},
               .least_items = 0,
               .most_items = kMostRanks,
               .store = store_numbers<&S::Placement::bandwidth>,
               .show = show_numbers<&S::Placement::bandwidth>},
};

}  // namespace

std::span<const SettingKey> placement_keys() { return kPlacement; }

}  // namespace troupe::detail
