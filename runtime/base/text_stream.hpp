#pragma once

#include <locale>
#include <sstream>

namespace troupe {

/// A stream for texts, which writes numbers alike whatever locale the application has set: without separators of
/// thousands, with a decimal point. Where no manipulators are needed, text() is enough.
class TextStream : public std::ostringstream {
 public:
  TextStream() { imbue(std::locale::classic()); }
};

}  // namespace troupe
