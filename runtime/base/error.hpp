#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/base/text.hpp"

namespace troupe {

/// What went wrong, as far as callers act differently on it.
enum class Code : std::uint8_t {
  ok = 0,
  invalid,        // the program ends with the message
  unsupported,    // the same
  environment,    // the machine lacks something (a port, a permission, a file limit): the program ends with the message
  out_of_memory,  // this device actor ends, the node continues
  device_fault,   // the same
  peer_lost,      // Membership reports the loss, and the view ends
  timeout,        // the same
  aborted,        // stop quietly, because a newer view or the end follows
  corrupt,        // discard the data, use the previous version
};

/// The name as in the enum, for messages.
std::string_view name_of(Code code) noexcept;

/// The outcome of an asynchronous operation: a code and, unless ok, a text. Copying never throws.
class Status {
 public:
  Status() noexcept = default;
  Status(Code code, std::string text);
  bool ok() const noexcept { return code_ == Code::ok; }
  Code code() const noexcept { return code_; }
  std::string_view text() const noexcept { return text_ ? std::string_view{*text_} : std::string_view{}; }

 private:
  Code code_ = Code::ok;
  std::shared_ptr<const std::string> text_;
};

/// The exception of synchronous calls.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const noexcept { return code_; }
  Status status() const { return {code_, what()}; }

 private:
  Code code_;
};

/// The exit code of a program that ends with `code`: 0 done, 1 failed, 2 bad configuration, 3 environment, 4 a peer was
/// lost. The same codes are in README.md and, for C, in apps/capi/troupe.h.
constexpr int exit_code(Code code) noexcept {
  switch (code) {
    case Code::ok: return 0;
    case Code::invalid:
    case Code::unsupported: return 2;
    case Code::environment: return 3;
    case Code::peer_lost:
    case Code::timeout: return 4;
    default: return 1;
  }
}

/// Throws Error{code, text}.
[[noreturn]] void fail(Code code, const std::string& text);
/// The same, with the text of `errno` (why the last system call failed) at the end.
[[noreturn]] void fail_errno(Code code, const std::string& text);
/// What the macros below call: the text is made of these parts. Not inlined, so that a check adds little to its
/// function.
[[noreturn]] void fail_joined(Code code, std::initializer_list<TextPart> parts);
[[noreturn]] void fail_errno_joined(Code code, std::initializer_list<TextPart> parts);

}  // namespace troupe

/// Throws Error{code} with the joined parts when the condition does not hold. Name the operands in the parts.
#define TROUPE_CHECK(condition, code, ...)        \
  do {                                            \
    if (!(condition)) [[unlikely]]                \
      ::troupe::fail_joined(code, {__VA_ARGS__}); \
  } while (false)

/// For system calls: throws Error{code} with the joined parts and errno's text when the condition does not hold.
#define TROUPE_CHECK_ERRNO(condition, code, ...)        \
  do {                                                  \
    if (!(condition)) [[unlikely]]                      \
      ::troupe::fail_errno_joined(code, {__VA_ARGS__}); \
  } while (false)
