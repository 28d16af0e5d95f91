#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "runtime/base/error.hpp"
#include "runtime/base/printable.hpp"
#include "runtime/base/words.hpp"
#include "runtime/topology/detail/bounds.hpp"
#include "runtime/topology/detail/xml.hpp"

namespace troupe::topology::detail {
namespace {

constexpr std::size_t kNearEnd = 256;  // an error in the last bytes is one of a file that lacks the rest

/// Works without recursion, because it limits the depth.
void check_size(const pugi::xml_node& root, std::string_view source) {
  std::size_t depth = 1;
  std::size_t count = 0;
  for (pugi::xml_node at = root; at;) {
    TROUPE_CHECK(++count <= kMostInfos, Code::invalid, source, ": more than ", kMostInfos, " elements of XML");
    if (at.first_child()) {
      at = at.first_child();
      TROUPE_CHECK(++depth <= kMostDepth, Code::invalid, source, ": elements are nested more than ", kMostDepth,
                   " deep");
      continue;
    }
    while (at && at != root && !at.next_sibling()) {
      at = at.parent();
      --depth;
    }
    if (!at || at == root) break;
    at = at.next_sibling();
  }
}

/// XML has no control characters, also not as references, which pugixml writes: "&#27;" becomes "\x1b", as printable()
/// would write it.
std::string without_control_references(const std::string& xml) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = xml.find("&#"); at != std::string::npos; at = xml.find("&#", at + 2)) {
    const std::size_t end = xml.find(';', at);
    const auto number = number_in<unsigned>(std::string_view{xml}.substr(at + 2, end - at - 2));
    if (end == std::string::npos || !number || *number >= ' ' || *number == '\t' || *number == '\n' || *number == '\r')
      continue;
    out.append(xml, done, at - done);
    out += printable(std::string(1, static_cast<char>(*number)));
    done = end + 1;
  }
  return out.append(xml, done);
}

}  // namespace

void parse_xml(pugi::xml_document& document, std::string_view text, std::string_view source) {
  TROUPE_CHECK(text.size() <= kMostBytes, Code::invalid, source, " has ", text.size(), " bytes; at most ", kMostBytes,
               " are read");
  const auto result = document.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) {
    const auto at = std::min(static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0)), text.size());
    const std::string_view before = text.substr(0, at);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const auto start = before.rfind('\n');
    fail(Code::invalid,
         troupe::text(source, ':', line, ':', at - (start == std::string_view::npos ? 0 : start + 1) + 1,
                      at + kNearEnd < text.size() ? ": no XML: " : ": no XML, or cut short: ", result.description()));
  }
  const pugi::xml_node root = document.document_element();
  const auto is_element = [](const pugi::xml_node& node) { return node.type() == pugi::node_element; };
  TROUPE_CHECK(std::ranges::count_if(document.children(), is_element) <= 1, Code::invalid, source,
               ": there are several documents; write each into a file of its own");
  check_size(root, source);
}

std::string_view text_of(const pugi::xml_node& node, const char* attribute) {
  return node.attribute(attribute).value();
}

std::uint64_t number_of(const pugi::xml_node& node, const char* attribute) {
  const std::string_view text = text_of(node, attribute);
  if (text.empty()) return 0;
  const auto value = number_in<std::uint64_t>(text);
  TROUPE_CHECK(value && *value >> 63 == 0, Code::invalid, '<', node.name(), ' ', attribute, "=\"", text.substr(0, 40),
               "\">: not a whole number");
  return *value;
}

double decimal_of(const pugi::xml_node& node, const char* attribute) {
  const std::string_view text = text_of(node, attribute);
  if (text.empty()) return 0;
  const auto value = number_in<double>(text);
  TROUPE_CHECK(value && *value >= 0 && *value < 1e15, Code::invalid, '<', node.name(), ' ', attribute, "=\"",
               text.substr(0, 40), "\">: not a number");
  return *value;
}

std::uint64_t hex_of(std::string_view text, std::string_view what) {
  std::string_view digits = text;
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  const auto value = number_in<std::uint64_t>(digits, 16);
  TROUPE_CHECK(value, Code::invalid, what, " \"", text.substr(0, 40), "\" is not a hexadecimal number");
  return *value;
}

std::string shortest(double value) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  return error == std::errc{} ? std::string{digits, end} : "0";
}

std::string printed(const pugi::xml_document& document) {
  std::ostringstream out;
  document.save(out, "  ", pugi::format_indent, pugi::encoding_utf8);
  return without_control_references(printable(out.str()));
}

}  // namespace troupe::topology::detail
