#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::detail {

/// Told when a message from another process has been dealt with. Threads: any.
class Intake {
 public:
  virtual void dealt_with(std::uint32_t charge) noexcept = 0;

 protected:
  ~Intake() = default;
};

/// Lies in a message from another process: once it is destroyed its receiver is done with it, or will never get it.
class Receipt {
 public:
  Receipt() = default;  // for a message that nobody counts
  Receipt(std::shared_ptr<Intake> intake, std::uint32_t charge) noexcept
      : intake_(std::move(intake)), charge_(charge) {}
  Receipt(Receipt&& other) noexcept = default;
  Receipt& operator=(Receipt&&) = delete;
  ~Receipt() {
    if (intake_) intake_->dealt_with(charge_);
  }

 private:
  std::shared_ptr<Intake> intake_;
  std::uint32_t charge_ = 0;
};

}  // namespace troupe::detail
