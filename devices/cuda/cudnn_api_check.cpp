// Compiled where cudnn_graph.h is found: proves that cudnn_api.hpp says the same. There is nothing in it to run.
#include "devices/cuda/cudnn_api.hpp"

#include <cudnn_graph.h>

#include "runtime/base/detail/same_binary.hpp"

namespace troupe::cuda::dnn {
namespace {

static_assert(CUDNN_MAJOR == 9, "another major version: its declarations may differ");

TROUPE_CUDNN_ENTRY_POINTS(TROUPE_SAME_ENTRY)
#define TROUPE_VALUES "devices/cuda/cudnn_values.def"
#include "runtime/base/detail/compare_values.inc"
static_assert(sizeof(KnobType) == sizeof(cudnnBackendKnobType_t));
static_assert(CUDNN_NUMERICAL_NOTE_TYPE_COUNT < kMostNotes && CUDNN_KNOB_TYPE_COUNTS < kMostKnobs);

}  // namespace
}  // namespace troupe::cuda::dnn
