// Processors of a process and memory nodes beside them, from folders like those of Linux.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/common/processors.hpp>

#include "native.hpp"

namespace {

namespace fs = std::filesystem;
using tessera::prim::memory_nodes;
using tessera::prim::processor_set;
using tessera::test::native_isa;

processor_set set_of(const std::vector<int>& processors) {
  processor_set all;
  for (const int processor : processors) all.add(processor);
  return all;
}

/// A folder of nodes that goes with it: which are online, and the processors of some.
class pretended_folder {
 public:
  pretended_folder(const std::string& online,
                   const std::vector<std::pair<int, std::string>>& nodes) {
    std::string name = (fs::temp_directory_path() / "tessera_nodes_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    write(folder_ / "online", online);
    for (const auto& [number, processors] : nodes) {
      const fs::path node = folder_ / ("node" + std::to_string(number));
      fs::create_directory(node);
      write(node / "cpulist", processors);
    }
  }
  ~pretended_folder() { fs::remove_all(folder_); }
  pretended_folder(const pretended_folder&) = delete;
  pretended_folder& operator=(const pretended_folder&) = delete;

  std::vector<int> nodes_beside(const std::vector<int>& processors) const {
    const tessera::prim::node_folder<native_isa> folder(folder_.c_str());
    const memory_nodes found = folder.beside(set_of(processors));
    return {found.numbers, found.numbers + found.count};
  }

 private:
  static void write(const fs::path& file, const std::string& text) {
    std::ofstream(file) << text << '\n';
  }

  fs::path folder_;
};

TEST(processors, a_set_has_what_it_was_given) {
  const processor_set some = set_of({0, 63, 64, 4095, 4096, -1});
  EXPECT_EQ(some.count(), 4);
  EXPECT_TRUE(some.has(0) && some.has(63) && some.has(64) && some.has(4095));
  EXPECT_FALSE(some.has(1) || some.has(4096) || some.has(-1));
}

TEST(processors, nodes_are_those_with_processors_of_the_process) {
  const pretended_folder two("0-1", {{0, "0-3,8-11"}, {1, "4-7,12-15"}});
  using numbers = std::vector<int>;
  EXPECT_EQ(two.nodes_beside({0, 1, 2, 3}), numbers{0});
  EXPECT_EQ(two.nodes_beside({12}), numbers{1});
  EXPECT_EQ(two.nodes_beside({11, 12}), (numbers{0, 1}));
  // A node of memory alone, and numbers with gaps.
  const pretended_folder gaps("0,2,8-9", {{0, "0"}, {2, ""}, {8, "128"}, {9, "129-131"}});
  EXPECT_EQ(gaps.nodes_beside({0, 1, 131}), (numbers{0, 9}));
  EXPECT_EQ(gaps.nodes_beside({0, 128, 129}), (numbers{0, 8, 9}));
}

TEST(processors, what_says_nothing_is_one_node) {
  EXPECT_EQ(tessera::prim::node_folder<native_isa>("/no/such/folder").beside(set_of({0})).count, 1);
  EXPECT_EQ(pretended_folder("", {}).nodes_beside({0}).size(), 1U);
  EXPECT_EQ(pretended_folder("0-1", {{0, "0"}}).nodes_beside({}).size(), 1U);
  EXPECT_EQ(pretended_folder("many", {{0, "0"}}).nodes_beside({0}).size(), 1U);
  // More nodes than anybody has, and processors without end.
  EXPECT_EQ(pretended_folder("0-99999999999", {{0, "0-99999999999"}, {1, "7-3"}})
                .nodes_beside({0, 3, 7})
                .size(),
            1U);
}

TEST(processors, a_thread_is_beside_the_node_that_the_system_says) {
  memory_nodes nodes;
  EXPECT_EQ(nodes.here(), 0);
  nodes.count = 3;
  nodes.numbers[0] = 1;
  nodes.numbers[1] = 4;
  nodes.numbers[2] = 9;
  nodes.number_here = []() noexcept { return 9; };
  EXPECT_EQ(nodes.here(), 2);
  nodes.number_here = []() noexcept { return 4; };
  EXPECT_EQ(nodes.here(), 1);
  nodes.number_here = []() noexcept { return 5; };
  EXPECT_EQ(nodes.here(), 0) << "a node of nobody's";
}

TEST(processors, this_process_has_some) {
  const processor_set mine = tessera::prim::processors_of_process<native_isa>();
  const processor_set of_thread = tessera::prim::processors_of_thread<native_isa>();
  EXPECT_GE(mine.count(), of_thread.count()) << "OpenMP binds threads to more than this one's";
  const memory_nodes& nodes = tessera::prim::nodes_of_process<native_isa>();
  EXPECT_GE(nodes.count, 1);
  EXPECT_LT(nodes.here(), nodes.count);
}

}  // namespace
