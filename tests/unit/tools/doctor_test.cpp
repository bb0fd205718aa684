// What `tessera doctor` says of the threads that a process may use.
#include <sstream>
#include <string>

#include <sched.h>

#include "command_runner.hpp"
#include "tools/tessera/processor_quota.hpp"

namespace tessera::testing {
namespace {

using tool::processor_quota;
using tool::threads_within;

/// A folder of groups as they are mounted.
class groups {
 public:
  void set(const std::string& file, std::string_view text) const {
    const std::string path = folder_ / file;
    fs::create_directories(fs::path(path).parent_path());
    write_file(path, text);
  }
  double processors(const std::string& membership) const {
    const std::string root = folder_ / "groups";
    return processor_quota(std::istringstream(membership), root).value_or(-1);
  }

 private:
  scratch_folder folder_;
};

TEST(doctor, time_of_control_groups_is_that_of_the_narrowest) {
  const groups one;
  EXPECT_EQ(one.processors("0::/a/b\n"), -1) << "no groups are mounted";
  one.set("groups/cpu.max", "max 100000\n");
  one.set("groups/a/cpu.max", "150000 100000\n");
  one.set("groups/a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(one.processors("0::/a/b\n"), 1.5);
  EXPECT_EQ(one.processors("0::/\n"), -1);
  EXPECT_EQ(one.processors("0::/of/another/name/space\n"), -1);
  one.set("groups/cpu.max", "50000 100000\n");
  EXPECT_EQ(one.processors("0::/of/another/name/space\n"), 0.5);
}

TEST(doctor, time_of_control_groups_of_version_1) {
  const groups two;
  two.set("groups/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
  two.set("groups/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  two.set("groups/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  two.set("groups/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(two.processors("9:name=systemd:/\n3:cpuset:/a\n1:cpu,cpuacct:/a\n0::/\n"), 2.5);
  EXPECT_EQ(two.processors("1:cpu,cpuacct:/\n"), -1);
  EXPECT_EQ(two.processors("3:cpuset:/a\nnonsense\n::\n"), -1);
}

TEST(doctor, threads_within_a_quota) {
  EXPECT_EQ(threads_within(std::nullopt, 16), 16);
  EXPECT_EQ(threads_within(2.5, 16), 3);
  EXPECT_EQ(threads_within(2.0, 16), 2);
  EXPECT_EQ(threads_within(0.5, 16), 1);
  EXPECT_EQ(threads_within(32.0, 16), 16);
}

/// Facts and remedies of the report.
std::string to_mend(const std::string& prefix) {
  const outcome ended = invoke("doctor --quiet", prefix);
  EXPECT_EQ(ended.status, 0) << ended.err;
  const std::size_t begin = ended.out.find("To mend");
  return begin == std::string::npos ? "" : ended.out.substr(begin);
}

TEST(doctor, threads_beyond_those_of_the_process_are_said) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const int available = CPU_COUNT(&allowed);
  const int threads = available + 3;
  const std::string beyond = "OMP_NUM_THREADS=" + std::to_string(threads);
  const std::string said = to_mend(beyond);
  EXPECT_NE(said.find(std::to_string(threads) + " threads will be used, this process may use "),
            std::string::npos)
      << said;
  const std::string check = "check --quiet '" + golden("flash_attention.full") + "'";
  EXPECT_EQ(invoke(check, beyond).status, 0);
  if (available < 2) return;
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  const std::string on_one = "taskset -c " + std::to_string(first);
  EXPECT_EQ(invoke(check, on_one).status, 0);
  const std::string one = to_mend(on_one);
  EXPECT_NE(one.find("this process may use 1 of the machine's "), std::string::npos) << one;
  // OpenMP binds the first thread to one of them, and others to the rest.
  const std::string bound = to_mend("OMP_PROC_BIND=true");
  EXPECT_EQ(bound.find("this process may use 1 "), std::string::npos) << bound;
}

}  // namespace
}  // namespace tessera::testing
