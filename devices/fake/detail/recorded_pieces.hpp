#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/compute/program.hpp"
#include "runtime/memory/timeline.hpp"

namespace troupe::fake {

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

/// A piece of a fake stream's work: its kind and operands, and the values that change from one run to the next.
struct Piece {
  Words form;
  Words values;
  std::function<void(WordReader)> run;
  Timeline* awaits = nullptr;  // the piece may run when this timeline has reached the first of the values
};

/// Pieces that were recorded, and a count of their replays in progress.
class RecordedPieces final : public Program {
 public:
  using Block = std::vector<std::uint64_t>;

  explicit RecordedPieces(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    for (Piece& piece : pieces_) piece.values = Words{};
  }
  bool fits(const std::vector<Piece>& others) const {
    if (others.size() != pieces_.size()) return false;
    for (std::size_t i = 0; i < others.size(); ++i)
      if (!(others[i].form == pieces_[i].form)) return false;
    return true;
  }
  const std::vector<Piece>& pieces() const noexcept { return pieces_; }
  bool busy() const noexcept override { return in_flight_.load() > 0; }
  void began() noexcept { ++in_flight_; }
  void ended() noexcept { --in_flight_; }

 private:
  std::vector<Piece> pieces_;
  std::atomic<std::uint64_t> in_flight_{0};  // number of replays
};

}  // namespace troupe::fake
