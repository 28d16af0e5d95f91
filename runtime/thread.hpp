#pragma once

#include <functional>
#include <string>
#include <thread>

namespace troupe {

/// Starts a thread of the runtime: it takes no signals (they belong to the app's threads) and shows as `name` (at most
/// 15 characters are kept) in debuggers and top. Throws Error{environment} when the system gives no thread.
std::thread start_thread(const std::string& name, std::function<void()> body);

}  // namespace troupe
