#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::detail {

/// Where something stands in a text, from 1; line 0: in no text.
struct Place {
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

/// A TOML value with its place, free of the library that read it.
struct TomlValue {
  enum class Kind : std::uint8_t { boolean, integer, number, text, time, array, table };
  struct Entry;

  Kind kind = Kind::table;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0;  // of an integer too
  std::string text;   // of a text; a time's kind in words
  std::vector<TomlValue> items;
  std::vector<Entry> entries;  // of a table, in the order of the text
  Place place;
};

struct TomlValue::Entry {
  std::string key;
  Place place;  // of the key
  TomlValue value;
};

/// Reads a document into a table. Throws Error{invalid} with `name`:line:column. Keys of more than 8 parts and values
/// nested deeper than 16 are refused, so that what is read can be walked without care for the stack.
TomlValue parse_toml(std::string_view text, std::string_view name);
/// Reads what may stand right of `=`; nothing when it is no TOML value.
std::optional<TomlValue> parse_toml_value(std::string_view text);

/// Refuses what toml++ must not be given, as parse_toml does: what would make its tables so deep that freeing them by
/// recursion is a danger, and what it takes for granted that it will not meet, to do anything at all when it does
/// (3.0 to 3.3: names of sections that begin with anything but a key's letters, a list closed by another bracket,
/// letters that are not of ASCII outside of strings, or behind a backslash in a string of several lines).
void check_before_parsing(std::string_view text, std::string_view name);

/// What to write instead of what the TOML library refused with the words `what` at `place` of `text`: half a sentence.
std::string syntax_cure(std::string_view text, Place place, std::string_view what);

/// A TOML string in quotes.
std::string in_quotes(std::string_view text);
/// The shortest text that reads back as the same number.
std::string number_text(double number);
inline std::string bool_text(bool value) { return value ? "true" : "false"; }
/// As TOML in one line, times by their kind only.
std::string to_toml(const TomlValue& value);
/// For people, at most about 60 characters: `the text "100"`, `the integer 5`, `an array`.
std::string describe(const TomlValue& value);

}  // namespace troupe::detail
