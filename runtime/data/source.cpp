#include "runtime/data/source.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/model/dropout.hpp"

namespace troupe {
namespace {

class Noted final : public FillDone {
 public:
  void filled(const Status& status) noexcept override { told = status; }
  std::optional<Status> told;
};

}  // namespace

void check_offered(const Field& wanted, const std::vector<Field>& offered, const std::string& reader) {
  const Field* const found = find_field(offered, wanted.name);
  const bool fits = found != nullptr && found->shape == wanted.shape &&
                    (found->dtype == wanted.dtype || (found->dtype == DType::f32 && wanted.dtype == DType::bf16));
  TROUPE_CHECK(fits, Code::invalid, reader, " reads ", wanted.to_string(), ", the data set has ", list_fields(offered));
}

void check_request(const Source& source, const FillRequest& request) {
  TROUPE_CHECK(request.samples.size() <= request.batch->rows(), Code::invalid, request.samples.size(),
               " samples do not fit a batch of ", request.batch->rows());
  for (const BatchLayout::Entry& entry : request.batch->entries())
    if (entry.field.name != kSampleKey) check_offered(entry.field, source.fields(), "a batch");
  for (const Sample& sample : request.samples) {
    TROUPE_CHECK(sample.index < source.count_samples(), Code::invalid, "sample ", sample.index, " of ",
                 source.count_samples(), " does not exist");
  }
}

void write_sample_keys(const FillRequest& request) {
  const auto& entries = request.batch->entries();
  const auto found = std::ranges::find(entries, kSampleKey, [](const auto& entry) { return entry.field.name; });
  if (found == entries.end()) return;
  auto* to = reinterpret_cast<std::int32_t*>(request.slot + found->offset);
  for (const Sample& sample : request.samples) {
    const std::uint64_t key = sample_key(request.seed, sample.epoch, sample.index);
    *to++ = static_cast<std::int32_t>(key);
    *to++ = static_cast<std::int32_t>(key >> 32);
  }
}

void fill_on(IoThreads& threads, const FillRequest& request, std::shared_ptr<FillDone> done,
             std::function<void(const FillRequest&)> decode) {
  threads.post([request, done = std::move(done), decode = std::move(decode)](Blocking&) {
    Status status;
    try {
      decode(request);
    } catch (const Error& error) {
      status = error.status();
    } catch (const std::exception& error) {
      status = {Code::invalid, error.what()};
    }
    done->filled(status);
  });
}

void fill_now(const Source& source, const FillRequest& request) {
  IoThreads none("data", 0);
  const auto done = std::make_shared<Noted>();
  write_sample_keys(request);
  source.fill(request, none, done);
  TROUPE_CHECK(done->told.has_value(), Code::invalid,
               "a source without threads must have filled a batch when it returns");
  if (!done->told->ok()) fail(done->told->code(), std::string{done->told->text()});
}

}  // namespace troupe
