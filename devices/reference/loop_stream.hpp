#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "devices/reference/pieces.hpp"
#include "runtime/compute/stream.hpp"
#include "runtime/compute/update_pass.hpp"
#include "runtime/memory/arena.hpp"

namespace troupe::reference {

/// Thrown by an update whose pass was stopped, to end its stream without poison, like that of a killed process.
struct Died {};

/// A stream that makes pieces of what it is told: plain loops over memory that this process can address. How the pieces
/// are run, and what waits are, is up to the device. Work on memory that the address space does not know is refused
/// with Error{invalid} when it is enqueued.
class LoopStream : public Stream {
 public:
  void signal(Point point) final;
  void copy(Memory to, Memory from) final;
  void sum_up(Memory total, std::span<const Memory> parts) final;
  void reduce(Memory to, std::span<const Memory> parts, const NormCheck& check) final;
  void weighted_delta(Memory to, Memory anchor, Memory from, Memory sums) final;
  void clear(Memory memory) final;
  void convert(const NumberConversion& what) final;
  void digest(Memory to, Memory of) final;
  void add_update_squares(const RuleStep& rule, const StripeMemory& stripe, Memory sum, Memory total) final;
  void update(const RuleStep& rule, std::uint64_t number, const StripeMemory& stripe,
              std::span<const Memory> contributions, Memory total) final;
  /// Enqueues a replica's work; if it throws Error, the stream ends with that.
  void run(Words form, Words values, std::function<void(WordReader)> work) {
    push({std::move(form), std::move(values), std::move(work)});
  }

 protected:
  /// `space` outlives the stream.
  explicit LoopStream(AddressSpace& space) : space_(space) {}
  AddressSpace& space() const noexcept { return space_; }

 private:
  virtual void push(Piece piece) = 0;
  virtual std::byte* address(const Memory& memory) const = 0;
  /// For an update that begins: whether it goes on, asked at each moment of its pass.
  virtual std::function<bool(PassMoment, std::uint64_t)> pass_probe();
  UpdateAddresses addresses_of(const RuleStep& rule, const StripeMemory& stripe) const;
  template <class T>
  T* address_of(const Memory& memory) const {
    return reinterpret_cast<T*>(address(memory));
  }
  template <class T>
  std::vector<const T*> resolve(std::span<const Memory> parts, std::uint64_t size_bytes) const;

  AddressSpace& space_;
};

}  // namespace troupe::reference
