#pragma once

#include <cstdint>
#include <pugixml.hpp>
#include <string>
#include <string_view>

namespace troupe::topology::detail {

/// Parses bounded XML; entities of a document's own are not expanded. Throws Error{invalid}: `source`, line and column,
/// what is wrong; too many bytes, elements, or levels.
void parse_xml(pugi::xml_document& document, std::string_view text, std::string_view source);

/// An attribute's value, "" when it is not there.
std::string_view text_of(const pugi::xml_node& node, const char* attribute);
/// A whole number, 0 when it is not there. Throws Error{invalid}, naming the attribute, when it is none below 2^63.
std::uint64_t number_of(const pugi::xml_node& node, const char* attribute);
/// A decimal number that is finite and not below 0; 0 when it is not there. Throws Error{invalid}.
double decimal_of(const pugi::xml_node& node, const char* attribute);
/// A whole number in hexadecimal, with or without 0x.
std::uint64_t hex_of(std::string_view text, std::string_view what);
/// 12.0 -> "12.000000" as hwloc writes; shortest digits that read back as the same number otherwise.
std::string shortest(double value);
std::string printed(const pugi::xml_document& document);

}  // namespace troupe::topology::detail
