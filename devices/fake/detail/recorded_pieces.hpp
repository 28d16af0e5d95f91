#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "devices/reference/pieces.hpp"
#include "runtime/compute/program.hpp"

namespace troupe::fake {

using reference::Piece;
using reference::Words;

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
