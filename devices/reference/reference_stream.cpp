#include "devices/reference/reference_stream.hpp"

#include <cstring>
#include <exception>
#include <vector>

#include "devices/reference/plain_loops.hpp"
#include "runtime/base/blocking.hpp"
#include "runtime/base/hash.hpp"
#include "runtime/base/thread.hpp"

namespace troupe::reference {
namespace {

template <class T>
T* address_of(AddressSpace& space, const Memory& memory, std::uint64_t size_bytes) {
  TROUPE_CHECK(memory.size_bytes == size_bytes, Code::invalid, "memory of ", memory.size_bytes,
               " bytes was given where ", size_bytes, " are needed");
  return space.address_of<T>(memory);
}

}  // namespace

ReferenceStream::ReferenceStream(AddressSpace& space, std::chrono::milliseconds wait_deadline)
    : space_(space), wait_deadline_(wait_deadline), own_line_(space), line_(own_line_.line()) {
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

void ReferenceStream::call(std::function<void()> work) {
  {
    const std::lock_guard lock{mutex_};
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void ReferenceStream::work() {
  const FlushDenormals flush;
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    if (!line_.status().ok()) continue;
    try {
      next();
    } catch (const Error& error) {
      line_.poison(error.status());
    } catch (const std::exception& error) {
      line_.poison({Code::device_fault, text("a reference stream: ", error.what())});
    }
  }
}

template <class T>
std::vector<const T*> ReferenceStream::resolve(std::span<const Memory> parts, std::uint64_t size_bytes) const {
  TROUPE_CHECK(!parts.empty(), Code::invalid, "a stream was given no parts to add up");
  std::vector<const T*> found;
  for (const Memory& part : parts) found.push_back(address_of<const T>(space_, part, size_bytes));
  return found;
}

void ReferenceStream::wait(Point point) {
  if (point.value == 0) return;
  call([this, &line = space_.timeline(point.line), point] {
    Blocking blocking = Blocking::on_thread("reference");
    const Status status = line.wait(blocking, point.value, Deadline::after(wait_deadline_),
                                    text("a reference stream for line ", point.line.index, " of arena ",
                                         point.line.arena.value, " to reach ", point.value));
    if (!status.ok()) fail(status.code(), std::string{status.text()});
  });
}

Point ReferenceStream::mark() {
  const std::uint64_t value = ++marks_;
  call([this, value] { line_.signal(value); });
  return {line_.id(), value};
}

void ReferenceStream::signal(Point point) {
  call([&line = space_.timeline(point.line), point] { line.signal(point.value); });
}

void ReferenceStream::copy(Memory to, Memory from) {
  const auto* source = space_.address_of<const std::byte>(from);
  call([target = address_of<std::byte>(space_, to, from.size_bytes), source, size = from.size_bytes] {
    std::memmove(target, source, size);
  });
}

void ReferenceStream::sum_up(Memory total, std::span<const Memory> parts) {
  auto* to = address_of<StepSums>(space_, total, sizeof(StepSums));
  call([to, parts = resolve<StepSums>(parts, sizeof(StepSums))] {
    StepSums sums;
    for (const StepSums* part : parts) sums.add(*part);
    *to = sums;
  });
}

void ReferenceStream::reduce(Memory to, std::span<const Memory> parts) {
  TROUPE_CHECK(to.size_bytes % sizeof(float) == 0, Code::invalid, "a reduction over ", to.size_bytes,
               " bytes, which are not whole f32");
  auto* target = space_.address_of<float>(to);
  call([target, count = to.size_bytes / sizeof(float), parts = resolve<float>(parts, to.size_bytes)] {
    reference::reduce(target, parts, count);
  });
}

void ReferenceStream::reduce_with_norm(Memory to, std::span<const Memory> parts, const NormCheck& what) {
  call(
      [sum = space_.address_of<float>(to), count = to.size_bytes / sizeof(float), what,
       found = address_of<StepSums>(space_, what.sums, sizeof(StepSums)),
       parts = resolve<float>(parts, to.size_bytes)] { reference::reduce_with_norm(sum, parts, count, *found, what); });
}

void ReferenceStream::weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) {
  TROUPE_CHECK(to.size_bytes % sizeof(float) == 0, Code::invalid, "weights of ", to.size_bytes,
               " bytes, which are not whole f32");
  call([target = space_.address_of<float>(to), left = address_of<const float>(space_, anchor, to.size_bytes),
        right = address_of<const float>(space_, from, to.size_bytes), count = to.size_bytes / sizeof(float),
        counted = address_of<const StepSums>(space_, sums, sizeof(StepSums))] {
    reference::weighted_delta(target, left, right, static_cast<float>(counted->samples), count);
  });
}

void ReferenceStream::clear(Memory memory) {
  call([at = space_.address_of<std::byte>(memory), size = memory.size_bytes] { std::memset(at, 0, size); });
}

void ReferenceStream::convert(Memory to, DType to_type, Memory from, DType from_type) {
  const std::uint64_t count = from.size_bytes / size_bytes(from_type);
  call([target = address_of<std::byte>(space_, to, count * size_bytes(to_type)),
        source = space_.address_of<const std::byte>(from), to_type, from_type,
        count] { convert_elements(target, to_type, source, from_type, count); });
}

void ReferenceStream::convert_with_residual(Memory to, DType to_type, Memory from, Memory residual) {
  const std::uint64_t count = from.size_bytes / sizeof(float);
  call([target = address_of<std::byte>(space_, to, count * size_bytes(to_type)),
        source = space_.address_of<const float>(from), kept = address_of<float>(space_, residual, from.size_bytes),
        to_type, count] { convert_elements_with_residual(target, to_type, source, kept, count); });
}

void ReferenceStream::add_converted(Memory to, Memory from, DType from_type) {
  const std::uint64_t count = from.size_bytes / size_bytes(from_type);
  call([target = address_of<float>(space_, to, count * sizeof(float)),
        source = space_.address_of<const std::byte>(from), from_type,
        count] { add_converted_elements(target, source, from_type, count); });
}

void ReferenceStream::digest(Memory to, Memory of) {
  call([result = space_.address_of<std::uint64_t>(to), bytes = space_.address_of<const std::byte>(of),
        size = of.size_bytes] {
    *result = xxh3({bytes, size});
  });
}

UpdateAddresses ReferenceStream::addresses_of(const RuleStep& rule, const StripeMemory& stripe) const {
  return troupe::addresses_of(rule, stripe, [this](const Memory& memory, std::uint64_t size_bytes, const char*) {
    return address_of<std::byte>(space_, memory, size_bytes);
  });
}

void ReferenceStream::add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) {
  if (stripe.stripe.count == 0) return;
  call([rule, at = addresses_of(rule, stripe),
        from = address_of<const float>(space_, sum, stripe.stripe.count * sizeof(float)),
        sums = address_of<StepSums>(space_, total, sizeof(StepSums))] {
    reference::add_update_squares(rule, at, from, *sums);
  });
}

void ReferenceStream::update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
                             std::span<const Memory> contributions, Memory total) {
  const std::uint64_t count = stripe.stripe.count;
  if (count == 0) return;
  const UpdateAddresses at = addresses_of(rule, stripe);
  const auto* sums = address_of<StepSums>(space_, total, sizeof(StepSums));
  call([rule, number, at, parts = resolve<float>(contributions, count * sizeof(float)), sums] {
    reference::update(rule, number, at, parts, *sums, [](PassMoment, std::uint64_t) { return true; });
  });
}

}  // namespace troupe::reference
