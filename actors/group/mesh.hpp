#pragma once

#include <caf/actor.hpp>
#include <caf/atom.hpp>
#include <caf/message.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/blocking.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/base/error.hpp"

namespace troupe {

/// Actors, in this and other processes, in a grid with named dimensions: a value, cheap to copy, independent of a
/// group. Its handles are ordinary handles.
class Mesh {
 public:
  struct Dimension {
    std::string name;
    std::size_t size = 1;
    friend bool operator==(const Dimension&, const Dimension&) = default;
  };
  /// An index on one dimension.
  struct Coordinate {
    std::string dimension;
    std::size_t index = 0;
  };
  static constexpr std::uint32_t kFanOut = 8;

  /// `members` in row-major order: the last dimension changes fastest. Throws Error{invalid} if their number is not the
  /// product of the sizes, if a handle is empty, or if a dimension has no name, the name of another one, or no size.
  Mesh(std::vector<Dimension> dimensions, std::vector<caf::actor> members);

  const std::vector<Dimension>& dimensions() const noexcept { return dimensions_; }
  std::size_t size() const noexcept { return members_.size(); }
  /// In row-major order.
  const std::vector<caf::actor>& members() const noexcept { return members_; }

  /// The member at a place, which names every dimension once. Throws Error{invalid} with the mesh's dimensions.
  const caf::actor& at(const std::vector<Coordinate>& place) const;
  /// The members at these indices of the named dimensions, as a mesh of the other dimensions. Throws Error{invalid}
  /// with the mesh's dimensions.
  Mesh slice(const std::vector<Coordinate>& place) const;

  /// Sends `what` to every member, one by one and without a sender; ordered like other messages from here.
  void send_all(const caf::message& what) const;
  /// The same over a tree of processes: this one sends to at most `fan_out` others, which pass it on. Each member gets
  /// it once; a process that dies meanwhile is bypassed. Two broadcasts to the same mesh from one process arrive in
  /// their order if no process dies; broadcasts and send_all() are not ordered relative to each other. Outside of a
  /// group it is send_all(). Throws Error{unsupported} if a type in `what` is not registered, Error{invalid} for a
  /// fan-out of 0.
  void broadcast(const caf::message& what, std::uint32_t fan_out = kFanOut) const;

  /// Asks every member and waits for the answers, in row-major order. Throws if a member did not answer by the
  /// deadline, or answered with an error, naming those members: Error{peer_lost} if one of them has ended, otherwise
  /// Error{timeout} if one was late, otherwise the first error's code.
  std::vector<caf::message> gather(Blocking& blocking, const caf::message& question, Deadline deadline) const;
  /// The same for members that answer with one T. Also throws Error{unsupported} naming a member with another answer.
  template <class T>
  std::vector<T> gather(Blocking& blocking, const caf::message& question, Deadline deadline) const {
    std::vector<T> values;
    values.reserve(size());
    for (const caf::message& answer : gather(blocking, question, deadline)) {
      if (!answer.match_elements<T>()) refuse_answer(values.size(), answer);
      values.push_back(answer.get_as<T>(0));
    }
    return values;
  }
  using Gather = caf::atom_constant<caf::atom("gather")>;
  /// For actors, which must not block: an actor that, when asked (Gather{}) once, asks all members and answers with a
  /// std::vector<caf::message>, or after at most `within` with an error that names the members that did not answer.
  /// Give the request itself somewhat longer.
  caf::actor gathering(caf::message question, Clock::duration within) const;

 private:
  std::size_t dimension(const std::string& name) const;
  std::vector<std::size_t> indices(const std::vector<Coordinate>& place) const;
  std::string names() const;
  std::string place_of(std::size_t member) const;
  [[noreturn]] void refuse_answer(std::size_t member, const caf::message& answer) const;
  Status outcome(const std::vector<Status>& statuses, Clock::duration within) const;

  std::vector<Dimension> dimensions_;
  std::vector<caf::actor> members_;
};

}  // namespace troupe
