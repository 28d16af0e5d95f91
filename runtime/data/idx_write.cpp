#include "runtime/base/error.hpp"
#include "runtime/base/new_file.hpp"
#include "runtime/data/idx.hpp"

namespace troupe {
namespace {

void put_big_endian(std::vector<std::uint8_t>& head, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) head.push_back(static_cast<std::uint8_t>(number >> shift));
}

}  // namespace

void write_idx(const std::string& file, const IdxHeader& header, std::span<const std::uint8_t> content) {
  TROUPE_CHECK(content.size() == header.content_bytes(), Code::invalid, file, ": ", content.size(),
               " bytes given, the header announces ", header.content_bytes());
  std::vector<std::uint8_t> head;
  put_big_endian(head, static_cast<std::uint32_t>(header.kind));
  put_big_endian(head, header.count);
  if (header.kind == IdxKind::images) {
    put_big_endian(head, header.height);
    put_big_endian(head, header.width);
  }
  NewFile out{file};
  out.write(std::as_bytes(std::span{head}));
  out.write(std::as_bytes(content));
  out.sync();
  out.publish();
}

}  // namespace troupe
