#include "apps/topology/detail/svg.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/printable.hpp"

namespace troupe::topology::detail {
namespace {

constexpr std::string_view kStyle = R"(<style>
svg{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;background:#fbfbf9}
.back{fill:#fbfbf9}text{fill:#20242a;font-size:11px}.title{font-size:20px;font-weight:600}.name{font-size:12px;font-weight:600}.small{fill:#4a525c}
.warn{fill:#b3261e;font-weight:600}.package{fill:#f0f2f5;stroke:#9aa4b1}.host,.other{fill:#ffffff;stroke:#c3cad3}.cache{fill:#ffffff;stroke:#c3cad3}
.switch{fill:#efe7f6;stroke:#8e6bb0}.gpu{fill:#dff0d2;stroke:#4d8a1f;stroke-width:1.5}.nic{fill:#d9eaf8;stroke:#2f7ab8;stroke-width:1.5}
.memory{fill:#fdf1cf;stroke:#c79a1b}.core{fill:#7c8794}.fabric{fill:#cfe8bb;stroke:#4d8a1f}.link{fill:none;stroke:#4d9a16;stroke-opacity:.75;stroke-linecap:round}
.bad{stroke:#d33025;stroke-width:2.5}.badline{stroke:#d33025;stroke-dasharray:6 4}
@media(prefers-color-scheme:dark){svg{background:#15181c}.back{fill:#15181c}text{fill:#e6e9ed}.small{fill:#b3bcc7}.warn{fill:#ff8a80}.package{fill:#1d2228;stroke:#566270}
.host,.other,.cache{fill:#232930;stroke:#48525e}.switch{fill:#2e2438;stroke:#a585c6}.gpu{fill:#21361a;stroke:#7dbb4c}.nic{fill:#172f43;stroke:#6ab0e6}
.memory{fill:#3a3115;stroke:#d9b343}.core{fill:#8f9aa8}.fabric{fill:#2a4420;stroke:#7dbb4c}.link{stroke:#8ccf55}}
</style>
)";

/// Cuts the text to this width in pixels.
std::string fitted(const std::string& words, double width) {
  const auto most = static_cast<std::size_t>(std::max(width / kLetter, 4.0));
  if (words.size() <= most) return words;
  std::size_t end = most - 1;
  while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xc0) == 0x80) --end;
  return words.substr(0, end) + "…";
}

}  // namespace

std::string words(const char* style, double x, double y, const std::string& content, double width) {
  return fmt::format("<text class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", style, x, y,
                     escaped(fitted(content, width)));
}

std::string svg(double width, double height, const std::string& title, const std::string& content) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "role=\"img\">\n<title>{2}</title>\n{3}<rect class=\"back\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n{4}</svg>\n",
      width, height, escaped(title), kStyle, content);
}

}  // namespace troupe::topology::detail
