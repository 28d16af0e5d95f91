#include "runtime/config/hosts.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"
#include "runtime/config/detail/host_entries.hpp"
#include "runtime/config/detail/text_file.hpp"

namespace troupe {
namespace {

using detail::HostEntry;
using detail::HostProblem;

constexpr std::size_t kMostBadLines = 10;
constexpr std::size_t kMostShown = 8;  // number of hosts in a description
constexpr std::string_view kSpace = " \t\r\v\f";

/// A word of a line and its position.
struct Word {
  std::string_view text;
  std::size_t at;
};

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  line = line.substr(0, line.find('#'));
  for (std::size_t at = 0; (at = line.find_first_not_of(kSpace, at)) != line.npos;) {
    const std::size_t end = std::min(line.find_first_of(kSpace, at), line.size());
    words.push_back({line.substr(at, end - at), at});
    at = end;
  }
  return words;
}

/// Reads `slots=4` and `max-slots=8` after a name.
class Options {
 public:
  std::optional<HostProblem> read(const Word& word) {
    const auto equals = word.text.find('=');
    const std::string_view name = word.text.substr(0, equals);
    const bool least = name == "slots";
    if (equals == word.text.npos || (!least && name != "max-slots" && name != "max_slots")) {
      return HostProblem{word.at, text("after a host's name only slots=N and max-slots=N (without spaces) or a # "
                                       "comment may follow; write one host per line")};
    }
    std::optional<std::uint32_t>& option = least ? slots_ : most_;
    if (option) return HostProblem{word.at, text(name, " appears twice; leave one out")};
    option.emplace();
    return moved(detail::read_slots(word.text.substr(equals + 1), name, *option), word.at + equals + 1);
  }
  /// Combines them with the slots in the entry itself.
  std::optional<HostProblem> finish(HostEntry& entry, std::size_t at) const {
    if (entry.slots && slots_) return HostProblem{at, "has slots both after a : and after slots=; leave one out"};
    if (slots_) entry.slots = slots_;
    if (!most_ || entry.slots.value_or(1) <= *most_) return std::nullopt;
    return HostProblem{at, text("has ", entry.slots.value_or(1), " slots, more than its max-slots=", *most_,
                                "; make one of them fit the other")};
  }
  static std::optional<HostProblem> moved(std::optional<HostProblem> problem, std::size_t by) {
    if (problem) problem->at += by;
    return problem;
  }

 private:
  std::optional<std::uint32_t> slots_;
  std::optional<std::uint32_t> most_;
};

std::optional<HostProblem> read_line(std::string_view line, detail::HostGathering& hosts, std::string_view where) {
  const std::vector<Word> words = words_of(line);
  if (words.empty()) return std::nullopt;
  const std::size_t first = words.front().at;
  HostEntry entry;
  if (auto problem = detail::read_host_entry(words.front().text, entry))
    return Options::moved(std::move(problem), first);
  Options options;
  for (std::size_t i = 1; i < words.size(); ++i)
    if (auto problem = options.read(words[i])) return problem;
  if (auto problem = options.finish(entry, first)) return problem;
  if (auto why = hosts.add(entry, where)) return HostProblem{first, std::move(*why)};
  return std::nullopt;
}

std::string host_file_limit() {
  return text("a host file has at most ", kMostHostFileBytes, ", a line for each of at most ", kMostHosts, " hosts");
}

}  // namespace

std::uint32_t HostList::count_ranks() const noexcept {
  std::uint32_t count = 0;
  for (const HostSlots& host : hosts) count += host.slots;
  return count;
}

HostList parse_host_file(std::string_view content, std::string_view name) {
  TROUPE_CHECK(content.size() <= kMostHostFileBytes, Code::invalid, name, ": has ", content.size(), " bytes; ",
               host_file_limit());
  detail::HostGathering hosts;
  std::string problems;
  std::size_t count = 0;
  for (std::uint32_t line = 1; !content.empty(); ++line) {
    const std::size_t end = std::min(content.find('\n'), content.size());
    const auto problem = read_line(content.substr(0, end), hosts, text("line ", line));
    content.remove_prefix(std::min(end + 1, content.size()));
    if (!problem) continue;
    if (count++ == kMostBadLines) {
      problems += "\n(and more)";
      break;
    }
    problems += text(problems.empty() ? "" : "\n", name, ":", line, ":", problem->at + 1, ": ", problem->text);
  }
  if (!problems.empty()) fail(Code::invalid, problems);
  HostList list = hosts.take();
  TROUPE_CHECK(!list.hosts.empty(), Code::invalid, name,
               ": names no host; write a line for each, such as \"node1 slots=4\"");
  return list;
}

HostList read_host_file(const std::string& path, std::string_view named_by) {
  const std::string content = detail::read_text_file(
      path, text(named_by, path),
      {"the host file", "a host file has a line for each host", kMostHostFileBytes, host_file_limit()});
  return parse_host_file(content, path);
}

std::string describe(const HostList& list) {
  const std::size_t count = list.hosts.size();
  std::string out;
  for (std::size_t i = 0; i < std::min(count, kMostShown); ++i)
    out += text(i == 0 ? "" : ", ", list.hosts[i].name, ':', list.hosts[i].slots);
  if (count > kMostShown) out += text(", and ", count - kMostShown, " more");
  return out;
}

}  // namespace troupe
