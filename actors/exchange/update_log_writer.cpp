#include "actors/exchange/update_log_writer.hpp"

#include <utility>

namespace troupe {

UpdateLogWriter::UpdateLogWriter(Write write) { state_->write = std::move(write); }

UpdateLogWriter::~UpdateLogWriter() {
  if (!page_.empty()) hand_over();
}

void UpdateLogWriter::append(std::span<const AppliedRecord> records) {
  if (state_->failed.load(std::memory_order_acquire)) fail(state_->why.code(), std::string{state_->why.text()});
  page_.insert(page_.end(), records.begin(), records.end());
  if (page_.size() < kPageRecords) return;
  TROUPE_CHECK(state_->waiting.load(std::memory_order_relaxed) < kMostPages, Code::environment,
               "the log of updates is written more slowly than updates come: ", kMostPages,
               " pages wait; name another folder in update.log");
  hand_over();
}

void UpdateLogWriter::hand_over() {
  state_->waiting.fetch_add(1, std::memory_order_relaxed);
  thread_.post([state = state_, page = std::exchange(page_, {})](Blocking&) {
    try {
      if (!state->failed.load(std::memory_order_relaxed)) state->write(page);
    } catch (const Error& error) {
      state->why = error.status();
      state->failed.store(true, std::memory_order_release);
    }
    state->waiting.fetch_sub(1, std::memory_order_relaxed);
  });
}

}  // namespace troupe
