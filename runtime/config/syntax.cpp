#include <algorithm>
#include <array>

#include "runtime/base/error.hpp"
#include "runtime/base/words.hpp"
#include "runtime/config/detail/toml.hpp"

namespace troupe::detail {
namespace {

/// A line, split at its first '=' or, if it has none, ':'.
struct Line {
  std::string_view all;
  std::string_view key;
  std::string_view value;
};

Line line_at(std::string_view text, std::uint32_t number) {
  for (; number > 1; --number) {
    const auto end = text.find('\n');
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  Line line{.all = trimmed(text.substr(0, text.find('\n'))), .key = {}, .value = {}};
  auto middle = line.all.find('=');
  if (middle == line.all.npos) middle = line.all.find(':');
  line.key = trimmed(line.all.substr(0, middle));
  while (line.key.ends_with(':')) line.key = trimmed(line.key.substr(0, line.key.size() - 1));
  if (middle != line.all.npos) line.value = trimmed(line.all.substr(middle + 1));
  return line;
}

/// Whether a user's text is short and plain enough to be repeated as an example.
bool is_plain(std::string_view text) {
  constexpr std::size_t kMost = 40;
  return !text.empty() && text.size() <= kMost && std::ranges::all_of(text, [](unsigned char c) {
    return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '\'';
  });
}

/// Advice for text, or something else, that is not a TOML value as written.
std::string cure_of_value(const Line& line) {
  static constexpr std::array<std::string_view, 8> kTruths{"true", "false", "yes", "no", "on", "off", "y", "n"};
  static constexpr std::array<std::string_view, 4> kNothings{"null", "none", "nil", "undefined"};
  const std::string_view written = trimmed(line.value.substr(0, line.value.find('#')));
  std::string small{written.substr(0, written.find_first_of(" ,;"))};
  for (char& c : small) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (std::ranges::find(kTruths, small) != kTruths.end()) return "write true or false, in small letters";
  if (std::ranges::find(kNothings, small) != kNothings.end()) return "leave the key out to use its default";
  if (written.empty()) return "write a value behind the =, or leave the key out";
  if (written.starts_with('=')) return "one = is enough";
  if (written.starts_with('(')) return "a list is written in square brackets, as in units = [1000, 1000]";
  if (written.starts_with('$'))
    return "variables are not replaced in this file: write the value itself, or pass it with --set";
  if (written.starts_with('`')) return "write straight quotes, \", at both ends";
  if (!is_plain(written) || !is_plain(line.key)) return "text needs quotes, as in name = \"mlp\"";
  return text("text needs quotes, as in ", line.key, " = \"", written, '"');
}

/// Advice for characters after a value or a section that do not belong there; `saw` is the first of them.
std::string cure_of_rest(const Line& line, char saw) {
  if (saw == '_') return "_ is allowed between digits only, as in 1_000";
  if (saw == ';' || saw == '/') return "comments start with #";
  if (saw == ']') return "a section is written [data], in one pair of brackets";
  if (saw == ',' && line.all.ends_with(',')) return "delete it: no comma ends a line";
  if (saw == ',') return "a number is written 0.001 or 1_000, without a comma, and a list [1000, 1000]";
  if (line.value.starts_with('"') || line.value.starts_with('\'')) {
    return "the text ends at its second quote: write text that holds ' in \"...\", and text that holds \" in '...'";
  }
  return "write one key = value on each line; nothing is computed, and text needs quotes";
}

/// The line of the first of two definitions; 0 if it is not found.
std::uint32_t first_of_two(std::string_view text, std::uint32_t second, std::string_view name) {
  const std::string header = troupe::text('[', name, ']');
  for (std::uint32_t number = second - 1; number > 0; --number) {
    const Line line = line_at(text, number);
    if (line.key == name || line.all.starts_with(header)) return number;
  }
  return 0;
}

std::string cure_of_double(std::string_view text, Place place, std::string_view what) {
  const auto begin = what.find('\'');
  const auto end = what.find('\'', begin + 1);
  const std::string_view name = end == what.npos ? std::string_view{} : what.substr(begin + 1, end - begin - 1);
  const std::uint32_t first = name.empty() ? 0 : first_of_two(text, place.line, name);
  if (first == 0) return "it appears twice in this file: keep one of the two";
  return troupe::text("line ", first, " has it already: keep one of the two");
}

/// Advice by the library's words; the first entry that matches is used.
struct Cure {
  std::string_view what;
  std::string_view cure;
};
constexpr std::array kCures{
    Cure{"invalid utf-8", "save the file as UTF-8 text"},
    Cure{"after '\\r'", "save the file with plain line ends"},
    Cure{"unknown escape sequence", "write \\ twice, or the text in single quotes: '...'"},
    Cure{"leading zeroes", "write the number without zeros in front"},
    Cure{"underscores", "_ is allowed between digits only, as in 1_000"},
    Cure{"64 bits", "the largest integer is 9223372036854775807"},
    Cure{"dangling comma", "delete the last comma"},
    Cure{"parsing inline table", "write the settings of a section on lines of their own below it, as in [data]"},
    Cure{"parsing array", "a list has commas between its entries and ends with ], as in units = [1000, 1000]"},
    Cure{"expected bare key", "a section is written [data], and a setting key = value"},
    Cure{"string", "text ends on its line, with the quote that it began with"},
    Cure{"integer", "a number is written 100, 1_000, 0.001 or 1e-3, without a unit"},
    Cure{"floating-point", "a number is written 0.001 or 1e-3: digits on both sides of the point, and no unit"},
    Cure{"parsing table header", "a section is written [data], on a line of its own"},
};

}  // namespace

std::string syntax_cure(std::string_view text, Place place, std::string_view what) {
  const Line line = line_at(text, place.line);
  const auto says = [&](std::string_view words) { return what.find(words) != what.npos; };
  const auto saw = what.find("saw '");
  const char seen = saw == what.npos || saw + 5 >= what.size() ? '\0' : what[saw + 5];
  if (says("cannot redefine")) return cure_of_double(text, place, what);
  if (line.all.starts_with("<<<<<<<") || line.all.starts_with("=======") || line.all.starts_with(">>>>>>>")) {
    return "a merge was left unfinished here: keep one side, and delete the marks";
  }
  if (line.all.starts_with('{') && line.key.find('{') != line.key.npos) {
    return "this looks like JSON: write [section] on a line of its own, and key = value below it";
  }
  if (says("expected '='") && seen == ':') {
    if (line.value.empty()) return "a section is written [train], and its settings key = value";
    return is_plain(line.key) && is_plain(line.value) ? troupe::text("write ", line.key, " = ", line.value)
                                                      : "write key = value";
  }
  for (const std::string_view words : {"could not determine value type", "expected 'true'", "expected 'false'",
                                       "expected 'nan'", "expected 'inf'", "expected value"}) {
    if (says(words)) return cure_of_value(line);
  }
  if (says("expected a comment or whitespace")) return cure_of_rest(line, seen);
  if (line.all.starts_with("//") || line.all.starts_with(';') || line.all.starts_with("/*"))
    return "comments start with #";
  const auto known = std::ranges::find_if(kCures, [&](const Cure& cure) { return says(cure.what); });
  return std::string{known != kCures.end() ? known->cure : "a line is [section], key = value or # comment"};
}

}  // namespace troupe::detail
