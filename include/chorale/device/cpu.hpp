// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chorale/core/check.hpp>
#include <chorale/core/error.hpp>
#include <chorale/core/text.hpp>
#include <chorale/device/device.hpp>

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
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
  std::string line;                                        // "cpu: 2 threads (cgroup quota 1.5 of 8 cores)"
};

/// Where the limits of a process's control group are read from. Other paths are for tests.
struct CgroupFiles {
  std::string process = "/proc/self/cgroup";               // names the control group of this process
  std::string root    = "/sys/fs/cgroup";                  // where control groups are mounted
};

namespace detail {

/// The integer that a text contains, apart from spaces around it; nothing if the text is no integer.
inline std::optional<long long> whole_number(std::string_view text) {
  auto const spaces = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  while (!text.empty() && spaces(text.front())) text.remove_prefix(1);
  while (!text.empty() && spaces(text.back())) text.remove_suffix(1);
  auto value              = 0LL;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
}

inline std::optional<std::string> text_of(std::string const& path) {
  auto file = std::ifstream{path};
  if (!file) return {};
  return std::string{std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace detail

/// CPU quota, in cores, of a control group of version 2.
///
/// cpu_max   text of cpu.max: "150000 100000", microseconds in each period, or "max 100000"
/// returns   nothing if there is no quota, or the text is invalid
inline std::optional<double> quota_of(std::string_view cpu_max) {
  auto const gap    = cpu_max.find(' ');
  auto const quota  = detail::whole_number(cpu_max.substr(0, gap));
  auto const period = gap == cpu_max.npos ? std::optional{100'000LL} : detail::whole_number(cpu_max.substr(gap));
  if (!quota || !period || *quota <= 0 || *period <= 0) return {};
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// CPU quota, in cores, of a control group of version 1.
///
/// quota, period   texts of cpu.cfs_quota_us and cpu.cfs_period_us; a quota of -1 means that there is none
inline std::optional<double> quota_of(std::string_view quota, std::string_view period) {
  auto const q = detail::whole_number(quota), p = detail::whole_number(period);
  if (!q || !p || *q <= 0 || *p <= 0) return {};
  return static_cast<double>(*q) / static_cast<double>(*p);
}

/// Path of a process's control group for CPUs, "/" for the root.
///
/// groups    text of /proc/self/cgroup: "0::/user.slice" in version 2, "4:cpu,cpuacct:/docker/1f" in version 1
/// version   2 or 1
/// returns   nothing if the process has none of that version
inline std::optional<std::string> cgroup_path(std::string_view groups, int version) {
  while (!groups.empty()) {
    auto const line        = groups.substr(0, groups.find('\n'));
    groups                 = groups.substr(std::min(line.size() + 1, groups.size()));
    auto const first       = line.find(':');
    auto const second      = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    auto const controllers = "," + std::string{line.substr(first + 1, second - first - 1)} + ",";
    auto const matches     = version == 2 ? line.starts_with("0::") : controllers.find(",cpu,") != std::string::npos;
    if (matches) return std::string{line.substr(second + 1)};
  }
  return {};
}

/// Smallest CPU quota, in cores, of the control groups that this process is in: its own and all above it.
///
/// returns   nothing if none has a quota, or there are no control groups
inline std::optional<double> cgroup_quota(CgroupFiles const& files = {}) {
  auto const groups = detail::text_of(files.process);
  auto least        = std::optional<double>{};
  if (!groups) return least;
  auto const take   = [&](std::optional<double> quota) {
    if (quota && (!least || *quota < *least)) least = quota;
  };
  auto const upward = [](std::string path, auto&& look) {  // a container may see its own group as the root
    for (;;) {
      while (path.ends_with('/')) path.pop_back();
      look(path);
      if (path.empty()) return;
      path.resize(std::min(path.size(), path.rfind('/') == std::string::npos ? 0 : path.rfind('/')));
    }
  };
  if (auto const path = cgroup_path(*groups, 2))
    upward(*path, [&](std::string const& at) {
      if (auto const text = detail::text_of(files.root + at + "/cpu.max")) take(quota_of(*text));
    });
  if (auto const path = cgroup_path(*groups, 1))
    upward(*path, [&](std::string const& at) {
      for (auto const* mount : {"/cpu", "/cpu,cpuacct"}) {
        auto const quota  = detail::text_of(files.root + mount + at + "/cpu.cfs_quota_us");
        auto const period = detail::text_of(files.root + mount + at + "/cpu.cfs_period_us");
        if (quota && period) take(quota_of(*quota, *period));
      }
    });
  return least;
}

/// Chooses how many threads a process computes on: OMP_NUM_THREADS if it is set, else as many as its cores and its
/// quota allow, rounded up. Never more than its cores.
///
/// cores             that the process may run on (its affinity), at least 1
/// omp_num_threads   value of the variable, or null; of a list, "4,2", the first number counts. A value that is no
///                   number above 0 is ignored, and the line says so
/// quota             of its control groups, in cores
inline CpuChoice choose_threads(int cores, char const* omp_num_threads, std::optional<double> quota) {
  auto const count = [](long long n, std::string const& of) {
    return std::to_string(n) + " " + of + (n == 1 ? "" : "s");
  };
  auto const line  = [&](int threads, std::string const& why) {
    return CpuChoice{threads, "cpu: " + count(threads, "thread") + " (" + why + ")"};
  };
  auto ignored = std::string{};
  if (omp_num_threads != nullptr && *omp_num_threads != '\0') {
    auto const text  = std::string_view{omp_num_threads};
    auto const asked = detail::whole_number(text.substr(0, text.find(',')));
    auto const named = "OMP_NUM_THREADS=" + std::string{text};
    if (asked && *asked > cores) return line(cores, named + ", but " + count(cores, "core"));
    if (asked && *asked > 0) return line(static_cast<int>(*asked), named + " of " + count(cores, "core"));
    ignored = "; ignored " + named + ", which is no number above 0";
  }
  if (quota && *quota < cores) {
    return line(std::max(1, static_cast<int>(std::ceil(*quota))),
                formatted("cgroup quota %.3g of ", *quota) + count(cores, "core") + ignored);
  }
  return line(cores, count(cores, "core") + ignored);
}

}  // namespace chorale

extern "C" void omp_set_num_threads(int) noexcept;        // of the OpenMP runtime that oneDNN is linked with
extern "C" int  omp_get_max_threads() noexcept;
extern "C" int  omp_get_num_threads() noexcept;
extern "C" int  omp_get_thread_num() noexcept;
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
      if (align == huge) madvise(data_.get(), rounded, MADV_HUGEPAGE);     // advice: a refusal costs only speed
      std::fill_n(data_.get(), bytes, std::byte{0});
    }

    std::byte*  data() const { return data_.get(); }
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
    static auto const quota = cgroup_quota();
    return choose_threads(static_cast<int>(allowed_cores().size()), std::getenv("OMP_NUM_THREADS"), quota);
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
  /// throws  BadArgument when n is below 1 or above the number of cores
  static std::vector<Cpu> split(int n) {
    auto const cores = allowed_cores();
    if (n < 1 || n > static_cast<int>(cores.size()))
      throw BadArgument{
          "cannot split " + std::to_string(cores.size()) + " cores into " + std::to_string(n) + " devices.",
          "a number from 1 to " + std::to_string(cores.size()) +
              ", or Cpu::logical(n) for devices that take turns on the same cores."};
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
  void  synchronize() const {}                             // kernels return when their work is done

  std::vector<int> const& cores() const { return cores_; }

  /// Number of threads that a kernel on this device runs on.
  int threads() const { return threads_ > 0 ? threads_ : static_cast<int>(cores_.size()); }

  /// Number of threads that a kernel called now, by this thread, runs on.
  static int threads_here() { return omp_get_max_threads(); }

  /// Calls f(i) for each i below n, on as many threads as a kernel called now: those lent to the calling thread, see
  /// Threads::lend, or OpenMP's, which oneDNN's kernels use.
  ///
  /// f    throws nothing
  template <class F>
  static void each(std::ptrdiff_t n, F const& f) {
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
      if (mine().run(lent.get(), static_cast<int>(threads), [](void const* data, int thread, int of) {
            static_cast<Loop const*>(data)->run(thread, of);
          }, &loop)) return;
    GOMP_parallel([](void* data) {
      static_cast<Loop const*>(data)->run(omp_get_thread_num(), omp_get_num_threads());
    }, &loop, static_cast<unsigned>(threads), 0);
  }

  class Threads;                                           // in cpu_threads.hpp

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

  static std::vector<int> allowed_cores() {
    auto set   = cpu_set_t{};
    auto cores = std::vector<int>{};
    if (sched_getaffinity(0, sizeof set, &set) == 0)
      for (std::size_t i = 0; i < CPU_SETSIZE; ++i)
        if (CPU_ISSET(i, &set)) cores.push_back(static_cast<int>(i));
    return cores.empty() ? std::vector<int>{0} : cores;
  }

  std::vector<int> cores_;
  int threads_ = 0;                                        // 0: one per core
};

static_assert(Device<Cpu>);

}  // namespace chorale
