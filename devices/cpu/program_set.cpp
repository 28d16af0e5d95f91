#include "devices/cpu/program_set.hpp"

#include <algorithm>

#include "runtime/base/error.hpp"

namespace troupe::cpu {

ProgramSet::ProgramSet(const Graph& graph, const Layout& layout, const BatchLayout& batch,
                       const std::vector<Bucket>& buckets, const ProgramMemory& memory, const ProgramOptions& options)
    : graph_(graph),
      layout_(layout),
      batch_(batch),
      buckets_(buckets),
      memory_(memory),
      options_(options),
      full_(make(batch.rows(), nullptr)) {}

StepProgram ProgramSet::make(std::uint32_t rows, const StepProgram* room) const {
  try {
    return {graph_, layout_, batch_, rows, buckets_, memory_, options_, room};
  } catch (const dnnl::error& error) {
    fail(Code::unsupported, text("graph ", graph_.name(), " in ", name_of(graph_.dtype()), " with ", rows,
                                 " rows: oneDNN cannot do it on this machine (", error.what(), ")"));
  }
}

StepProgram& ProgramSet::for_rows(std::uint32_t rows) {
  if (rows == batch_.rows()) return full_;
  const auto found = std::ranges::find(with_fewer_, rows, &Kept::rows);
  if (found != with_fewer_.end()) {
    with_fewer_.splice(with_fewer_.begin(), with_fewer_, found);
  } else {
    with_fewer_.push_front({rows, make(rows, &full_)});
    if (with_fewer_.size() > kKept) with_fewer_.pop_back();
  }
  return with_fewer_.front().program;
}

}  // namespace troupe::cpu
