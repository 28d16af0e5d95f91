#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <nvtx3/nvToolsExt.h>

// A profiler for tests, which NVTX opens where NVTX_INJECTION64_PATH names it: each range that begins is a line in the
// file TROUPE_NVTX_RANGES, its name behind those of the ranges around it on its thread: "outer > inner".
namespace {

int file() {
  static const int opened =
      ::open(std::getenv("TROUPE_NVTX_RANGES"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);  // in one write each
  return opened;
}

thread_local std::vector<std::string> open_ranges;

nvtxDomainHandle_t make_domain(const char* name) {
  static std::string only;
  if (std::string{name} != "Troupe") return nullptr;
  return reinterpret_cast<nvtxDomainHandle_t>(&only);
}

int begin(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  open_ranges.emplace_back(range->message.ascii);
  std::string line;
  for (const std::string& name : open_ranges) line += (line.empty() ? "" : " > ") + name;
  line += '\n';
  (void)!::write(file(), line.data(), line.size());
  return static_cast<int>(open_ranges.size()) - 1;
}

int end(nvtxDomainHandle_t) {
  if (open_ranges.empty()) std::abort();  // more ends than begins
  open_ranges.pop_back();
  return static_cast<int>(open_ranges.size());
}

template <class Function>
void set(NvtxFunctionTable table, NvtxCallbackIdCore2 id, Function function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(find(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  set(table, NVTX_CBID_CORE2_DomainCreateA, make_domain);
  set(table, NVTX_CBID_CORE2_DomainRangePushEx, begin);
  set(table, NVTX_CBID_CORE2_DomainRangePop, end);
  return 1;
}
