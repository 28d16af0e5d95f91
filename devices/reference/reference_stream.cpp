#include "devices/reference/reference_stream.hpp"

#include <exception>
#include <string>
#include <utility>

#include "devices/reference/plain_loops.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::reference {

ReferenceStream::ReferenceStream(AddressSpace& space, std::chrono::milliseconds wait_deadline)
    : LoopStream(space), wait_deadline_(wait_deadline), own_line_(space), line_(own_line_.line()) {
  thread_ = start_thread("reference", [this] { work(); });
}

ReferenceStream::~ReferenceStream() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ReferenceStream::push(Piece piece) {
  {
    const std::lock_guard lock{mutex_};
    queue_.push_back(std::move(piece));
  }
  changed_.notify_one();
}

void ReferenceStream::work() {
  const FlushDenormals flush;
  for (;;) {
    Piece next;
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    if (!line_.status().ok()) continue;
    try {
      next.run(WordReader{next.values.all().data()});
    } catch (const Error& error) {
      line_.poison(error.status());
    } catch (const std::exception& error) {
      line_.poison({Code::device_fault, text("a reference stream: ", error.what())});
    }
  }
}

void ReferenceStream::wait(Point point) {
  if (point.value == 0) return;
  run(Words{PieceKind::wait}, {}, [this, &line = space().timeline(point.line), point](WordReader) {
    Blocking blocking = Blocking::on_thread("reference");
    const Status status = line.wait(blocking, point.value, Deadline::after(wait_deadline_),
                                    text("a reference stream for line ", point.line.index, " of arena ",
                                         point.line.arena.value, " to reach ", point.value));
    if (!status.ok()) fail(status.code(), std::string{status.text()});
  });
}

Point ReferenceStream::mark() {
  signal({line_.id(), ++marks_});
  return {line_.id(), marks_};
}

std::byte* ReferenceStream::address(const Memory& memory) const { return space().address(memory); }

}  // namespace troupe::reference
