#include "tests/support/cuda_host/reports.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace troupe::cuda::host {
namespace {

std::string readable(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name{abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free};
  return status == 0 ? name.get() : symbol;
}

/// The function of an address, or the file and the offset for addr2line.
std::string function_at(const void* address) {
  Dl_info about{};
  std::ostringstream text;
  if (dladdr(address, &about) == 0) {
    text << address;
  } else if (about.dli_sname != nullptr) {
    text << readable(about.dli_sname) << "+0x" << std::hex
         << static_cast<const char*>(address) - static_cast<const char*>(about.dli_saddr);
  } else {
    text << about.dli_fname << "+0x" << std::hex
         << static_cast<const char*>(address) - static_cast<const char*>(about.dli_fbase);
  }
  return text.str();
}

}  // namespace

std::string Place::text() const {
  std::string line = what;
  if (stream != 0) line += " on stream " + std::to_string(stream);
  if (caller != nullptr) line += " (called in " + function_at(caller) + ")";
  return line;
}

void Reports::add(const std::string& kind, const std::string& text) {
  const std::string line = kind + ": " + text;
  const std::lock_guard lock{mutex_};
  if (!known_.insert(line).second) return;
  lines_.push_back(line);
  std::fprintf(stderr, "cuda stand-in: %s\n", line.c_str());
}

std::size_t Reports::count() const {
  const std::lock_guard lock{mutex_};
  return lines_.size();
}

std::string Reports::text() const {
  const std::lock_guard lock{mutex_};
  std::string all;
  for (const std::string& line : lines_) all += line + "\n";
  return all;
}

void Reports::forget() {
  const std::lock_guard lock{mutex_};
  known_.clear();
  lines_.clear();
}

Reports& reports() {
  static auto& all = *std::make_unique<Reports>().release();  // lives as long as the process: streams' threads use it
  return all;
}

}  // namespace troupe::cuda::host
