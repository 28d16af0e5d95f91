#include "runtime/base/error.hpp"
#include "tools/bench/messages/end.hpp"

namespace troupe::bench {

bool io_available() noexcept { return false; }

Figures run_io(Blocking&, const EndCase&, Line&) { fail(Code::environment, "this build has no libcaf_io to measure"); }

}  // namespace troupe::bench
