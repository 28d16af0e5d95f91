#include "runtime/base/text.hpp"

#include <charconv>
#include <system_error>

namespace troupe {
namespace {

constexpr int kDigits = 6;

template <class... Format>
void append_number(std::string& text, auto number, Format... format) {
  char letters[32];
  const auto written = std::to_chars(std::begin(letters), std::end(letters), number, format...);
  text.append(letters, written.ptr);
}

}  // namespace

void TextPart::append_to(std::string& text) const {
  switch (kind_) {
    case Kind::letters: text += letters_; break;
    case Kind::letter: text += letter_; break;
    case Kind::integer: append_number(text, integer_); break;
    case Kind::natural: append_number(text, natural_); break;
    case Kind::fraction: append_number(text, fraction_, std::chars_format::general, kDigits); break;
  }
}

std::string hexadecimal(std::uint64_t number) {
  std::string text;
  append_number(text, number, 16);
  return text;
}

std::string text_of(std::initializer_list<TextPart> parts) {
  std::string text;
  for (const TextPart& part : parts) part.append_to(text);
  return text;
}

}  // namespace troupe
