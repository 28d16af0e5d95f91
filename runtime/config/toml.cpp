#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/config/detail/toml.hpp"

namespace troupe::detail {
namespace {

Place place_of(const toml::source_region& region) { return {region.begin.line, region.begin.column}; }

TomlValue convert(const toml::node& node);

void convert_table(const toml::table& table, TomlValue& out) {
  out.kind = TomlValue::Kind::table;
  for (const auto& [key, value] : table) {
    out.entries.push_back({std::string{key.str()}, place_of(key.source()), convert(value)});
  }
  std::stable_sort(out.entries.begin(), out.entries.end(), [](const auto& a, const auto& b) {
    return std::pair{a.place.line, a.place.column} < std::pair{b.place.line, b.place.column};
  });
}

TomlValue convert(const toml::node& node) {
  using Kind = TomlValue::Kind;
  TomlValue out;
  out.place = place_of(node.source());
  if (const auto* table = node.as_table()) {
    convert_table(*table, out);
  } else if (const auto* array = node.as_array()) {
    out.kind = Kind::array;
    for (const toml::node& item : *array) out.items.push_back(convert(item));
  } else if (const auto* text = node.as_string()) {
    out.kind = Kind::text;
    out.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    out.kind = Kind::integer;
    out.integer = integer->get();
    out.number = static_cast<double>(out.integer);
  } else if (const auto* number = node.as_floating_point()) {
    out.kind = Kind::number;
    out.number = number->get();
  } else if (const auto* boolean = node.as_boolean()) {
    out.kind = Kind::boolean;
    out.boolean = boolean->get();
  } else {
    out.kind = Kind::time;
    out.text = node.is_time() ? "a time of day" : "a date";
  }
  return out;
}

TomlValue parse(std::string_view text) {
  const toml::table document = toml::parse(text);
  TomlValue out;
  convert_table(document, out);
  return out;
}

std::string shortened(std::string text) {
  constexpr std::size_t kMost = 48;
  if (text.size() <= kMost) return text;
  std::size_t end = kMost - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a UTF-8 character
  return text.substr(0, end) + "...";
}

}  // namespace

TomlValue parse_toml(std::string_view text, std::string_view name) {
  check_before_parsing(text, name);
  try {
    return parse(text);
  } catch (const toml::parse_error& error) {
    const Place place = place_of(error.source());
    constexpr std::string_view kScope = "Error while parsing ";
    std::string what{error.description()};
    if (what.starts_with(kScope)) what.replace(0, kScope.size(), "cannot read this ");
    if (const auto root = what.find("root table"); root != what.npos) what.replace(root, 10, "line");
    fail(Code::invalid, troupe::text(name, ":", place.line, ":", place.column, ": ", what, "; ",
                                     syntax_cure(text, place, error.description())));
  }
}

std::optional<TomlValue> parse_toml_value(std::string_view text) {
  try {
    const std::string line = troupe::text("value = ", text);
    check_before_parsing(line, "");
    TomlValue document = parse(line);
    if (document.entries.size() != 1 || document.entries[0].key != "value") return std::nullopt;  // more than one line
    TomlValue value = std::move(document.entries[0].value);
    value.place = {};
    return value;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  std::string out(buffer, end);
  if (const auto exponent = out.find("e+"); exponent != std::string::npos) out.erase(exponent + 1, 1);
  return out;
}

std::string to_toml(const TomlValue& value) {
  using Kind = TomlValue::Kind;
  std::string out;
  switch (value.kind) {
    case Kind::boolean: return value.boolean ? "true" : "false";
    case Kind::integer: return std::to_string(value.integer);
    case Kind::number:
      out = number_text(value.number);
      return out.find_first_of(".ein") == std::string::npos ? out + ".0" : out;
    case Kind::text: return in_quotes(value.text);
    case Kind::time: return value.text;
    case Kind::array:
      for (const TomlValue& item : value.items) out += (out.empty() ? "" : ", ") + to_toml(item);
      return "[" + out + "]";
    case Kind::table:
      for (const auto& entry : value.entries) {
        out += (out.empty() ? "" : ", ") + entry.key + " = " + to_toml(entry.value);
      }
      return "{" + out + "}";
  }
  return out;
}

std::string describe(const TomlValue& value) {
  using Kind = TomlValue::Kind;
  switch (value.kind) {
    case Kind::boolean: return value.boolean ? "true" : "false";
    case Kind::integer: return "the integer " + to_toml(value);
    case Kind::number: return "the number " + to_toml(value);
    case Kind::text: return "the text " + in_quotes(shortened(value.text));
    case Kind::time: return value.text;
    case Kind::array: return "the array " + shortened(to_toml(value));
    case Kind::table: return "a table";
  }
  return "a value";
}

}  // namespace troupe::detail
