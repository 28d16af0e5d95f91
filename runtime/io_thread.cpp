#include "runtime/io_thread.hpp"

#include <utility>

#include "runtime/thread.hpp"

namespace troupe {

IoThread::IoThread(const std::string& name) : thread_(start_thread(name, [this] { run(); })) {}

IoThread::~IoThread() { close(); }

void IoThread::close() {
  {
    const std::scoped_lock hold(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void IoThread::post(Work work) {
  {
    const std::scoped_lock hold(mutex_);
    if (ending_) return;
    work_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void IoThread::run() {
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
