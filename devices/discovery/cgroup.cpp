#include <algorithm>
#include <sstream>
#include <vector>

#include "devices/discovery/detail/cgroup.hpp"
#include "runtime/base/words.hpp"

namespace troupe::detail {
namespace {

/// Whether the comma-separated `list` contains `word`.
bool lists(std::string_view list, std::string_view word) {
  const std::vector<std::string> words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Replaces mountinfo's escapes such as \040.
std::string unescaped(const std::string& text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// The folder where a hierarchy is mounted, and the group that is the mount's root.
struct Mount {
  std::string root;
  std::string folder;
};

/// Finds the mount of version 2, or of version 1 with this controller.
std::optional<Mount> find_mount(std::string_view mounts, bool version_2, std::string_view controller) {
  for (const std::string& line : split(mounts, '\n')) {
    // 36 35 98:0 ROOT FOLDER options [more fields] - TYPE source superoptions
    std::istringstream in{line};
    std::string id, parent, device, root, folder, field, type, source, options;
    in >> id >> parent >> device >> root >> folder;
    while (in >> field && field != "-") {
    }
    if (!(in >> type >> source >> options)) continue;
    const bool fits = version_2 ? type == "cgroup2" : type == "cgroup" && lists(options, controller);
    if (fits) return Mount{unescaped(root), unescaped(folder)};
  }
  return std::nullopt;
}

/// The process's group in a hierarchy: "0::/path", or "4:cpu,cpuacct:/path".
std::optional<std::string> own_group(std::string_view own_groups, bool version_2, std::string_view controller) {
  for (const std::string& line : split(own_groups, '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = std::string_view{line}.substr(first + 1, second - first - 1);
    const bool fits = version_2 ? controllers.empty() : lists(controllers, controller);
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The group's path below the mount; "" if the mount shows only the groups below it (in a container).
std::string below_mount(const std::string& group, const std::string& root) {
  if (root == "/") return group == "/" ? "" : group;
  if (group.starts_with(root) && (group.size() == root.size() || group[root.size()] == '/'))
    return group.substr(root.size());
  return "";
}

/// quota / period; 0 if there is none.
double granted(const std::optional<std::string>& quota, const std::optional<std::string>& period) {
  if (!quota || !period) return 0;
  double time = 0;
  double span = 0;
  if (!(std::istringstream{*quota} >> time) || !(std::istringstream{*period} >> span)) return 0;  // not for "max"
  return time > 0 && span > 0 ? time / span : 0;
}

double granted_by(const std::string& folder, bool version_2, const FileReader& read) {
  if (!version_2) return granted(read(folder + "/cpu.cfs_quota_us"), read(folder + "/cpu.cfs_period_us"));
  const auto both = read(folder + "/cpu.max");  // "150000 100000"
  const auto space = both ? both->find(' ') : std::string::npos;
  if (space == std::string::npos) return 0;
  return granted(both->substr(0, space), both->substr(space + 1));
}

/// In bytes; 0: no limit ("max", or the largest page-aligned number in version 1).
double memory_granted_by(const std::string& folder, bool version_2, const FileReader& read) {
  const auto text = read(folder + (version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
  double bytes = 0;
  if (!text || !(std::istringstream{*text} >> bytes) || bytes > 9e18) return 0;
  return bytes;
}

using Grant = double (*)(const std::string& folder, bool version_2, const FileReader& read);

/// The smallest grant of the process's own group and all groups above it; 0: no limit.
double least_granted(std::string_view own_groups, std::string_view mounts, const FileReader& read,
                     std::string_view controller, Grant grant) {
  double least = 0;
  for (const bool version_2 : {true, false}) {
    const auto mount = find_mount(mounts, version_2, controller);
    const auto group = own_group(own_groups, version_2, controller);
    if (!mount || !group) continue;
    std::string path = below_mount(*group, mount->root);
    while (true) {
      const double here = grant(mount->folder + path, version_2, read);
      if (here > 0 && (least == 0 || here < least)) least = here;
      if (path.empty()) break;
      path.erase(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
    }
  }
  return least;
}

}  // namespace

double cpu_quota(std::string_view own_groups, std::string_view mounts, const FileReader& read) {
  return least_granted(own_groups, mounts, read, "cpu", granted_by);
}

std::uint64_t memory_limit(std::string_view own_groups, std::string_view mounts, const FileReader& read) {
  const double least = least_granted(own_groups, mounts, read, "memory", memory_granted_by);
  return least > 0 ? static_cast<std::uint64_t>(least) : ~std::uint64_t{0};
}

}  // namespace troupe::detail
