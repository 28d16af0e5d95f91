#pragma once

#include <optional>
#include <string>

// For libraries that are opened at run time, because a machine may lack them. What we need of such a library is written
// once: values in a file that declare_values.inc describes, functions in a list that is a macro,
//   X(member, exported symbol, type of its result, parameters...)
// which makes struct S { TROUPE_ENTRIES(LIST) }, with a pointer to each function. Where the vendor's header is found,
// both are compared with it: detail/same_binary.hpp, detail/compare_values.inc.
#define TROUPE_ENTRY_MEMBER(member, symbol, Returned, ...) Returned (*member)(__VA_ARGS__) = nullptr;
#define TROUPE_ENTRY_EACH(member, symbol, ...) each(member, #symbol);
#define TROUPE_ENTRIES(LIST)     \
  LIST(TROUPE_ENTRY_MEMBER)      \
  template <class Each>          \
  void each_entry(Each&& each) { \
    LIST(TROUPE_ENTRY_EACH)      \
  }

namespace troupe {

/// A library that is opened at run time. It stays loaded until the process ends: it may have started threads, and what
/// was found in it is a plain pointer.
class SharedLibrary {
 public:
  /// Opens the library, as dlopen finds it.
  explicit SharedLibrary(const char* name);
  /// Sets `function` to the exported `symbol`, or to null if there is none.
  template <class Returned, class... Parameters>
  void find(Returned (*&function)(Parameters...), const char* symbol) {
    function = reinterpret_cast<Returned (*)(Parameters...)>(address_of(symbol));
  }
  /// Why the library could not be opened, or the first symbol that it does not have; empty: all is there.
  const std::string& missing() const noexcept { return missing_; }

 private:
  void* address_of(const char* symbol);

  std::string name_;
  void* handle_;
  std::string missing_;
};

/// Opens the library `name` and finds every entry point of `Entries`, a struct of TROUPE_ENTRIES; nothing of it
/// is called. Without a value: `why` says which library or which symbol is missing.
template <class Entries>
std::optional<Entries> load_entries(std::string& why, const char* name) {
  SharedLibrary opened{name};
  Entries found;
  found.each_entry([&opened](auto& function, const char* symbol) { opened.find(function, symbol); });
  why = opened.missing();
  return why.empty() ? std::optional{found} : std::nullopt;
}

}  // namespace troupe
