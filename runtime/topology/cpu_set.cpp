#include "runtime/topology/cpu_set.hpp"

#include <algorithm>
#include <bit>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"

namespace troupe::topology {
namespace {

template <class T>
T parsed(std::string_view digits, int base, std::string_view whole) {
  const auto value = number_in<T>(digits, base);
  TROUPE_CHECK(value, Code::invalid, '"', whole.substr(0, 80), "\" is not a set of processors");
  return *value;
}

}  // namespace

void CpuSet::add(std::uint32_t cpu) {
  TROUPE_CHECK(cpu < kEnd, Code::invalid, "processor ", cpu, " is beyond the ", kEnd, " that can be described");
  if (cpu / 64 >= words_.size()) words_.resize(cpu / 64 + 1);
  words_[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
}

void CpuSet::add(const CpuSet& other) {
  words_.resize(std::max(words_.size(), other.words_.size()));
  for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
}

bool CpuSet::has(std::uint32_t cpu) const noexcept {
  return cpu / 64 < words_.size() && (words_[cpu / 64] >> (cpu % 64) & 1) != 0;
}

bool CpuSet::includes(const CpuSet& other) const noexcept {
  if (other.words_.size() > words_.size()) return false;
  for (std::size_t i = 0; i < other.words_.size(); ++i)
    if ((other.words_[i] & ~words_[i]) != 0) return false;
  return true;
}

std::uint32_t CpuSet::count() const noexcept {
  std::uint32_t sum = 0;
  for (const std::uint64_t word : words_) sum += static_cast<std::uint32_t>(std::popcount(word));
  return sum;
}

std::vector<std::uint32_t> CpuSet::numbers() const {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < words_.size(); ++i)
    for (std::uint64_t left = words_[i]; left != 0; left &= left - 1)
      all.push_back(i * 64 + static_cast<std::uint32_t>(std::countr_zero(left)));
  return all;
}

void CpuSet::trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

std::string CpuSet::list() const { return ranges(numbers()); }

CpuSet CpuSet::from_list(std::string_view text) {
  CpuSet set;
  for (const std::string& words : split(text, ',')) {
    const std::string_view part = words;
    const auto dash = part.find('-');
    const auto first = parsed<std::uint32_t>(part.substr(0, dash), 10, text);
    const auto last = dash == std::string_view::npos ? first : parsed<std::uint32_t>(part.substr(dash + 1), 10, text);
    TROUPE_CHECK(first <= last && last < kEnd, Code::invalid, '"', text.substr(0, 80), "\" is not a set of processors");
    for (std::uint32_t cpu = first; cpu <= last; ++cpu) set.add(cpu);
  }
  return set;
}

std::string CpuSet::mask() const {
  if (words_.empty()) return "0x0";
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = words_.size() * 2; i-- > 0;) {
    const auto word = static_cast<std::uint32_t>(words_[i / 2] >> (i % 2 * 32));
    if (out.empty() && word == 0) continue;
    out += out.empty() ? "0x" : ",0x";
    for (int shift = 28; shift >= 0; shift -= 4) out += kDigits[word >> shift & 15];
  }
  return out;
}

CpuSet CpuSet::from_mask(std::string_view text) {
  CpuSet set;
  if (text.starts_with("0xf...f")) return set;
  TROUPE_CHECK(text.size() <= kEnd / 2, Code::invalid, "a set of processors is longer than ", kEnd / 2, " characters");
  std::vector<std::uint32_t> words;  // highest first
  for (std::size_t at = 0; at <= text.size();) {
    const auto comma = std::min(text.find(',', at), text.size());
    std::string_view word = text.substr(at, comma - at);
    if (word.starts_with("0x")) word.remove_prefix(2);
    words.push_back(word.empty() ? 0 : parsed<std::uint32_t>(word, 16, text));
    at = comma + 1;
  }
  TROUPE_CHECK(words.size() <= kEnd / 32, Code::invalid, "a set of processors has ", words.size(), " words; at most ",
               kEnd / 32, " are read");
  set.words_.resize((words.size() + 1) / 2);
  for (std::size_t i = 0; i < words.size(); ++i)
    set.words_[i / 2] |= std::uint64_t{words[words.size() - 1 - i]} << (i % 2 * 32);
  set.trim();
  return set;
}

}  // namespace troupe::topology
