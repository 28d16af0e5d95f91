#include "runtime/compute/host_copies.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"

namespace troupe {

void HostCopies::take_buffer() {
  if (buffer_.size_bytes == 0) buffer_ = device_.allocate(id_, MemoryKind::pinned, kBufferBytes);
}

void HostCopies::prepare() {
  take_buffer();
  device_.prepare(std::array{id_});
  if (!stream_) stream_ = device_.stream();
}

/// Calls `piece` for each piece of the device's memory, with the buffer that it is copied through and a stream.
template <class Piece>
void HostCopies::in_pieces(const Memory& far, Piece&& piece) {
  take_buffer();
  const std::unique_ptr<Stream> own = stream_ ? nullptr : device_.stream();
  Stream& stream = stream_ ? *stream_ : *own;
  const Deadline deadline = Deadline::after(within_);
  try {
    for (std::uint64_t first = 0; first < far.size_bytes; first += kBufferBytes) {
      const std::uint64_t count = std::min(kBufferBytes, far.size_bytes - first);
      piece(stream, slice(far, first, count), slice(buffer_, 0, count), first, deadline);
    }
  } catch (...) {
    stream_.reset();  // its end waits for what still uses the buffer
    throw;
  }
}

void HostCopies::finish(Stream& stream, Deadline deadline) {
  Blocking blocking = Blocking::on_thread("session");
  const Point done = stream.mark();
  const Status status =
      space_.timeline(done.line).wait(blocking, done.value, deadline, "a copy from or to device memory");
  TROUPE_CHECK(status.ok(), status.code(), std::string{status.text()});
}

void HostCopies::write(const Memory& to, const std::function<void(std::span<std::byte>)>& fill) {
  if (to.size_bytes == 0) return;
  if (reaches(to)) return fill({space_.address(to), to.size_bytes});
  std::vector<std::byte> bytes(to.size_bytes);
  fill(bytes);
  in_pieces(to, [&](Stream& stream, const Memory& part, const Memory& passing, std::uint64_t first, Deadline deadline) {
    std::memcpy(space_.address(passing), bytes.data() + first, part.size_bytes);
    stream.copy(part, passing);
    finish(stream, deadline);
  });
}

void HostCopies::read(const Memory& from, const std::function<void(std::span<const std::byte>)>& use) {
  if (from.size_bytes == 0) return use({});
  if (reaches(from)) return use({space_.address(from), from.size_bytes});
  std::vector<std::byte> bytes(from.size_bytes);
  in_pieces(from,
            [&](Stream& stream, const Memory& part, const Memory& passing, std::uint64_t first, Deadline deadline) {
              stream.copy(passing, part);
              finish(stream, deadline);
              std::memcpy(bytes.data() + first, space_.address(passing), part.size_bytes);
            });
  use(bytes);
}

}  // namespace troupe
