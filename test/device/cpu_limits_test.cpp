// SPDX-License-Identifier: Apache-2.0
#include <chorale/data/threads/auto_tune.hpp>
#include <chorale/device/cpu.hpp>

#include <catch2/catch.hpp>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

using namespace chorale;

namespace {

/// A folder with files of control groups; removed at the end.
class Groups {
 public:
  Groups() { std::filesystem::create_directories(folder_); }
  ~Groups() { std::filesystem::remove_all(folder_); }

  void write(std::string const& path, std::string const& text) const {
    auto const file = std::filesystem::path{folder_ + path};
    std::filesystem::create_directories(file.parent_path());
    std::ofstream{file} << text;
  }
  CgroupFiles files() const { return {folder_ + "/self", folder_ + "/fs"}; }

 private:
  std::string folder_ =
      (std::filesystem::temp_directory_path() / ("cpu_limits_test." + std::to_string(getpid()))).string();
};

}  // namespace

TEST_CASE("a quota of version 2 is read from cpu.max", "[device][limits]") {
  CHECK(quota_of("150000 100000\n") == 1.5);
  CHECK(quota_of("50000 200000\n") == 0.25);
  CHECK(quota_of("200000") == 2.0);  // the period may be left out: 100 ms
  for (auto const* none :
       {"max 100000\n", "max", "", "\n", "0 100000", "-1 100000", "100000 0", "1.5 100000", "1e5 1e5"})
    CHECK_FALSE(quota_of(none));
}

TEST_CASE("a quota of version 1 is read from two files", "[device][limits]") {
  CHECK(quota_of("250000\n", "100000\n") == 2.5);
  CHECK_FALSE(quota_of("-1\n", "100000\n"));
  CHECK_FALSE(quota_of("100000\n", "0\n"));
  CHECK_FALSE(quota_of("abc", "100000"));
}

TEST_CASE("a process's control group is found among the others", "[device][limits]") {
  auto const both = "12:pids:/a\n4:cpu,cpuacct:/docker/1f\n5:cpuset:/wrong\n1:name=systemd:/b\n0::/user.slice/x:y\n";
  CHECK(cgroup_path(both, 1) == "/docker/1f");
  CHECK(cgroup_path(both, 2) == "/user.slice/x:y");
  CHECK(cgroup_path("0::/\n", 2) == "/");
  CHECK_FALSE(cgroup_path("0::/\n", 1));
  CHECK_FALSE(cgroup_path("5:cpuset:/a\n", 1));  // cpuset is not cpu
  CHECK_FALSE(cgroup_path("", 2));
  CHECK_FALSE(cgroup_path("nonsense", 2));
}

TEST_CASE("the smallest quota of a control group and those above it counts", "[device][limits]") {
  auto const groups = Groups{};
  CHECK_FALSE(cgroup_quota(groups.files()));  // no files at all
  groups.write("/self", "0::/pod/box\n");
  CHECK_FALSE(cgroup_quota(groups.files()));
  groups.write("/fs/pod/box/cpu.max", "max 100000\n");
  groups.write("/fs/pod/cpu.max", "300000 100000\n");
  CHECK(cgroup_quota(groups.files()) == 3.0);
  groups.write("/fs/pod/box/cpu.max", "150000 100000\n");
  CHECK(cgroup_quota(groups.files()) == 1.5);
  groups.write("/fs/cpu.max", "50000 100000\n");  // a container sees its group as the root
  CHECK(cgroup_quota(groups.files()) == 0.5);

  groups.write("/self", "3:cpu,cpuacct:/docker/1f\n");
  groups.write("/fs/cpu/cpu.cfs_quota_us", "250000\n");  // mounted there without the path
  groups.write("/fs/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_quota(groups.files()) == 2.5);
  groups.write("/fs/cpu,cpuacct/docker/1f/cpu.cfs_quota_us", "-1\n");
  groups.write("/fs/cpu,cpuacct/docker/1f/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_quota(groups.files()) == 2.5);
  groups.write("/fs/cpu,cpuacct/docker/1f/cpu.cfs_quota_us", "125000\n");
  CHECK(cgroup_quota(groups.files()) == 1.25);
}

TEST_CASE("the number of threads comes with its reason", "[device][limits]") {
  struct Case {
    int cores;
    char const* omp;
    std::optional<double> quota;
    int threads;
    std::string line;
  };
  for (
      auto const& c : {
          Case{8, nullptr, {}, 8, "cpu: 8 threads (8 cores)"},
          Case{1, "", {}, 1, "cpu: 1 thread (1 core)"},
          Case{8, nullptr, 1.5, 2, "cpu: 2 threads (cgroup quota 1.5 of 8 cores)"},
          Case{8, nullptr, 0.25, 1, "cpu: 1 thread (cgroup quota 0.25 of 8 cores)"},
          Case{8, nullptr, 3.0, 3, "cpu: 3 threads (cgroup quota 3 of 8 cores)"},
          Case{2, nullptr, 8.0, 2, "cpu: 2 threads (2 cores)"},
          Case{8, "4", {}, 4, "cpu: 4 threads (OMP_NUM_THREADS=4 of 8 cores)"},
          Case{8, "4", 1.5, 4, "cpu: 4 threads (OMP_NUM_THREADS=4 of 8 cores)"},  // who sets it decides
          Case{8, " 3,2 ", {}, 3, "cpu: 3 threads (OMP_NUM_THREADS= 3,2  of 8 cores)"},
          Case{2, "16", {}, 2, "cpu: 2 threads (OMP_NUM_THREADS=16, but 2 cores)"},
          Case{8, "abc", {}, 8, "cpu: 8 threads (8 cores; ignored OMP_NUM_THREADS=abc, which is not a number above 0)"},
          Case{
              8, "0", 1.5, 2,
              "cpu: 2 threads (cgroup quota 1.5 of 8 cores; ignored OMP_NUM_THREADS=0, which is not a number above 0)"},
          Case{4, "-2", {}, 4, "cpu: 4 threads (4 cores; ignored OMP_NUM_THREADS=-2, which is not a number above 0)"},
          Case{4,
               "99999999999999999999",
               {},
               4,
               "cpu: 4 threads (4 cores; ignored "
               "OMP_NUM_THREADS=99999999999999999999, which is not a number above 0)"},
      }) {
    auto const chosen = choose_threads(c.cores, c.omp, c.quota);
    CHECK(chosen.threads == c.threads);
    CHECK(chosen.line == c.line);
  }
}

TEST_CASE("OMP_NUM_THREADS is the number of threads of all cores as one device", "[device][limits]") {
  auto const* const before = std::getenv("OMP_NUM_THREADS");
  auto const restored      = before == nullptr ? std::string{} : std::string{before};
  setenv("OMP_NUM_THREADS", "1", 1);
  CHECK(Cpu{}.threads() == 1);
  CHECK(Cpu::split(1)[0].threads() == 1);
  CHECK(Cpu{}.cores().size() == Cpu::split(1)[0].cores().size());  // any of them may do the work
  for (auto const& device : Cpu::split(static_cast<int>(Cpu{}.cores().size()))) CHECK(device.threads() == 1);
  {
    auto const device = Cpu{};
    auto const scope  = Cpu::Scope{device};
    CHECK(Cpu::threads_here() == 1);
  }
  if (before == nullptr) unsetenv("OMP_NUM_THREADS");
  else setenv("OMP_NUM_THREADS", restored.c_str(), 1);
}

// Run by the next one, in a control group.
TEST_CASE("what a process under a quota computes on", "[.quota]") {
  auto said = std::string{};
  try {
    Cpu::split(2);
  } catch (BadArgument const& error) { said = error.what(); }
  std::cout << "cores " << usable_cores() << " data " << data::cores() << " said " << said << std::endl;
}

TEST_CASE("a quota of one core is one core to devices, data sets and transports", "[device][limits]") {
  if (allowed_cores().size() < 2) {
    std::cout << "SKIPPED: a quota of one core: there is only one" << std::endl;
    return;
  }
  auto const old   = std::filesystem::path{"/sys/fs/cgroup/cpu/cpu.cfs_quota_us"};
  auto const group = std::string{std::filesystem::exists(old) ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup"} + "/chorale." +
                     std::to_string(getpid());
  auto failed = std::error_code{};
  std::filesystem::create_directory(group, failed);
  std::ofstream{group + (std::filesystem::exists(old) ? "/cpu.cfs_quota_us" : "/cpu.max")} << "100000" << std::flush;
  auto const self    = std::filesystem::read_symlink("/proc/self/exe").string();
  auto const command = "echo $$ > " + group + "/cgroup.procs && exec " + self + " '[.quota]' 2>&1";
  auto said          = std::string{};
  if (auto const pipe = std::unique_ptr<FILE, int (*)(FILE*)>{::popen(command.c_str(), "r"), ::pclose})
    for (int c; (c = std::fgetc(pipe.get())) != EOF;) said += static_cast<char>(c);
  std::filesystem::remove(group, failed);
  if (said.find("cores ") == std::string::npos) {
    std::cout << "SKIPPED: a quota of one core: this process may not make a control group" << std::endl;
    return;
  }
  CHECK_THAT(said, Catch::Contains("cores 1 data 1 "));
  CHECK_THAT(said,
             Catch::Contains("with a cgroup quota of 1 into 2 devices") && Catch::Contains("a number from 1 to 1"));
}
