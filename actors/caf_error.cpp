#include "actors/caf_error.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/atom.hpp>
#include <caf/exit_reason.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>
#include <string>

namespace troupe {
namespace {

constexpr caf::atom_value kCategory = caf::atom("troupe");

Code code_of(std::uint8_t number) noexcept {
  return number <= static_cast<std::uint8_t>(Code::corrupt) ? static_cast<Code>(number) : Code::corrupt;
}

std::string text_of(const caf::message& context) {
  return context.match_elements<std::string>() ? context.get_as<std::string>(0) : std::string{};
}

Code code_of(caf::sec reason) noexcept {
  switch (reason) {
    case caf::sec::request_timeout: return Code::timeout;
    case caf::sec::request_receiver_down: return Code::peer_lost;
    case caf::sec::unexpected_message:
    case caf::sec::unexpected_response:
    case caf::sec::unknown_type: return Code::unsupported;
    case caf::sec::end_of_stream: return Code::corrupt;
    default: return Code::device_fault;
  }
}

Code code_of(caf::exit_reason reason) noexcept {
  switch (reason) {
    case caf::exit_reason::user_shutdown:
    case caf::exit_reason::kill: return Code::aborted;
    case caf::exit_reason::unknown:
    case caf::exit_reason::unreachable:
    case caf::exit_reason::remote_link_unreachable: return Code::peer_lost;
    default: return Code::device_fault;
  }
}

}  // namespace

caf::error to_caf(const Status& status) {
  if (status.ok()) return {};
  return {static_cast<std::uint8_t>(status.code()), kCategory, caf::make_message(std::string{status.text()})};
}

caf::error to_caf(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    return to_caf(error.status());
  } catch (const std::exception& error) {
    return to_caf(Status{Code::device_fault, error.what()});
  } catch (...) {
    return to_caf(Status{Code::device_fault, "an exception of unknown type"});
  }
}

Status from_caf(const caf::error& error) {
  if (!error) return {};
  if (error.category() == kCategory) return {code_of(error.code()), text_of(error.context())};
  Code code = Code::device_fault;
  if (error.category() == caf::atom("system")) code = code_of(static_cast<caf::sec>(error.code()));
  if (error.category() == caf::atom("exit")) {
    code = code_of(static_cast<caf::exit_reason>(error.code()));
    // Of a lost process: the reason of its loss.
    if (std::string why = text_of(error.context()); !why.empty()) return {code, std::move(why)};
  }
  return {code, caf::to_string(error)};
}

void add_error_names(caf::actor_system_config& config) {
  config.add_error_category(kCategory, [](std::uint8_t number, caf::atom_value, const caf::message& context) {
    return text(name_of(code_of(number)), ": ", text_of(context));
  });
}

}  // namespace troupe
