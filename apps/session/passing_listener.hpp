#pragma once

#include "apps/session/session.hpp"

namespace troupe {

/// Passes all events on. A class derived from it overrides those with which it does something else.
class PassingListener : public SessionListener {
 public:
  /// `to` outlives it; null: nobody receives the events.
  explicit PassingListener(SessionListener* to) : to_(to != nullptr ? *to : nobody_) {}
  PassingListener(const PassingListener&) = delete;
  PassingListener& operator=(const PassingListener&) = delete;

  void note(const std::string& text) override { to_.note(text); }
  void preparing(std::uint64_t done, std::uint64_t total, const std::string& what) override {
    to_.preparing(done, total, what);
  }
  void lost(std::uint32_t rank, const std::string& why) override { to_.lost(rank, why); }
  void resumed(const std::string& folder, std::uint64_t steps) override { to_.resumed(folder, steps); }
  void started(const Plan& plan, const std::string& device, const DataPlace& data) override {
    to_.started(plan, device, data);
  }
  void progress(const RunProgress& progress) override { to_.progress(progress); }
  void epoch(const EpochReport& line) override { to_.epoch(line); }
  void steps(const StepsReport& part) override { to_.steps(part); }
  void step(Step step, const StepSums& total) override { to_.step(step, total); }

 protected:
  bool is_heard() const noexcept { return &to_ != &nobody_; }

 private:
  SessionListener nobody_;
  SessionListener& to_;
};

}  // namespace troupe
