#include "apps/session/own_loop.hpp"

#include <algorithm>
#include <utility>

#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "runtime/compute/rules/gradient_check.hpp"

namespace troupe {
namespace {

using Deliver = std::function<void(BatchLease)>;

BatchReceiver::behavior_type batch_receiver_actor(BatchReceiver::pointer self, const DeviceActor& device,
                                                  Deliver deliver) {
  self->link_to(device);
  return {[deliver = std::move(deliver)](BatchLease& batch) { deliver(std::move(batch)); }};
}

}  // namespace

OwnLoop::OwnLoop(OwnLoopParts parts)
    : parts_(std::move(parts)), next_(parts_.schedule.first_step), end_(parts_.schedule.steps) {}

BatchReceiver OwnLoop::batch_receiver(caf::actor_system& system, const DeviceActor& device) {
  const std::lock_guard lock(mutex_);
  device_ = device;
  if (parts_.empty_batches != nullptr) return device;
  return system.spawn(batch_receiver_actor, device, Deliver{[this](BatchLease batch) {
                        const std::lock_guard lock(mutex_);
                        if (closed_) return;
                        waiting_.push_back(std::move(batch));
                        pass_evaluations();
                        changed_.notify_all();
                      }});
}

void OwnLoop::post(const HostWork& work) {
  const std::lock_guard lock(mutex_);
  if (closed_) return give_up(work);
  work_.push_back(work);
  changed_.notify_all();
}

/// This work will not be done, so the stream must not wait for it.
void OwnLoop::give_up(const HostWork& work) {
  parts_.space.timeline(work.done.line).poison({Code::aborted, "the run is over"});
}

void OwnLoop::committed(Step step, const StepSums& total) {
  const std::lock_guard lock(mutex_);
  if (step.value + 1 == next_) total_ = total;
  const auto last = parts_.sums_are_common ? end_after(parts_.schedule, step, total) : std::nullopt;
  if (last) end_ = std::min(end_, last->value + 1);
  changed_.notify_all();
}

void OwnLoop::ends_early(Step last) {
  const std::lock_guard lock(mutex_);
  end_ = std::min(end_, last.value + 1);
  changed_.notify_all();
}

void OwnLoop::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  device_ = nullptr;
  waiting_.clear();
  for (const HostWork& work : work_) give_up(work);
  work_.clear();
  changed_.notify_all();
}

/// Passes evaluation batches to the device as soon as the step before them has been passed.
void OwnLoop::pass_evaluations() {
  while (!held_ && !waiting_.empty() && waiting_.front().evaluation) {
    ++passed_;
    pass_ended_ = waiting_.front().last;
    caf::anon_send(device_, std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

bool OwnLoop::take_batch() {
  std::unique_lock lock(mutex_);
  if (parts_.empty_batches == nullptr) {
    // Waits for the loader without a deadline, since everything that ends the run closes the loop.
    changed_.wait(lock,
                  [&] { return closed_ || next_ >= end_ || (!waiting_.empty() && !waiting_.front().evaluation); });
  }
  if (closed_ || next_ >= end_) return false;
  if (parts_.empty_batches == nullptr) {
    batch_ = std::move(waiting_.front());
    waiting_.pop_front();
  } else {
    auto slot = parts_.empty_batches->try_take();
    TROUPE_CHECK(slot.has_value(), Code::invalid, "a step is already in progress; wait until it ends");
    batch_ =
        BatchLease{.lease = std::move(*slot).publish(), .step = {next_}, .rows = parts_.schedule.run_at({next_}).rows};
  }
  held_ = true;
  return true;
}

BatchView OwnLoop::view(Memory batch, std::uint32_t rows) const {
  return {parts_.batch, parts_.space.address(batch), rows};
}

std::optional<BatchView> OwnLoop::next() {
  if (is_closed()) batch_.reset();
  if (!batch_ && !take_batch()) return {};
  return view(batch_->lease.memory(), batch_->rows);
}

bool OwnLoop::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::optional<StepSums> OwnLoop::step(Blocking& blocking) {
  TROUPE_CHECK(parts_.model == nullptr || parts_.model->step, Code::invalid,
               "the model has no step function: call exchange() with gradients, or give OwnModel::step");
  return run_step(blocking, parts_.model != nullptr ? parts_.model->step : OwnStep{});
}

std::optional<StepSums> OwnLoop::exchange(Blocking& blocking, const StepSums& own) {
  TROUPE_CHECK(parts_.model != nullptr, Code::invalid,
               "the device computes this session's gradients: call step(), or give SessionOptions::model");
  if (parts_.empty_batches != nullptr && !next()) return {};
  return run_step(blocking, [&own](const BatchView&, const std::vector<SessionTensor>&) { return own; });
}

std::optional<StepSums> OwnLoop::run_step(Blocking& blocking, const OwnStep& compute) {
  TROUPE_CHECK(batch_.has_value(), Code::invalid, "there is no batch: call next() first");
  std::unique_lock lock(mutex_);
  if (closed_) {
    batch_.reset();
    return {};
  }
  const Step step{next_++};
  total_.reset();
  held_ = pass_ended_ = false;
  passed_ = 0;
  caf::anon_send(device_, std::move(*batch_));
  batch_.reset();
  pass_evaluations();
  const bool evaluates = parts_.model != nullptr && parts_.schedule.evaluates(step);
  std::uint64_t evaluated = 0;
  for (;;) {
    // Waits for the step without a deadline: the exchange has one, and everything that ends the run closes the loop.
    changed_.wait(lock, [&] {
      const bool is_beyond = step.value >= end_;  // the device got its batch but takes no more steps
      return closed_ || is_beyond || !work_.empty() ||
             (total_ && (!evaluates || (pass_ended_ && evaluated == passed_)));
    });
    if (work_.empty()) return total_;
    const HostWork work = work_.front();
    work_.pop_front();
    if (work.evaluation) ++evaluated;
    lock.unlock();
    serve(blocking, work, work.evaluation ? parts_.model->evaluate : compute);
    lock.lock();
  }
}

void OwnLoop::serve(Blocking& blocking, const HostWork& work, const OwnStep& compute) {
  Timeline& done = parts_.space.timeline(work.done.line);
  const Status before = parts_.space.timeline(work.ready.line)
                            .wait(blocking, work.ready.value, Deadline::after(parts_.wait_deadline),
                                  "what the device does before a step");
  if (!before.ok()) return done.poison(before);
  StepSums sums;
  try {
    sums = compute(view(work.batch, work.rows), parts_.tensors);
  } catch (const std::exception& error) {
    return done.poison({Code::device_fault, text("the app's model failed: ", error.what())});
  } catch (...) {
    return done.poison({Code::device_fault, "the app's model threw something that is not a std::exception"});
  }
  StepSums& all = *parts_.space.address_of<StepSums>(work.sums);
  if (!work.evaluation) all.loss = all.correct = all.samples = 0;  // the votes in the same sums are not changed
  all.loss += sums.loss;
  all.correct += sums.correct;
  all.samples += sums.samples;
  if (!work.evaluation && parts_.checked_rank) check_gradients(all);
  done.signal(work.done.value);
}

/// Notes the first element that is not finite, as an exchange that measures the gradient's norm does.
void OwnLoop::check_gradients(StepSums& sums) const {
  for (const SessionTensor& tensor : parts_.tensors) {
    const float* const values = tensor.gradients.data();
    if (values == nullptr) continue;
    const auto first = static_cast<std::uint64_t>(values - parts_.gradients.data());
    check_gradient(sums, values, {&values, 1}, tensor.gradients.size(),
                   {.first_element = first, .ranks = {&*parts_.checked_rank, 1}, .squares = false});
  }
}

void OwnLoop::drain(Blocking& blocking) {
  const auto nothing = [](const BatchView&, const std::vector<SessionTensor>& tensors) {
    for (const SessionTensor& tensor : tensors) std::ranges::fill(tensor.gradients, 0.0f);
    return StepSums{};
  };
  if (!next()) return;
  parts_.stop();
  while (next()) {
    if (!run_step(blocking, nothing)) return;
  }
}

}  // namespace troupe
