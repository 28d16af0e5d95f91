#pragma once

#include <time.h>

#include <caf/scoped_actor.hpp>
#include <optional>
#include <tuple>

#include "actors/caf_error.hpp"
#include "tests/actors/remote/remote_end.hpp"

namespace troupe::test {

constexpr auto kLong = std::chrono::seconds(20);

/// The processor time that the calling thread got, so that a busy machine is not taken for a blocked lane.
inline std::chrono::nanoseconds core_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds{now.tv_sec} + std::chrono::nanoseconds{now.tv_nsec};
}

/// The result of a request: values, or the reason why there are none.
template <class... Results>
struct Answer {
  std::optional<std::tuple<Results...>> values;
  Status why;
  bool ok() const { return values.has_value(); }
  template <std::size_t I = 0>
  const auto& get() const {
    return std::get<I>(*values);
  }
};

/// Sends a request and waits, on the test's own thread.
template <class... Results, class Handle, class... Parts>
Answer<Results...> ask(caf::actor_system& system, const Handle& whom, Parts&&... parts) {
  caf::scoped_actor self(system);
  Answer<Results...> answer;
  self->request(whom, kLong, std::forward<Parts>(parts)...)
      .receive([&](const Results&... results) { answer.values = std::make_tuple(results...); },
               [&](const caf::error& error) { answer.why = from_caf(error); });
  return answer;
}

}  // namespace troupe::test
