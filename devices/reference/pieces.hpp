#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "runtime/memory/timeline.hpp"

namespace troupe::reference {

/// Plain data as words.
class Words {
 public:
  Words() = default;
  template <class First, class... Rest>
  explicit Words(const First& first, const Rest&... rest) {
    put(first);
    (put(rest), ...);
  }
  template <class T>
  Words& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = all_.size();
    all_.resize(at + (sizeof value + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    std::memcpy(all_.data() + at, &value, sizeof value);
    return *this;
  }
  const std::vector<std::uint64_t>& all() const noexcept { return all_; }
  friend bool operator==(const Words&, const Words&) = default;

 private:
  std::vector<std::uint64_t> all_;
};

/// Reads the words in the order in which they were put.
class WordReader {
 public:
  explicit WordReader(const std::uint64_t* words) : words_(words) {}
  template <class T>
  T take() {
    T value;
    std::memcpy(static_cast<void*>(&value), words_, sizeof value);
    words_ += (sizeof value + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
    return value;
  }

 private:
  const std::uint64_t* words_;
};

/// A piece of a stream's work: its kind and operands, and the values that change from one run to the next.
struct Piece {
  Words form;
  Words values;
  std::function<void(WordReader)> run;
  Timeline* awaits = nullptr;  // the piece may run when this timeline has reached the first of the values
};

/// What a piece does, the first word of its form; replicas use numbers above.
enum class PieceKind : std::uint64_t {
  wait,
  signal,
  copy,
  copy_sums,
  sum_up,
  reduce,
  weighted_delta,
  clear,
  convert,
  digest,
  add_update_squares,
  update,
  call,
  replica = 1000,
};

}  // namespace troupe::reference
