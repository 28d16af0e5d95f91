#pragma once

#include <string_view>

#include "runtime/base/error.hpp"

namespace troupe {

/// Returns what `work` returns. The text of an Error that it throws gets `where` and a colon as its beginning.
template <class Work>
auto with_context(std::string_view where, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    fail_joined(error.code(), {where, ": ", error.what()});
  }
}

}  // namespace troupe
