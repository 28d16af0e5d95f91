#include "runtime/config/detail/host_entries.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/config/detail/toml.hpp"

namespace troupe::detail {
namespace {

constexpr std::size_t kMostDigits = 9;  // of a number in brackets
constexpr std::string_view kDigits = "0123456789";

bool is_letter_or_digit(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool fits_name(unsigned char c) { return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_'; }

/// A short form of a word for messages: its beginning.
std::string shown(std::string_view word) {
  constexpr std::size_t kMost = 40;
  return word.size() <= kMost ? detail::in_quotes(word)
                              : detail::in_quotes(text(word.substr(0, 20), "...")) + text(" (", word.size(), " bytes)");
}

/// Why a name cannot contain `c`.
std::string cure_for(char c) {
  switch (c) {
    case '@': return "the user's name on that host belongs in ~/.ssh/config, as \"User\" of the host";
    case ',':
    case ';': return "each host is an entry, or a line, of its own";
    case ':': return "write a number of slots after the :, as in node1:4; give an IPv6 address a name in /etc/hosts";
    case ']':
    case '[': return "write the numbers in one pair of brackets, as in node[01-04,07]";
    case '=': return "a line is a host's name, then slots=4";
    default: return "a name has letters, digits, '-', '_' and '.'";
  }
}

std::optional<HostProblem> check_name(std::string_view name, std::size_t at) {
  if (name.empty()) return HostProblem{at, "a host's name is missing here; write one, as in node1:4"};
  const auto first = static_cast<unsigned char>(name[0]);
  if (fits_name(first) && !is_letter_or_digit(first))  // such as -oProxyCommand=..., which ssh would take as an option
    return HostProblem{at, text(shown(name), " is not a host's name: a name begins with a letter or a digit")};
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (fits_name(static_cast<unsigned char>(name[i]))) continue;
    return HostProblem{at + i, text(shown(name), " is not a host's name: ", cure_for(name[i]))};
  }
  if (name.size() > kLongestHostName)
    return HostProblem{at, text("a host's name of ", name.size(), " bytes; it has at most ", kLongestHostName)};
  return std::nullopt;
}

/// The numbers in one "01-04" or "7".
struct HostRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::size_t width = 0;
};

std::optional<HostProblem> read_range(std::string_view written, std::size_t at, HostRange& range) {
  const std::size_t dash = std::min(written.find('-'), written.size());
  const std::string_view first = written.substr(0, dash);
  const std::string_view last = dash == written.size() ? first : written.substr(dash + 1);
  for (const std::string_view number : {first, last}) {
    if (number.empty() || number.size() > kMostDigits || number.find_first_not_of(kDigits) != number.npos)
      return HostProblem{at, text(shown(written), " is not a range of numbers; write one as in node[01-04,07]")};
  }
  std::from_chars(first.data(), first.data() + first.size(), range.first);
  std::from_chars(last.data(), last.data() + last.size(), range.last);
  range.width = first.size();
  if (range.first > range.last)
    return HostProblem{at, text(shown(written), " runs backwards; the smaller number is first")};
  if (range.last - range.first >= kMostHosts)
    return HostProblem{at, text(shown(written), " is more than the ", kMostHosts, " hosts that a job has at most")};
  return std::nullopt;
}

/// Expands the brackets of `name`.
std::optional<HostProblem> expand(std::string_view name, std::vector<std::string>& names) {
  const std::size_t open = name.find('[');
  if (open == name.npos) {
    names.emplace_back(name);
    return check_name(name, 0);
  }
  const std::size_t close = name.find(']', open);
  if (close == name.npos) return HostProblem{open, "the bracket is not closed; write node[01-04]"};
  const std::string_view before = name.substr(0, open);
  const std::string_view behind = name.substr(close + 1);
  std::string_view inside = name.substr(open + 1, close - open - 1);
  for (std::size_t at = open + 1;;) {
    const std::size_t comma = std::min(inside.find(','), inside.size());
    HostRange range;
    if (auto problem = read_range(inside.substr(0, comma), at, range)) return problem;
    for (std::uint32_t number = range.first; number <= range.last; ++number) {
      const std::string digits = std::to_string(number);
      const std::string zeros(range.width - std::min(range.width, digits.size()), '0');
      if (names.size() == kMostHosts)
        return HostProblem{0, text("stands for more than the ", kMostHosts, " hosts that a job has at most")};
      names.push_back(text(before, zeros, digits, behind));
      if (names.size() > 1 && names.back().size() <= kLongestHostName) continue;
      if (auto problem = check_name(names.back(), 0)) return HostProblem{0, std::move(problem->text)};
    }
    if (comma == inside.size()) return std::nullopt;
    inside.remove_prefix(comma + 1);
    at += comma + 1;
  }
}

}  // namespace

std::optional<HostProblem> read_slots(std::string_view digits, std::string_view what, std::uint32_t& slots) {
  slots = number_in<std::uint32_t>(digits).value_or(0);
  if (slots >= 1 && slots <= kMostSlots) return std::nullopt;
  const bool number = !digits.empty() && digits.find_first_not_of(kDigits) == digits.npos;
  if (number && digits.find_first_not_of('0') == digits.npos)
    return HostProblem{
        0, text("0 ", what, " leave the host without a rank; leave the host out, or write 1 to ", kMostSlots)};
  if (number) return HostProblem{0, text(shown(digits), " are too many ", what, "; a host has 1 to ", kMostSlots)};
  return HostProblem{0, text(shown(digits), " is not a number of slots; write 1 to ", kMostSlots)};
}

std::optional<HostProblem> read_host_entry(std::string_view written, HostEntry& entry) {
  const std::size_t bracket = written.find(']');  // a colon in brackets does not count
  const std::size_t colon = written.find(':', bracket == written.npos ? 0 : bracket);
  const std::string_view name = written.substr(0, colon);
  if (written.find(':', colon == written.npos ? colon : colon + 1) != written.npos)
    return HostProblem{colon, text(shown(written), " is not a host: ", cure_for(':'))};
  if (auto problem = expand(name, entry.names)) return problem;
  if (colon == written.npos) return std::nullopt;
  entry.slots.emplace();
  auto problem = read_slots(written.substr(colon + 1), "slots", *entry.slots);
  if (problem) problem->at += colon + 1;
  return problem;
}

std::optional<std::string> HostGathering::add(const HostEntry& entry, std::string_view where) {
  const std::uint32_t slots = entry.slots.value_or(1);
  for (const std::string& name : entry.names) {
    const auto at = known_.find(lower_case(name));
    const bool fresh = at == known_.end();
    if (!fresh && (at->second.said || entry.slots))
      return text(name, " is already named in ", at->second.where,
                  ", and one of the two gives its slots; name it once, with all its slots");
    if (fresh && list_.hosts.size() == kMostHosts)
      return text("is one host more than the ", kMostHosts, " that a job has at most");
    if (ranks_ + slots > kMostHostRanks)
      return text("brings the ranks of all hosts above ", kMostHostRanks, ", the most that a job has");
    if (!fresh && list_.hosts[at->second.index].slots + slots > kMostSlots)
      return text(name, " is listed more than ", kMostSlots, " times, the most slots that a host has");
    ranks_ += slots;
    if (!fresh) {
      list_.hosts[at->second.index].slots += slots;
      continue;
    }
    known_.emplace(lower_case(name), Known{list_.hosts.size(), std::string{where}, entry.slots.has_value()});
    list_.hosts.push_back({name, slots});
  }
  return std::nullopt;
}

}  // namespace troupe::detail
