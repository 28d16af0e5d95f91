#include "runtime/base/error.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace troupe {

bool ucx_available() noexcept { return false; }

std::string ucx_version() { return {}; }

UcxLibrary ucx_library() { fail(Code::unsupported, "this build has no UCX; install libucx-dev and configure again"); }

std::vector<std::string> ucx_network_devices(const Transport&) { return {}; }

std::size_t remove_ucx_orphans() noexcept { return 0; }

std::unique_ptr<Transport> make_ucx_transport(AddressSpace&, const UcxOptions&) {
  fail(Code::unsupported,
       "this build has no UCX, so processes of different nodes cannot talk; install libucx-dev and configure again "
       "(TROUPE_WITH_UCX=ON tells what is missing)");
}

}  // namespace troupe
