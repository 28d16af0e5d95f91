#include "tools/rtrun/signals.hpp"

#include "runtime/base/error.hpp"
#include "tools/rtrun/messages.hpp"

namespace troupe::rtrun {
namespace {

constexpr std::chrono::milliseconds kSameRequest{100};

}  // namespace

Signals::Signals() {
  // Background jobs of an interactive shell start with SIGINT ignored; a SIGINT that is sent to them is intended.
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGCHLD, SIG_DFL);  // where its parent ignored it the kernel would not say how a rank has ended
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file over `ulimit -f` is an error of its writer
  sigemptyset(&taken_);
  sigaddset(&taken_, SIGINT);
  sigaddset(&taken_, SIGTERM);
  sigaddset(&taken_, SIGUSR1);
  struct sigaction hangup {};
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&taken_, SIGHUP);
  TROUPE_CHECK_ERRNO(::sigprocmask(SIG_BLOCK, &taken_, &former_) == 0, Code::environment, "cannot block signals");
  fd_ = Fd{::signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK)};
  TROUPE_CHECK_ERRNO(fd_, Code::environment, "cannot make a descriptor for signals; check `ulimit -n`");
}

void Signals::take_suspend_too() const {
  struct sigaction suspend {};
  if (::sigaction(SIGTSTP, nullptr, &suspend) != 0 || suspend.sa_handler == SIG_IGN) return;
  sigset_t taken = taken_;
  sigaddset(&taken, SIGTSTP);
  TROUPE_CHECK_ERRNO(::sigprocmask(SIG_BLOCK, &taken, nullptr) == 0 && ::signalfd(fd_.get(), &taken, 0) == fd_.get(),
                     Code::environment, "cannot read SIGTSTP");
}

int Signals::take() const noexcept {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return 0;
  const auto now = Clock::now();
  if (info.ssi_signo == last_.ssi_signo && info.ssi_pid == last_.ssi_pid && now < last_at_ + kSameRequest) return 0;
  last_ = info;
  last_at_ = now;
  return static_cast<int>(info.ssi_signo);
}

void Signals::restore_in_child(bool own_program) const noexcept {
  sigset_t mask = former_;
  if (own_program) {
    sigaddset(&mask, SIGUSR1);
    if (sigismember(&taken_, SIGHUP) == 1) sigaddset(&mask, SIGHUP);
  } else {
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGTTOU, SIG_DFL);
    ::signal(SIGXFSZ, SIG_DFL);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
}

SignalThread::SignalThread(const Signals& signals)
    : signals_(signals), thread_("signals", signals.fd(), [this] { answer(); }) {}

void SignalThread::on_first(std::function<void()> stop) {
  const std::lock_guard lock{mutex_};
  stop_ = std::move(stop);
}

void SignalThread::on_report(std::function<void()> report) {
  const std::lock_guard lock{mutex_};
  report_ = std::move(report);
}

int SignalThread::first() const {
  const std::lock_guard lock{mutex_};
  return first_;
}

std::optional<Deadline> SignalThread::patience(std::chrono::milliseconds stop) const {
  const std::lock_guard lock{mutex_};
  if (first_ == 0) return std::nullopt;
  return Deadline::after(first_at_ + stop * 3 / 4 - Clock::now());
}

void SignalThread::answer() {
  const int signal = signals_.take();
  if (signal == 0) return;
  const std::lock_guard lock{mutex_};
  if (signal == SIGUSR1) return report_ ? report_() : say("no step is running: the run is starting or ending");
  if (first_ != 0 || !stop_) ::_exit(128 + signal);
  first_ = signal;
  first_at_ = Clock::now();
  stop_();
}

}  // namespace troupe::rtrun
