// Tables on file systems that are full or read-only. Property 7 of the choosing layer. A child
// process mounts a small file system of its own; where that is not allowed the tests are skipped.
#include <csignal>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tessera/lookup/store.hpp>
#include <tessera/runtime/tables.hpp>

#include "tests/unit/lookup/lookup_support.hpp"

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr int not_allowed = 77;

/// Runs `work` in a child with a file system of `kibibytes` mounted on `folder`, seen by it alone.
template <class Work>
void with_small_disk(const std::string& folder, int kibibytes, Work work) {
  const int ended = in_child([&] {
    const bool own = unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    const std::string size = "size=" + std::to_string(kibibytes) + "k";
    if (!own || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", folder.c_str(), "tmpfs", 0, size.c_str()) != 0) {
      _exit(not_allowed);
    }
    work();
  });
  if (ended == not_allowed) GTEST_SKIP() << "this process may not mount a file system";
  EXPECT_EQ(ended, 0);
}

/// Fills a file until the disk is full.
void fill_disk(const std::string& path) {
  FILE* const file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  const std::string block(4096, 'x');
  while (std::fwrite(block.data(), 1, block.size(), file) == block.size() &&
         std::fflush(file) == 0) {
  }
  std::fclose(file);
}

TEST(property_7, a_full_disk_leaves_the_old_file_intact) {
  const scratch_folder folder;
  with_small_disk(folder / "", 256, [&] {
    const std::string path = folder / "lookup.txt";
    ASSERT_TRUE(append_records(path, records_of(0, 100)));
    ASSERT_TRUE(append_records(path, records_of(0, 100)));
    const std::string before = contents_of(path);
    fill_disk(folder / "filler");

    const status full = append_records(path, records_of(100, 200));
    EXPECT_EQ(full.code(), status_code::io);
    EXPECT_EQ(full.message(), path + ": cannot be written: No space left on device");
    EXPECT_EQ(contents_of(path), before);

    const auto compacted = compact_table(path);
    EXPECT_EQ(compacted.message(), path + ".new: cannot be written: No space left on device");
    EXPECT_EQ(contents_of(path), before);
    EXPECT_FALSE(fs::exists(path + ".new"));

    // The same with a damaged file: neither the file nor its copy is left half-made.
    write_file(folder / "filler", "");
    write_file(path, before + "noise");
    fill_disk(folder / "filler");
    EXPECT_EQ(compact_table(path).message(),
              path + ".bad: cannot be written: No space left on device");
    EXPECT_EQ(contents_of(path), before + "noise");
    EXPECT_FALSE(fs::exists(path + ".bad"));

    const std::string fresh = folder / "fresh.txt";
    EXPECT_FALSE(append_records(fresh, records_of(0, 1)));
    EXPECT_FALSE(fs::exists(fresh)) << "no empty table is left behind";
    EXPECT_FALSE(merge_tables(std::vector<std::string>{path}, fresh));
    EXPECT_FALSE(fs::exists(fresh));

    fs::remove(folder / "filler");
    EXPECT_TRUE(append_records(path, records_of(100, 200)));
    EXPECT_EQ(table_at(path).records().size(), 200u);
  });
}

TEST(property_7, a_disk_that_fills_up_in_the_middle_of_a_line_loses_nothing) {
  const scratch_folder folder;
  with_small_disk(folder / "", 64, [&] {
    const std::string path = folder / "lookup.txt";
    std::int64_t committed = 0;
    status done;
    while ((done = append_records(path, records_of(committed, committed + 3)))) committed += 3;
    EXPECT_EQ(done.code(), status_code::io);
    EXPECT_GT(committed, 30);
    const lookup_table table = table_at(path);
    EXPECT_EQ(table.records().size(), static_cast<std::size_t>(committed));
    EXPECT_EQ(table.files()[0].damaged, 0);
  });
}

TEST(property_7, a_file_size_limit_is_a_full_disk) {
  const scratch_folder folder;
  const std::string path = folder / "lookup.txt";
  EXPECT_EQ(in_child([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              ASSERT_TRUE(append_records(path, records_of(0, 10)));
              const std::string before = contents_of(path);
              const rlimit limit{before.size() + 1000, before.size() + 1000};
              ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
              EXPECT_EQ(append_records(path, records_of(10, 20)).message(),
                        path + ": cannot be written: File too large");
              EXPECT_EQ(contents_of(path), before);
            }),
            0);
}

TEST(property_7, a_read_only_directory_is_read_and_refuses_rows) {
  const scratch_folder folder;
  with_small_disk(folder / "", 256, [&] {
    const std::string path = folder / "lookup.txt";
    ASSERT_TRUE(append_records(path, records_of(0, 10)));
    const std::string before = contents_of(path);
    ASSERT_EQ(mount("none", (folder / "").c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    EXPECT_EQ(table_at(path).records().size(), 10u);
    EXPECT_EQ(warning_of(table_at(path).files()[0]), "");
    EXPECT_EQ(append_records(path, records_of(10, 11)).message(),
              path + ": cannot be opened for writing: Read-only file system");
    EXPECT_EQ(compact_table(path).message(),
              path + ": cannot be opened for writing: Read-only file system");
    EXPECT_EQ(append_records(folder / "made/lookup.txt", records_of(0, 1)).message(),
              folder / "made" + ": cannot be made: Read-only file system");
    EXPECT_EQ(contents_of(path), before);
  });
}

TEST(property_7, a_missing_home_means_the_shipped_table_only) {
  EXPECT_EQ(in_child([] {
              unsetenv("HOME");
              unsetenv("XDG_CACHE_HOME");
              unsetenv("TESSERA_TABLE_DIR");
              setenv("XDG_DATA_DIRS", "/nowhere", 1);
              const table_locations where = process_table_locations();
              EXPECT_EQ(where.user, "");
              const auto tables = load_lookup_tables(where);
              EXPECT_TRUE(tables->user.files().empty());
              EXPECT_TRUE(tables->site.empty());
            }),
            0);
}

}  // namespace
