// Preloaded into a program: sends it the signal whose number TROUPE_TEST_RAISE is, after the program's other libraries
// were initialized and before its main. Only once: the variable is taken out of the environment.

#include <stdlib.h>
#include <unistd.h>

#include <csignal>

namespace {

__attribute__((constructor)) void raise_early() {
  const char* const number = ::getenv("TROUPE_TEST_RAISE");
  if (number == nullptr) return;
  const int signal = ::atoi(number);
  ::unsetenv("TROUPE_TEST_RAISE");
  ::kill(::getpid(), signal);
}

}  // namespace
