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

void fill_now(const Source& source, const FillRequest& request) {
  IoThreads none("data", 0);
  const auto done = std::make_shared<Noted>();
  source.fill(request, none, done);
  TROUPE_CHECK(done->told.has_value(), Code::invalid,
               "a source without threads must have filled a batch when it returns");
  if (!done->told->ok()) fail(done->told->code(), std::string{done->told->text()});
}

}  // namespace troupe
