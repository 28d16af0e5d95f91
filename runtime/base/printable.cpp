#include "runtime/base/printable.hpp"

#include <cstddef>

namespace troupe {
namespace {

/// The bytes of the UTF-8 letter with which `bytes` begins; 0: there is none, or a control character. Source: RFC 3629,
/// section 4.
std::size_t letter_bytes(std::string_view bytes) noexcept {
  const auto at = [&](std::size_t i) { return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return at(i) >= low && at(i) <= high;
  };
  const unsigned first = at(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\n' || first == '\t' ? 1 : 0;
  if (first >= 0xc2 && first <= 0xdf) return follows(1, first == 0xc2 ? 0xa0 : 0x80) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef)
    return follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf) && follows(2) ? 3 : 0;
  if (first >= 0xf0 && first <= 0xf4)
    return follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf) && follows(2) && follows(3) ? 4 : 0;
  return 0;
}

/// Characters that are control characters and no letters, but stand in UTF-8 as letters do: delete, and U+0080 to
/// U+009F, which some terminals obey.
std::size_t high_control_bytes(std::string_view bytes) noexcept {
  if (bytes.front() == '\x7f') return 1;
  return bytes.size() > 1 && bytes[0] == '\xc2' && (bytes[1] & '\xe0') == '\x80' ? 2 : 0;
}

std::string in_digits(std::string_view before, char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  return std::string{before} + kDigits[value >> 4U] + kDigits[value & 15U];
}

}  // namespace

std::string printable(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    std::size_t letters = 0;
    while (const std::size_t next = letter_bytes(bytes.substr(letters))) letters += next;
    out += bytes.substr(0, letters);
    bytes.remove_prefix(letters);
    if (bytes.empty()) break;
    std::size_t taken = high_control_bytes(bytes);
    if (taken > 0) {
      out += in_digits("\\u00", bytes[taken - 1]);
    } else {
      out += in_digits("\\x", bytes.front());
      taken = 1;
    }
    bytes.remove_prefix(taken);
  }
  return out;
}

std::string escaped(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char c : printable(bytes)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

PrintableStream::~PrintableStream() {
  pass_on(pending_.size());
  stream_.rdbuf(to_);
}

bool PrintableStream::pass_on(std::size_t count) {
  const std::string shown = printable(std::string_view{pending_}.substr(0, count));
  pending_.erase(0, count);
  const auto size = static_cast<std::streamsize>(shown.size());
  return to_->sputn(shown.data(), size) == size;
}

bool PrintableStream::write_unchanged(std::string_view bytes) {
  const auto size = static_cast<std::streamsize>(bytes.size());
  return pass_on(pending_.size()) && to_->sputn(bytes.data(), size) == size;
}

PrintableStream::int_type PrintableStream::overflow(int_type letter) {
  if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
  const char byte = traits_type::to_char_type(letter);
  return xsputn(&byte, 1) == 1 ? letter : traits_type::eof();
}

std::streamsize PrintableStream::xsputn(const char* bytes, std::streamsize count) {
  const std::string_view added{bytes, static_cast<std::size_t>(count)};
  pending_ += added;
  if (added.find('\n') == added.npos) return count;
  return pass_on(pending_.rfind('\n') + 1) ? count : 0;
}

int PrintableStream::sync() { return pass_on(pending_.size()) ? to_->pubsync() : -1; }

std::ostream& operator<<(std::ostream& out, Control command) {
  auto* const shown = dynamic_cast<PrintableStream*>(out.rdbuf());
  if (shown == nullptr) return out << command.bytes;
  if (!shown->write_unchanged(command.bytes)) out.setstate(std::ios::badbit);
  return out;
}

}  // namespace troupe
