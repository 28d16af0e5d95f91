#pragma once

#include <cstdint>
#include <pugixml.hpp>
#include <string>
#include <string_view>

namespace troupe::topology::detail {

/// Parses XML of limited size; entities that the document defines are not expanded. Throws Error{invalid} for errors,
/// and for too many bytes, elements or levels; the text gives `source`, line and column, and what is wrong.
void parse_xml(pugi::xml_document& document, std::string_view text, std::string_view source);

/// The value of an attribute; "" if there is none.
std::string_view text_of(const pugi::xml_node& node, const char* attribute);
/// An integer, or 0 if absent. Throws Error{invalid}, naming the attribute, if it is not an integer below 2^63.
std::uint64_t number_of(const pugi::xml_node& node, const char* attribute);
/// A decimal number, finite and not below 0; 0 if there is none. Throws Error{invalid}.
double decimal_of(const pugi::xml_node& node, const char* attribute);
/// A hexadecimal integer, with or without 0x.
std::uint64_t hex_of(std::string_view text, std::string_view what);
/// 12.0 -> "12.000000", like hwloc; otherwise the shortest digits that read back as the same number.
std::string shortest(double value);
/// As XML in UTF-8: letters that XML does not have are written as printable() writes them.
std::string printed(const pugi::xml_document& document);

}  // namespace troupe::topology::detail
