#include "runtime/base/io_threads.hpp"

#include <utility>

#include "runtime/base/thread.hpp"

namespace troupe {

IoThreads::IoThreads(const std::string& name, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) threads_.push_back(start_thread(name, [this] { run(); }));
}

IoThreads::~IoThreads() { close(); }

void IoThreads::close() {
  {
    const std::scoped_lock hold(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void IoThreads::post(Work work) {
  {
    const std::scoped_lock hold(mutex_);
    if (ending_) return;
    if (!threads_.empty()) work_.push_back(std::move(work));
  }
  if (threads_.empty()) {
    Blocking blocking = Blocking::on_thread("io");
    return work(blocking);
  }
  changed_.notify_one();
}

void IoThreads::run() {
  Blocking blocking = Blocking::on_thread("io");
  std::unique_lock hold(mutex_);
  for (;;) {
    changed_.wait(hold, [this] { return ending_ || !work_.empty(); });
    if (work_.empty()) return;
    const Work work = std::move(work_.front());
    work_.pop_front();
    hold.unlock();
    work(blocking);
    hold.lock();
  }
}

}  // namespace troupe
