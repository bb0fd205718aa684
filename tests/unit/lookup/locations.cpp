// Where tables lie.
#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include <tessera/lookup/table.hpp>

namespace {

using namespace tessera;

std::map<std::string, std::string> variables;

const char* variable(const char* name) {
  const auto at = variables.find(name);
  return at == variables.end() ? nullptr : at->second.c_str();
}

std::string user_table(const std::string& directory,
                       const std::map<std::string, std::string>& set) {
  variables = set;
  return locate_tables(directory, &variable).user;
}

TEST(lookup_locations, the_user_table_has_one_place) {
  EXPECT_EQ(user_table("/tables", {{"HOME", "/home/a"}}), "/tables/lookup.txt");
  EXPECT_EQ(user_table("/tables/", {}), "/tables/lookup.txt");
  EXPECT_EQ(user_table("/", {}), "/lookup.txt");
  EXPECT_EQ(user_table("", {{"XDG_CACHE_HOME", "/cache"}, {"HOME", "/home/a"}}),
            "/cache/tessera/lookup.txt");
  EXPECT_EQ(user_table("", {{"HOME", "/home/a"}}), "/home/a/.cache/tessera/lookup.txt");
  EXPECT_EQ(user_table("", {{"XDG_CACHE_HOME", ""}, {"HOME", "/home/a"}}),
            "/home/a/.cache/tessera/lookup.txt");
}

TEST(lookup_locations, missing_home_means_no_user_table) {
  EXPECT_EQ(user_table("", {}), "");
  EXPECT_EQ(user_table("", {{"HOME", ""}}), "");
}

TEST(lookup_locations, the_working_directory_is_never_a_default) {
  EXPECT_EQ(user_table("", {{"HOME", "."}}), "");
  EXPECT_EQ(user_table("", {{"XDG_CACHE_HOME", "cache"}, {"HOME", "home"}}), "");
  EXPECT_EQ(user_table("", {{"XDG_CACHE_HOME", "cache"}, {"HOME", "/home/a"}}),
            "/home/a/.cache/tessera/lookup.txt");
  // Only on the user's word, and then as an absolute path that a later chdir does not move.
  EXPECT_EQ(user_table("mine", {}), (std::filesystem::current_path() / "mine/lookup.txt").string());
}

TEST(lookup_locations, site_tables_lie_in_the_data_directories) {
  variables = {};
  EXPECT_EQ(locate_tables("", &variable).site,
            (std::vector<std::string>{"/usr/local/share/tessera/lookup.txt",
                                      "/usr/share/tessera/lookup.txt"}));
  variables = {{"XDG_DATA_DIRS", "/opt/a/:relative::/opt/b"}};
  EXPECT_EQ(locate_tables("", &variable).site,
            (std::vector<std::string>{"/opt/a/tessera/lookup.txt", "/opt/b/tessera/lookup.txt"}));
  EXPECT_TRUE(locate_tables("", &variable).shipped);
}

}  // namespace
