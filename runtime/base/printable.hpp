#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace troupe {

/// Bytes as text that a terminal shows and does not obey: letters of UTF-8, line ends and tabs stay, other bytes become
/// \xNN, and control characters above ASCII's first 32 become \u00NN, so that a line of JSON stays the same JSON.
std::string printable(std::string_view bytes);
/// The same for HTML and SVG, between tags or in a quoted attribute: it contains no markup.
std::string escaped(std::string_view bytes);

/// While it exists, what is written to a stream comes out printable(). Programs make one for each of their streams
/// first of all, so that no name, path or value from outside reaches the terminal as a command; only control() does.
/// Complete lines are passed on at once, the rest with a flush. Threads: those that may write to the stream.
class PrintableStream final : public std::streambuf {
 public:
  /// `stream` outlives it.
  explicit PrintableStream(std::ostream& stream) : stream_(stream), to_(stream.rdbuf(this)) {}
  ~PrintableStream() override;
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;
  /// Writes bytes as they are.
  bool write_unchanged(std::string_view bytes);

 protected:
  int_type overflow(int_type letter) override;
  std::streamsize xsputn(const char* bytes, std::streamsize count) override;
  int sync() override;

 private:
  bool pass_on(std::size_t count);
  std::ostream& stream_;
  std::streambuf* const to_;
  std::string pending_;
};

/// A command for the terminal, as in `out << control("\033[K")`: where there is a PrintableStream, it stays as it is.
struct Control {
  std::string_view bytes;
};
inline Control control(std::string_view bytes) noexcept { return {bytes}; }
std::ostream& operator<<(std::ostream& out, Control command);

}  // namespace troupe
