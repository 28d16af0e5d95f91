#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::detail {

/// A position in a text, counted from 1; line 0: not in a text.
struct Place {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

/// A TOML value with its position, independent of the library that read it.
struct TomlValue {
  enum class Kind : std::uint8_t { boolean, integer, number, text, time, array, table };
  struct Entry;

  Kind kind = Kind::table;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;  // also set for an integer
  std::string text;   // of text; for a time, a description of its kind
  std::vector<TomlValue> items;
  std::vector<Entry> entries;  // of a table, in the order of the file
  Place place;
};

struct TomlValue::Entry {
  std::string key;
  Place place;  // position of the key
  TomlValue value;
};

/// Reads a document into a table. Throws Error{invalid} with `name`:line:column. Refuses keys of more than 8 parts and
/// values nested deeper than 16, so that recursion over the result cannot exhaust the stack.
TomlValue parse_toml(std::string_view text, std::string_view name);
/// Reads the text to the right of a `=`; empty if it is not a TOML value.
std::optional<TomlValue> parse_toml_value(std::string_view text);

/// Refuses text that toml++ must not be given; parse_toml calls it. That is text that would make tables so deep that
/// freeing them by recursion is a danger, and text for which the behaviour of toml++ 3.0 to 3.3 is undefined: section
/// names that do not begin with a letter of keys, a list closed by the wrong bracket, letters outside ASCII that are
/// not in a string, or that follow a backslash in a string of several lines.
void check_before_parsing(std::string_view text, std::string_view name);

/// The advice for what the TOML library refused with the words `what` at `place` in `text`: a phrase.
std::string syntax_cure(std::string_view text, Place place, std::string_view what);

/// A TOML string in quotes.
std::string in_quotes(std::string_view text);
/// The shortest text that reads back as the same number.
std::string number_text(double number);
inline std::string bool_text(bool value) { return value ? "true" : "false"; }
/// As TOML on one line; times only by their kind.
std::string to_toml(const TomlValue& value);
/// For people, at most about 60 characters: `the text "100"`, `the integer 5`, `an array`.
std::string describe(const TomlValue& value);

}  // namespace troupe::detail
