#pragma once

#include <string>

namespace troupe {

/// A library that is opened at run time, for what a machine may lack. It stays loaded until the process ends: it may
/// have started threads, and what was found in it is a plain pointer.
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

}  // namespace troupe
