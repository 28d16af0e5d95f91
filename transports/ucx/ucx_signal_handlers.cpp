// UCX installs handlers for SIGSEGV and similar signals, and for SIGHUP, when its library is loaded. A program that
// embeds Troupe must keep its own handlers. Therefore UCX's are removed before main() begins, so that nothing that the
// program sets is changed.

#include <dlfcn.h>
#include <signal.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>

#include <string_view>

#include "transports/ucx/detail/signal_handlers.hpp"

namespace {

bool ucx_handles(int signal) noexcept {
  struct sigaction now {};
  if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) return false;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(now.sa_handler), &info) == 0 || info.dli_fname == nullptr) return false;
  return std::string_view{info.dli_fname}.find("libucs.") != std::string_view::npos;
}

[[gnu::constructor]] void give_signals_back() noexcept {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGHUP}) {
    if (ucx_handles(signal)) ucs_debug_disable_signal(signal);  // back to the previous one, such as a sanitizer's
  }
}

}  // namespace

namespace troupe {
void keep_ucx_from_signals() noexcept {}
}  // namespace troupe
