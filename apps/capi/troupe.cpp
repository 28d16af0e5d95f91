#include "apps/capi/troupe.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/capi/tensors.hpp"
#include "apps/session/session.hpp"

using namespace troupe;

namespace {

constexpr std::size_t kMostNotes = 1000;

/// Collects what a rank is told about its run, for the report.
class Heard final : public SessionListener {
 public:
  void progress(const RunProgress& progress) override {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
  }
  void epoch(const EpochReport& line) override {
    const std::lock_guard lock(mutex_);
    epochs_.push_back(line);
  }
  void note(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    if (notes_.size() == kMostNotes) notes_.pop_front();
    notes_.push_back(text);
  }
  std::tuple<RunProgress, std::vector<EpochReport>, std::deque<std::string>> so_far() {
    const std::lock_guard lock(mutex_);
    return {progress_, epochs_, notes_};
  }

 private:
  std::mutex mutex_;  // guards the members below
  RunProgress progress_;
  std::vector<EpochReport> epochs_;
  std::deque<std::string> notes_;  // the newest ones
};

thread_local std::string last_error;

constexpr DLDataType kF32{kDLFloat, 32, 1};
constexpr DLDataType kBf16{kDLBfloat, 16, 1};
constexpr DLDataType kI32{kDLInt, 32, 1};

DLDataType dlpack_type(DType type) noexcept { return type == DType::f32 ? kF32 : type == DType::bf16 ? kBf16 : kI32; }

}  // namespace

struct troupe_session {
  Heard heard;
  std::unique_ptr<Session> session;
  pid_t process = getpid();  // whose threads the session has; a child of fork() has only a copy of their memory
  Rank self;
  std::optional<BatchView> batch;  // the one that troupe_next returned
  std::uint64_t steps = 0;         // steps taken here
  std::optional<RunResult> result;
  std::string report;
};

namespace {

static_assert(TROUPE_OK == exit_code(Code::ok) && TROUPE_FAILED == exit_code(Code::device_fault) &&
              TROUPE_INVALID == exit_code(Code::invalid) && TROUPE_ENVIRONMENT == exit_code(Code::environment) &&
              TROUPE_PEERS_LOST == exit_code(Code::peer_lost));

/// Runs the body of a function; an exception becomes a result and the thread's error text.
template <class Body>
troupe_result guarded(Body body) noexcept {
  try {
    last_error.clear();
    return body();
  } catch (const Error& error) {
    try {
      last_error = error.what();
    } catch (...) {
      last_error.clear();
    }
    return static_cast<troupe_result>(exit_code(error.code()));
  } catch (const std::exception& error) {
    try {
      last_error = error.what();
    } catch (...) {
      last_error.clear();
    }
    return TROUPE_FAILED;
  }
}

template <class T>
T& given(T* pointer, const char* what) {
  TROUPE_CHECK(pointer != nullptr, Code::invalid, what, " is NULL");
  return *pointer;
}

/// Whether the calling process started the session. In a child of fork() a call would wait for threads that are not
/// there, or write to sockets of the parent.
bool is_at_home(const troupe_session& session) noexcept { return session.process == getpid(); }

troupe_session& at_home(troupe_session* session) {
  troupe_session& found = given(session, "session");
  TROUPE_CHECK(is_at_home(found), Code::invalid, "the session belongs to process ", found.process,
               ", and this is a child that fork() made of it; start a session of its own here");
  return found;
}

/// The session; throws if its run was ended.
troupe_session& running(troupe_session* session) {
  troupe_session& found = at_home(session);
  TROUPE_CHECK(!found.result, Code::invalid, "the session is finished; start another one");
  return found;
}

Blocking here() { return Blocking::on_thread("app"); }

std::vector<std::string> settings_of(const troupe_options& options) {
  std::vector<std::string> settings;
  for (std::size_t i = 0; i < options.settings_count; ++i)
    settings.emplace_back(&given(options.settings[i], "a setting"));
  return settings;
}

OwnModel model_of(const troupe_options& options) {
  OwnModel model{.name = options.model, .parameters = {}, .step = {}, .evaluate = {}};
  for (std::size_t i = 0; i < options.parameters_count; ++i) {
    const troupe_parameter& from = given(options.parameters + i, "parameters");
    Parameter parameter{.name = &given(from.name, "a parameter's name"), .extents = {}, .deviation = from.deviation};
    for (std::size_t axis = 0; axis < from.extents_count; ++axis)
      parameter.extents.push_back(given(from.extents + axis, "a parameter's extents"));
    model.parameters.push_back(std::move(parameter));
  }
  return model;
}

/// The options of an app that was built with this header or an older one, which had fewer fields.
troupe_options complete(const troupe_options& given) {
  constexpr std::size_t kFirst = offsetof(troupe_options, own_samples) + sizeof(troupe_options::own_samples);
  TROUPE_CHECK(given.size >= kFirst && given.size <= sizeof(troupe_options), Code::invalid, "troupe_options::size is ",
               given.size, ", this library knows ", kFirst, " to ", sizeof(troupe_options),
               "; set it to sizeof(troupe_options), and install the library of the header");
  troupe_options options{};
  std::memcpy(&options, &given, given.size);
  return options;
}

SessionOptions options_of(const troupe_options& given) {
  const troupe_options options = complete(given);
  TROUPE_CHECK(options.settings_count == 0 || options.settings != nullptr, Code::invalid, "settings is NULL");
  TROUPE_CHECK(options.parameters_count == 0 || options.parameters != nullptr, Code::invalid, "parameters is NULL");
  SessionOptions made;
  const std::vector<std::string> settings = settings_of(options);
  made.configuration = options.file != nullptr ? read_configuration(options.file, settings)
                                               : parse_configuration("", "troupe_options", settings);
  if (options.model != nullptr) made.model = model_of(options);
  made.own_samples = options.own_samples;
  made.place = launch_place_from_environment();
  return made;
}

void tell(troupe_sums* to, const StepSums& sums) {
  if (to != nullptr) *to = {sums.loss, sums.correct, sums.samples};
}

/// The result of a step. A run that is over without a failure gives TROUPE_OVER.
troupe_result stepped(troupe_session& session, const std::optional<StepSums>& total, troupe_sums* to) {
  session.batch.reset();
  if (!total) return TROUPE_OVER;
  ++session.steps;
  tell(to, *total);
  return TROUPE_OK;
}

void check_in_reach(const float* data, const SessionTensor& tensor) {
  TROUPE_CHECK(data != nullptr, Code::unsupported, "tensor ", tensor.name,
               " is in the memory of a GPU, which this process cannot read; placement.device = \"cpu\" keeps it in the "
               "host's");
}

DLManagedTensor* borrow_tensor(const float* data, const SessionTensor& tensor) {
  check_in_reach(data, tensor);
  return capi::borrow(data, kF32, {tensor.extents.begin(), tensor.extents.end()});
}

const SessionTensor& tensor_of(const troupe_session& session, std::size_t index) {
  const auto& tensors = session.session->tensors();
  TROUPE_CHECK(index < tensors.size(), Code::invalid, "there is no tensor ", index, "; the model has ", tensors.size());
  return tensors[index];
}

void take_gradients(const troupe_session& session, DLManagedTensor* const* gradients, std::size_t count) {
  if (gradients == nullptr && count == 0) return;
  const auto& tensors = session.session->tensors();
  TROUPE_CHECK(gradients != nullptr, Code::invalid, "gradients is NULL, but gradients_count is ", count);
  TROUPE_CHECK(count == tensors.size(), Code::invalid, count, " gradients were given, the model has ", tensors.size(),
               " parameters");
  std::vector<std::span<const float>> found;
  for (const SessionTensor& tensor : tensors) check_in_reach(tensor.gradients.data(), tensor);
  for (std::size_t i = 0; i < count; ++i)
    found.push_back(capi::numbers_of(gradients[i], tensors[i].extents, tensors[i].name.c_str()));
  for (std::size_t i = 0; i < count; ++i) {
    if (found[i].data() != tensors[i].gradients.data()) std::ranges::copy(found[i], tensors[i].gradients.begin());
  }
}

nlohmann::json to_json(const EpochReport& line) {
  nlohmann::json json{{"epoch", line.epoch},
                      {"steps", line.steps},
                      {"loss", line.loss},
                      {"accuracy", line.accuracy},
                      {"elapsed_s", line.elapsed_s}};
  if (line.rate) json["rate"] = *line.rate;
  if (line.skipped > 0) json["skipped"] = line.skipped;
  if (line.loss_scale > 0) json["loss_scale"] = line.loss_scale;
  if (line.test_loss) json["test_loss"] = *line.test_loss;
  if (line.test_accuracy) json["test_accuracy"] = *line.test_accuracy;
  for (const ReportedValue& reported : line.values) json["values"][reported.name] = reported.value;
  return json;
}

std::string report_of(troupe_session& session) {
  const auto [progress, epochs, notes] = session.heard.so_far();
  const Plan& plan = session.session->plan();
  nlohmann::json json{{"rank", session.self.value},
                      {"ranks", plan.world_size()},
                      {"steps", session.steps},
                      {"samples", progress.samples},
                      {"samples_per_s", progress.samples_per_s},
                      {"epochs", nlohmann::json::array()},
                      {"notes", notes},
                      {"plan", plan.to_string()},
                      {"finished", session.result.has_value()}};
  for (const EpochReport& line : epochs) json["epochs"].push_back(to_json(line));
  if (const auto& result = session.result) {
    json["committed"] = result->total.steps;
    json["stopped"] = result->stopped;
    if (!result->reason.empty()) json["reason"] = result->reason;
    json["error"] = result->status.text();
    if (result->total.samples != 0) json["samples"] = result->total.samples;
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

uint32_t troupe_abi_version(void) { return TROUPE_ABI_VERSION; }

const char* troupe_version(void) { return TROUPE_VERSION; }

const char* troupe_error(void) { return last_error.c_str(); }

troupe_result troupe_start(const troupe_options* options, troupe_session** session) {
  return guarded([&] {
    given(session, "session") = nullptr;
    SessionOptions made = options_of(given(options, "options"));
    auto started = std::make_unique<troupe_session>();
    started->self = {made.place ? made.place->rank : 0};
    made.listener = &started->heard;
    Blocking blocking = here();
    started->session = Session::start(blocking, std::move(made));
    *session = started.release();
    return TROUPE_OK;
  });
}

troupe_result troupe_rank(const troupe_session* session, uint32_t* rank, uint32_t* ranks) {
  return guarded([&] {
    const troupe_session& asked = given(session, "session");
    given(rank, "rank") = asked.self.value;
    given(ranks, "ranks") = asked.session->plan().world_size();
    return TROUPE_OK;
  });
}

troupe_result troupe_next(troupe_session* session, DLManagedTensor** inputs, DLManagedTensor** labels) {
  return guarded([&] {
    Blocking blocking = here();
    troupe_session& asked = running(session);
    asked.batch = asked.session->next(blocking);
    if (!asked.batch) return TROUPE_OVER;
    const auto rows = static_cast<std::int64_t>(asked.batch->rows());
    const auto& fields = asked.batch->fields();
    const auto give = [&](DLManagedTensor** to, bool is_label) {
      if (to == nullptr) return;
      *to = nullptr;
      const auto entry = std::find_if(fields.begin(), fields.end(), [&](const BatchLayout::Entry& each) {
        return (each.field.dtype == DType::i32) == is_label;
      });
      if (entry == fields.end()) return;
      std::vector<std::int64_t> extents{rows};
      if (!is_label) extents.push_back(static_cast<std::int64_t>(entry->row_elements()));
      *to = capi::borrow(asked.batch->bytes(*entry), dlpack_type(entry->field.dtype), extents);
    };
    give(inputs, false);
    give(labels, true);
    return TROUPE_OK;
  });
}

size_t troupe_field_count(const troupe_session* session) {
  return session != nullptr && session->batch ? session->batch->fields().size() : 0;
}

const char* troupe_field_name(const troupe_session* session, size_t index) {
  return index < troupe_field_count(session) ? session->batch->fields()[index].field.name.c_str() : nullptr;
}

troupe_result troupe_field(troupe_session* session, size_t index, DLManagedTensor** tensor) {
  return guarded([&] {
    const troupe_session& asked = running(session);
    DLManagedTensor*& to = given(tensor, "tensor");
    TROUPE_CHECK(asked.batch.has_value(), Code::invalid, "there is no batch; call troupe_next first");
    TROUPE_CHECK(index < asked.batch->fields().size(), Code::invalid, "there is no field ", index, "; the batch has ",
                 asked.batch->fields().size());
    const BatchLayout::Entry& entry = asked.batch->fields()[index];
    std::vector<std::int64_t> extents{static_cast<std::int64_t>(asked.batch->rows())};
    extents.insert(extents.end(), entry.field.shape.extents.begin(), entry.field.shape.extents.end());
    to = capi::borrow(asked.batch->bytes(entry), dlpack_type(entry.field.dtype), extents);
    return TROUPE_OK;
  });
}

troupe_result troupe_step(troupe_session* session, troupe_sums* total) {
  return guarded([&] {
    Blocking blocking = here();
    troupe_session& own = running(session);
    return stepped(own, own.session->step(blocking), total);
  });
}

troupe_result troupe_exchange(troupe_session* session, DLManagedTensor* const* gradients, size_t gradients_count,
                              const troupe_sums* own, troupe_sums* total) {
  return guarded([&] {
    Blocking blocking = here();
    troupe_session& running_one = running(session);
    const troupe_sums& sums = given(own, "own");
    take_gradients(running_one, gradients, gradients_count);
    const StepSums here_alone{.loss = sums.loss, .correct = sums.correct, .samples = sums.samples};
    return stepped(running_one, running_one.session->exchange(blocking, here_alone), total);
  });
}

size_t troupe_tensor_count(const troupe_session* session) {
  return session != nullptr ? session->session->tensors().size() : 0;
}

const char* troupe_tensor_name(const troupe_session* session, size_t index) {
  return index < troupe_tensor_count(session) ? session->session->tensors()[index].name.c_str() : nullptr;
}

troupe_result troupe_parameters(troupe_session* session, size_t index, DLManagedTensor** tensor) {
  return guarded([&] {
    const SessionTensor& found = tensor_of(given(session, "session"), index);
    DLManagedTensor*& to = given(tensor, "tensor");
    to = borrow_tensor(found.parameters.data(), found);
    return TROUPE_OK;
  });
}

troupe_result troupe_gradients(troupe_session* session, size_t index, DLManagedTensor** tensor) {
  return guarded([&] {
    const SessionTensor& found = tensor_of(given(session, "session"), index);
    DLManagedTensor*& to = given(tensor, "tensor");
    to = borrow_tensor(found.gradients.data(), found);
    return TROUPE_OK;
  });
}

troupe_result troupe_report(troupe_session* session, const char** json) {
  return guarded([&] {
    given(json, "json") = nullptr;
    troupe_session& asked = at_home(session);
    asked.report = report_of(asked);
    *json = asked.report.c_str();
    return TROUPE_OK;
  });
}

troupe_result troupe_report_value(troupe_session* session, const char* name, double value) {
  return guarded([&] {
    running(session).session->report(&given(name, "name"), value);
    return TROUPE_OK;
  });
}

void troupe_request_stop(troupe_session* session) {
  if (session != nullptr && is_at_home(*session)) session->session->request_stop();
}

troupe_result troupe_finish(troupe_session* session) {
  return guarded([&] {
    Blocking blocking = here();
    troupe_session& ending = running(session);
    ending.result = ending.session->finish(blocking);
    const Status& status = ending.result->status;
    if (!status.ok()) throw Error{status.code(), std::string{status.text()}};
    return TROUPE_OK;
  });
}

void troupe_free(troupe_session* session) {
  if (session != nullptr && is_at_home(*session)) delete session;  // the memory of a child's copy ends with the child
}
