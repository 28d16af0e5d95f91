#include "runtime/topology/reading.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "runtime/base/error.hpp"
#include "runtime/base/fd.hpp"
#include "runtime/topology/detail/bounds.hpp"
#include "runtime/topology/hwloc_xml.hpp"
#include "runtime/topology/machine_json.hpp"

namespace troupe::topology {
namespace {

/// The name of the first element, after the declaration, the document type and comments.
std::string_view root_element(std::string_view text) {
  for (std::size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    if (text.substr(at).starts_with("<!--")) {
      at = text.find("-->", at);
    } else if (at + 1 < text.size() && text[at + 1] != '?' && text[at + 1] != '!') {
      return text.substr(at + 1, text.find_first_of(" \t\r\n/>", at) - at - 1);
    } else {
      at = text.find('>', at);
    }
    if (at == std::string_view::npos) break;
  }
  return {};
}

}  // namespace

Format format_of(std::string_view text, std::string_view source) {
  const auto first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first != std::string_view::npos && text[first] == '{') return Format::json;
  const std::string_view root = root_element(text);
  if (root == "topology") return Format::hwloc_xml;
  if (root == "system") return Format::nccl_xml;
  if (root == "graphs") return Format::nccl_graphs;
  TROUPE_CHECK(first != std::string_view::npos, Code::invalid, source, ": this is empty");
  TROUPE_CHECK(!text.starts_with("\x1f\x8b"), Code::invalid, source, ": this is packed by gzip; unpack it (gunzip)");
  TROUPE_CHECK(!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff"), Code::invalid, source,
               ": this is text in UTF-16; convert it (iconv -f UTF-16 -t UTF-8)");
  fail(Code::invalid,
       troupe::text(source, ": no topology; it must be JSON of `rttopo show --json`, XML of hwloc (`lstopo ",
                    "FILE.xml`), or XML of NCCL (NCCL_TOPO_DUMP_FILE)"));
}

Machine machine_from(std::string_view text, std::string_view source) {
  switch (format_of(text, source)) {
    case Format::json: return machine_from_json(text, source);
    case Format::hwloc_xml: return machine_from_hwloc_xml(text, source);
    case Format::nccl_xml: return machine_from_nccl_xml(text, source);
    case Format::nccl_graphs: break;
  }
  fail(Code::invalid,
       troupe::text(source, ": these are graphs that NCCL found, not a topology; use its NCCL_TOPO_DUMP_FILE"));
}

std::string read_topology_file(const std::string& path) {
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  TROUPE_CHECK_ERRNO(file.get() >= 0, errno == ENOENT ? Code::invalid : Code::environment, "cannot read ", path);
  struct stat about {};
  TROUPE_CHECK(::fstat(file.get(), &about) != 0 || !S_ISDIR(about.st_mode), Code::invalid, path, " is a folder");
  std::string content;
  std::vector<char> piece(65536);  // not on the stack, which `ulimit -s` may have made small
  for (ssize_t got = 0; (got = ::read(file.get(), piece.data(), piece.size())) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    TROUPE_CHECK_ERRNO(got > 0, Code::environment, "cannot read ", path);
    content.append(piece.data(), static_cast<std::size_t>(got));
    TROUPE_CHECK(content.size() <= detail::kMostBytes, Code::invalid, path, " has more than ", detail::kMostBytes >> 20,
                 " MiB; no machine's topology takes so much");
  }
  return content;
}

}  // namespace troupe::topology
