#include "runtime/data/source.hpp"

#include <optional>
#include <utility>

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
    check_offered(entry.field, source.fields(), "a batch");
  for (const Sample& sample : request.samples) {
    TROUPE_CHECK(sample.index < source.count_samples(), Code::invalid, "sample ", sample.index, " of ",
                 source.count_samples(), " does not exist");
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
  source.fill(request, none, done);
  TROUPE_CHECK(done->told.has_value(), Code::invalid,
               "a source without threads must have filled a batch when it returns");
  if (!done->told->ok()) fail(done->told->code(), std::string{done->told->text()});
}

}  // namespace troupe
