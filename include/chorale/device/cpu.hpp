// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/cores.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/device/device.hpp>

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorale {

/// Number of threads that a process computes on by default, and one line with the reason.
struct CpuChoice {
  int threads;
  std::string line;  // "cpu: 2 threads (cgroup quota 1.5 of 8 cores)"
};

/// Chooses how many threads a process computes on: OMP_NUM_THREADS if it is set, else as many as its cores and its
/// quota allow, rounded up. Never more than its cores.
///
/// cores             that the process may run on (its affinity), at least 1
/// omp_num_threads   value of the variable, or null; of a list, "4,2", the first number counts. A value other
///                   than a number above 0 is ignored, and the line says so
/// quota             of its control groups, in cores
inline CpuChoice choose_threads(int cores, char const* omp_num_threads, std::optional<double> quota) {
  auto const count = [](long long n, std::string const& of) {
    return std::to_string(n) + " " + of + (n == 1 ? "" : "s");
  };
  auto const line = [&](int threads, std::string const& why) {
    return CpuChoice{threads, "cpu: " + count(threads, "thread") + " (" + why + ")"};
  };
  auto ignored = std::string{};
  if (omp_num_threads != nullptr && *omp_num_threads != '\0') {
    auto const text  = std::string_view{omp_num_threads};
    auto const asked = detail::whole_number(text.substr(0, text.find(',')));
    auto const named = "OMP_NUM_THREADS=" + std::string{text};
    if (asked && *asked > cores) return line(cores, named + ", but " + count(cores, "core"));
    if (asked && *asked > 0) return line(static_cast<int>(*asked), named + " of " + count(cores, "core"));
    ignored = "; ignored " + named + ", which is not a number above 0";
  }
  if (quota && *quota < cores) {
    return line(std::max(1, static_cast<int>(std::ceil(*quota))),
                formatted("cgroup quota %.3g of ", *quota) + count(cores, "core") + ignored);
  }
  return line(cores, count(cores, "core") + ignored);
}

}  // namespace chorale

extern "C" void omp_set_num_threads(int) noexcept;  // of the OpenMP runtime that oneDNN is linked with
extern "C" int omp_get_max_threads() noexcept;
extern "C" int omp_get_num_threads() noexcept;
extern "C" int omp_get_thread_num() noexcept;
extern "C" void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);

namespace chorale {

/// A set of cores that compute as one device: its kernels run on threads() threads.
///
/// keeps   a value, cheap to copy; two devices may name the same cores (see `logical`)
class Cpu {
 public:
  static constexpr Memory memory = Memory::host;

  /// Host memory, 64-byte aligned and zero; large blocks ask the kernel for huge pages.
  class block {
   public:
    block() = default;
    explicit block(std::size_t bytes) : size_{bytes} {
      constexpr std::size_t huge = std::size_t{2} << 20;
      auto const align           = bytes >= huge ? huge : std::size_t{64};
      auto const rounded         = (bytes + align - 1) / align * align;
      data_.reset(bytes == 0 ? nullptr : static_cast<std::byte*>(std::aligned_alloc(align, rounded)));
      if (bytes != 0 && !data_)
        throw OutOfMemory{"the host could not give " + std::to_string(bytes) + " bytes for one block.",
                          "a smaller batch or model, or fewer replicas on this machine."};
      if (align == huge) madvise(data_.get(), rounded, MADV_HUGEPAGE);  // advice: a refusal costs only speed
      std::fill_n(data_.get(), bytes, std::byte{0});
    }

    std::byte* data() const { return data_.get(); }
    std::size_t size() const { return size_; }

   private:
    struct Free {
      void operator()(std::byte* p) const { std::free(p); }
    };
    std::unique_ptr<std::byte, Free> data_;
    std::size_t size_ = 0;
  };

  /// All cores that this process may use, as one device, with as many threads as choice() says.
  Cpu() : cores_{allowed_cores()}, threads_{choice().threads} {}

  /// Number of threads that this process computes on, from OMP_NUM_THREADS, its cores, and the CPU quota of its control
  /// groups, which is read once.
  static CpuChoice choice() {
    return choose_threads(static_cast<int>(allowed_cores().size()), std::getenv("OMP_NUM_THREADS"), cpu_quota());
  }

  /// One device with n threads on all cores of this process; n may be larger than their number.
  static Cpu with_threads(int n) {
    CHORALE_EXPECTS(n >= 1, "a device computes on at least 1 thread, got " + std::to_string(n));
    auto device     = Cpu{};
    device.threads_ = n;
    return device;
  }

  /// One device with these cores, and a thread on each.
  ///
  /// throws  BadArgument when a core does not exist or may not be used
  explicit Cpu(std::vector<int> cores) : cores_{std::move(cores)} {
    auto const allowed = allowed_cores();
    CHORALE_EXPECTS(!cores_.empty(), "a Cpu needs at least one core");
    for (int const core : cores_)
      CHORALE_EXPECTS(std::find(allowed.begin(), allowed.end(), core) != allowed.end(),
                      "core " + std::to_string(core) + " is not among the " + std::to_string(allowed.size()) +
                          " cores that this process may use");
  }

  /// One device with every core; `split` makes more of them.
  static std::vector<Cpu> visible() { return {Cpu{}}; }

  /// Splits the cores of this process and the threads of choice() among n devices: each core is in exactly one device,
  /// and each device has at least one thread.
  ///
  /// throws  BadArgument when n is below 1 or above usable_cores(): the cores, or the quota of a control group
  static std::vector<Cpu> split(int n) {
    auto const cores = allowed_cores();
    auto const most  = usable_cores();
    if (n < 1 || n > most)
      throw BadArgument{
          sentence("cannot split {} cores{} into {} devices.", cores.size(),
                   most < static_cast<int>(cores.size()) ? sentence(" with a cgroup quota of {}", most) : "", n),
          sentence("a number from 1 to {}, or Cpu::logical(n) for devices that take turns on the same cores.", most)};
    auto const threads = static_cast<std::size_t>(choice().threads);
    auto devices       = std::vector<Cpu>{};
    for (int i = 0; i < n; ++i) {
      auto const part = share(cores.size(), i, n);
      auto const at   = [&](std::size_t k) { return cores.begin() + static_cast<std::ptrdiff_t>(k); };
      devices.push_back(Cpu{std::vector<int>(at(part.begin), at(part.end))});
      devices.back().threads_ = std::max(1, static_cast<int>(share(threads, i, n).size()));
    }
    return devices;
  }

  /// n devices of one thread each that take turns on all cores: many replicas on a small machine, for tests.
  static std::vector<Cpu> logical(int n) {
    CHORALE_EXPECTS(n >= 1, "cannot make " + std::to_string(n) + " logical devices");
    auto device     = Cpu{};
    device.threads_ = 1;
    return std::vector<Cpu>(static_cast<std::size_t>(n), device);
  }

  block allocate(std::size_t bytes) const { return block{bytes}; }
  void synchronize() const {}  // kernels return when their work is done

  std::vector<int> const& cores() const { return cores_; }

  /// Number of threads that a kernel on this device runs on.
  int threads() const { return threads_ > 0 ? threads_ : static_cast<int>(cores_.size()); }

  /// Number of threads that a kernel called now, by this thread, runs on.
  static int threads_here() { return omp_get_max_threads(); }

  /// Calls f(i) for each i below n, on as many threads as a kernel called now: those lent to the calling thread, see
  /// Threads::lend, or OpenMP's, which oneDNN's kernels use.
  ///
  /// f    throws nothing
  template <class F> static void each(std::ptrdiff_t n, F const& f) {
    struct Loop {
      std::size_t n;
      F const* f;
      void run(int thread, int threads) const {
        auto const part = share(n, thread, threads);
        for (auto i = part.begin; i < part.end; ++i) (*f)(static_cast<std::ptrdiff_t>(i));
      }
    };
    auto loop          = Loop{static_cast<std::size_t>(n), &f};
    auto const threads = std::min(static_cast<std::ptrdiff_t>(parallel_threads()), n);
    if (threads <= 1) return loop.run(0, 1);
    if (auto const lent = mine().threads.lock())
      if (mine().run(
              lent.get(), static_cast<int>(threads),
              [](void const* data, int thread, int of) { static_cast<Loop const*>(data)->run(thread, of); }, &loop))
        return;
    GOMP_parallel([](void* data) { static_cast<Loop const*>(data)->run(omp_get_thread_num(), omp_get_num_threads()); },
                  &loop, static_cast<unsigned>(threads), 0);
  }

  class Threads;  // in cpu_threads.hpp

  /// Restricts kernels that the calling thread makes or calls to this thread alone, while the object lives.
  class OneThread {
   public:
    OneThread() : threads_before_{omp_get_max_threads()} { omp_set_num_threads(1); }
    ~OneThread() { omp_set_num_threads(threads_before_); }
    OneThread(OneThread const&)            = delete;
    OneThread& operator=(OneThread const&) = delete;

   private:
    int threads_before_;
  };

  /// Runs the calling thread on this device's cores, and its kernels on this device's threads, while the object lives.
  class Scope {
   public:
    explicit Scope(Cpu const& device) : threads_before_{omp_get_max_threads()} {
      sched_getaffinity(0, sizeof before_, &before_);
      auto wanted = cpu_set_t{};
      for (int const core : device.cores_) CPU_SET(static_cast<std::size_t>(core), &wanted);
      moved_ = !CPU_EQUAL(&wanted, &before_) && sched_setaffinity(0, sizeof wanted, &wanted) == 0;
      omp_set_num_threads(device.threads());
    }
    ~Scope() {
      if (moved_) sched_setaffinity(0, sizeof before_, &before_);
      omp_set_num_threads(threads_before_);
    }
    Scope(Scope const&)            = delete;
    Scope& operator=(Scope const&) = delete;

   private:
    cpu_set_t before_{};
    int threads_before_;
    bool moved_ = false;
  };

 private:
  /// The threads that are lent to a thread, and how they run a loop in parts. See Threads::lend.
  struct Lent {
    std::weak_ptr<void> threads;
    bool (*run)(void* threads, int n, void (*part)(void const* loop, int thread, int of), void const* loop) = nullptr;
  };
  static Lent& mine() {
    static thread_local auto lent = Lent{};
    return lent;
  }

  /// Most threads of each(): one under GCC's ThreadSanitizer, which does not see what OpenMP's threads wait for.
  static int parallel_threads() {
#ifdef __SANITIZE_THREAD__
    return 1;
#else
    return threads_here();
#endif
  }

  std::vector<int> cores_;
  int threads_ = 0;  // 0: one per core
};

static_assert(Device<Cpu>);

}  // namespace chorale
