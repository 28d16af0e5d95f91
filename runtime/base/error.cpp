#include "runtime/base/error.hpp"

#include <cerrno>
#include <system_error>

#include "runtime/base/printable.hpp"

namespace troupe {

std::string_view name_of(Code code) noexcept {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid: return "invalid";
    case Code::unsupported: return "unsupported";
    case Code::environment: return "environment";
    case Code::out_of_memory: return "out_of_memory";
    case Code::device_fault: return "device_fault";
    case Code::peer_lost: return "peer_lost";
    case Code::timeout: return "timeout";
    case Code::aborted: return "aborted";
    case Code::corrupt: return "corrupt";
  }
  return "unknown";
}

Status::Status(Code code, std::string text)
    : code_(code), text_(code == Code::ok ? nullptr : std::make_shared<const std::string>(printable(text))) {}

void fail(Code code, const std::string& text) { throw Error{code, printable(text)}; }

void fail_errno(Code code, const std::string& what) {
  const int reason = errno;
  fail(code, text(what, ": ", std::generic_category().message(reason)));
}

void fail_joined(Code code, std::initializer_list<TextPart> parts) { fail(code, text_of(parts)); }

void fail_errno_joined(Code code, std::initializer_list<TextPart> parts) {
  const int reason = errno;
  const std::string what = text_of(parts);
  errno = reason;
  fail_errno(code, what);
}

}  // namespace troupe
