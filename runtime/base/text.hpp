#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace troupe {

/// A part of a text: letters that somebody else keeps, or a number. Numbers are written as a stream of the classic
/// locale writes them: without separators of thousands, with a decimal point, fractions with six digits.
class TextPart {
 public:
  TextPart(std::string_view letters) noexcept : kind_(Kind::letters), letters_(letters) {}
  TextPart(const std::string& letters) noexcept : TextPart(std::string_view{letters}) {}
  TextPart(const char* letters) noexcept : TextPart(std::string_view{letters}) {}
  TextPart(char letter) noexcept : kind_(Kind::letter), letter_(letter) {}
  template <std::integral T>
  TextPart(T number) noexcept : TextPart(number, std::is_signed<T>{}) {
    static_assert(sizeof(T) > 1 || std::same_as<T, bool>, "a letter or a number? Cast it");
  }
  template <std::floating_point T>
  TextPart(T number) noexcept : kind_(Kind::fraction), fraction_(static_cast<double>(number)) {}

  void append_to(std::string& text) const;

 private:
  enum class Kind : std::uint8_t { letters, letter, integer, natural, fraction };
  TextPart(std::int64_t number, std::true_type) noexcept : kind_(Kind::integer), integer_(number) {}
  TextPart(std::uint64_t number, std::false_type) noexcept : kind_(Kind::natural), natural_(number) {}

  Kind kind_;
  union {
    std::string_view letters_;
    char letter_;
    std::int64_t integer_;
    std::uint64_t natural_;
    double fraction_;
  };
};

/// The digits in base 16, without 0x.
std::string hexadecimal(std::uint64_t number);

std::string text_of(std::initializer_list<TextPart> parts);

/// Joins the parts. All but this line is compiled once, and not for each list of types.
template <class... Parts>
std::string text(const Parts&... parts) {
  return text_of({TextPart(parts)...});
}

}  // namespace troupe
