#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace troupe::detail {

/// Called when the receiver has handled a message from another process. Threads: any.
class Intake {
 public:
  virtual void handled(std::uint32_t charge) noexcept = 0;

 protected:
  ~Intake() = default;
};

/// A part of a message from another process. When it is destroyed, the receiver has handled the message, or will never
/// get it.
class Receipt {
 public:
  Receipt() = default;  // for a message that is not counted
  Receipt(std::shared_ptr<Intake> intake, std::uint32_t charge) noexcept
      : intake_(std::move(intake)), charge_(charge) {}
  Receipt(Receipt&& other) noexcept = default;
  Receipt& operator=(Receipt&&) = delete;
  ~Receipt() {
    if (intake_) intake_->handled(charge_);
  }

 private:
  std::shared_ptr<Intake> intake_;
  std::uint32_t charge_ = 0;
};

}  // namespace troupe::detail
