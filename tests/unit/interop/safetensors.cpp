// Safetensors: what is written is read back, whatever its type, shape and strides.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/interop/safetensors_files.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

/// A folder that goes with the test.
class folder {
 public:
  folder() {
    static int count = 0;
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::path(::testing::TempDir()) /
            (std::string(test->name()) + "." + std::to_string(::getpid()) + "." +
             std::to_string(count++));
    fs::create_directories(path_);
  }
  ~folder() { fs::remove_all(path_); }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

constexpr dtype all_types[] = {dtype::f32, dtype::f16, dtype::bf16, dtype::f64,     dtype::i32,
                               dtype::i64, dtype::u32, dtype::u8,   dtype::f8_e4m3, dtype::f8_e5m2};

tensor_view typed_view(std::byte* data, dtype type, std::vector<std::int64_t> extent) {
  tensor_view made;
  made.data = data;
  made.type = type;
  made.rank = static_cast<std::int8_t>(extent.size());
  std::copy(extent.begin(), extent.end(), made.extent.begin());
  made.stride = contiguous_strides(made.extent, made.rank);
  return made;
}

std::vector<std::byte> noise(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> made(size);
  for (std::byte& byte : made) byte = static_cast<std::byte>(random() & 0xff);
  return made;
}

TEST(safetensors, every_type_and_rank_comes_back) {
  folder in;
  std::vector<std::vector<std::byte>> memory;
  std::vector<safetensors_entry> entries;
  const std::vector<std::vector<std::int64_t>> shapes{
      {}, {1}, {3}, {0}, {2, 3}, {3, 0, 2}, {1, 2, 3, 4}, {2, 1, 3, 1, 5}};
  for (const dtype type : all_types) {
    for (const auto& shape : shapes) {
      std::int64_t count = 1;
      for (const std::int64_t size : shape) count *= size;
      memory.push_back(noise(static_cast<std::size_t>(count) * size_of(type) + 1,
                             static_cast<unsigned>(memory.size())));
      entries.push_back({std::string(name_of(type)) + std::to_string(entries.size()),
                         typed_view(memory.back().data(), type, shape)});
    }
  }
  entries.push_back({"flags", typed_view(memory.front().data(), dtype::u8, {4}), true});
  const safetensors_metadata metadata{{"op", "attention"},
                                      {"options", R"({"causal": true})"},
                                      {"", "empty key"},
                                      {"text", "line\nquote\" \\ \u00e9 \x01"}};
  const fs::path path = in / "all.safetensors";
  const auto written = write_safetensors(path, entries, metadata);
  ASSERT_TRUE(written) << written.message();
  EXPECT_EQ(in.files(), 1u);

  const auto read = safetensors_file::open(path);
  ASSERT_TRUE(read) << read.message();
  EXPECT_EQ(read->metadata(), metadata);
  ASSERT_EQ(read->entries().size(), entries.size());
  ASSERT_EQ(read->names().size(), entries.size());
  for (const safetensors_entry& entry : entries) {
    const safetensors_entry* found = read->find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->tensor.shape(), entry.tensor.shape()) << entry.name;
    EXPECT_EQ(found->boolean, entry.boolean) << entry.name;
    EXPECT_TRUE(found->tensor.read_only);
    EXPECT_EQ(found->tensor.stride, entry.tensor.stride) << entry.name;
    const std::size_t size = size_of(entry.tensor.type);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->tensor.data) % size, 0u) << entry.name;
    EXPECT_EQ(std::memcmp(found->tensor.data, entry.tensor.data,
                          static_cast<std::size_t>(entry.tensor.elements()) * size),
              0)
        << entry.name;
  }
  EXPECT_EQ(read->tensor("absent"), nullptr);
}

TEST(safetensors, strides_are_stored_row_major) {
  std::vector<float> memory(2 * 3 * 4);
  std::iota(memory.begin(), memory.end(), 0.0f);
  const tensor_view transposed = view(memory.data(), {4, 3, 2}, {1, 4, 12});
  const tensor_view broadcast = view(memory.data() + 5, {3, 2}, {0, 1});
  const tensor_view backwards = view(memory.data() + 23, {24}, {-1});
  std::vector<float> large(300 * 200);  // more than one piece of the writer's buffer
  std::iota(large.begin(), large.end(), 0.0f);
  const std::vector<safetensors_entry> entries{{"transposed", transposed},
                                               {"broadcast", broadcast},
                                               {"backwards", backwards},
                                               {"large", view(large.data(), {200, 300}, {1, 200})}};
  const auto made = safetensors_bytes(entries);
  ASSERT_TRUE(made) << made.message();
  const auto read = safetensors_file::parse(*made);
  ASSERT_TRUE(read) << read.message();
  const auto* a = static_cast<const float*>(read->tensor("transposed")->data);
  for (int x = 0; x < 4; ++x) {
    for (int y = 0; y < 3; ++y) {
      for (int z = 0; z < 2; ++z) EXPECT_EQ(a[(x * 3 + y) * 2 + z], float(x + 4 * y + 12 * z));
    }
  }
  const auto* b = static_cast<const float*>(read->tensor("broadcast")->data);
  for (int x = 0; x < 6; ++x) EXPECT_EQ(b[x], float(5 + x % 2));
  const auto* c = static_cast<const float*>(read->tensor("backwards")->data);
  for (int x = 0; x < 24; ++x) EXPECT_EQ(c[x], float(23 - x));
  const auto* d = static_cast<const float*>(read->tensor("large")->data);
  for (int x = 0; x < 200; ++x) {
    for (int y = 0; y < 300; ++y) ASSERT_EQ(d[x * 300 + y], float(x + 200 * y));
  }
}

TEST(safetensors, written_data_begins_at_a_multiple_of_64) {
  for (std::size_t length = 0; length < 130; ++length) {
    const double one = 1.0;
    const std::vector<safetensors_entry> entries{{std::string(length, 'n'), view(&one, {1})}};
    const auto made = safetensors_bytes(entries);
    ASSERT_TRUE(made) << made.message();
    EXPECT_EQ((made->size() - sizeof(double)) % 64, 0u) << length;
  }
}

TEST(safetensors, misaligned_tensors_are_read) {
  // The header's 1 to 16 trailing spaces put the data at every remainder.
  for (std::size_t spaces = 0; spaces < 16; ++spaces) {
    const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                               R"("b":{"dtype":"F64","shape":[2],"data_offsets":[1,17]},)"
                               R"("c":{"dtype":"F64","shape":[0],"data_offsets":[17,17]}})" +
                               std::string(spaces, ' ');
    const bytes file = file_of(header, 17);
    const auto read = safetensors_file::parse(file);
    ASSERT_TRUE(read) << read.message();
    const tensor_view* b = read->tensor("b");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b->data) % alignof(double), 0u);
    EXPECT_EQ(std::memcmp(b->data, file.data() + 8 + header.size() + 1, 16), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read->tensor("c")->data) % alignof(double), 0u);
  }
}

TEST(safetensors, moving_a_file_keeps_its_views) {
  folder in;
  const std::vector<float> values{1, 2, 3};
  const std::vector<safetensors_entry> entries{{"a", view(values.data(), {3})}};
  ASSERT_TRUE(write_safetensors(in / "f", entries));
  auto read = safetensors_file::open(in / "f");
  ASSERT_TRUE(read) << read.message();
  const tensor_view before = *read->tensor("a");
  const safetensors_file moved = *std::move(read);
  EXPECT_EQ(moved.tensor("a")->data, before.data);
  EXPECT_EQ(static_cast<const float*>(before.data)[2], 3.0f);
  EXPECT_EQ(moved.names(), std::vector<std::string_view>{"a"});
}

TEST(safetensors, names_come_in_the_order_of_bytes) {
  const bytes file = file_of(R"({"z":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                             R"("e":{"dtype":"U8","shape":[0],"data_offsets":[3,3]},)"
                             R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                             3);
  const auto read = safetensors_file::parse(file);
  ASSERT_TRUE(read) << read.message();
  EXPECT_EQ(read->names(), (std::vector<std::string_view>{"a", "z", "e"}));
  EXPECT_EQ(read->tensor("a")->rank, 0);
  EXPECT_EQ(read->tensor("a")->elements(), 1);
}

TEST(safetensors, an_empty_file_has_no_tensors) {
  const auto made = safetensors_bytes({});
  ASSERT_TRUE(made);
  const auto read = safetensors_file::parse(*made);
  ASSERT_TRUE(read) << read.message();
  EXPECT_TRUE(read->entries().empty());
  EXPECT_TRUE(read->metadata().empty());
}

TEST(safetensors, what_cannot_be_written_is_refused) {
  const std::vector<float> values(4);
  const tensor_view fine = view(values.data(), {4});
  const auto message = [](safetensors_entry entry) {
    return safetensors_bytes({{std::move(entry)}}).message();
  };
  const auto both = [&](const char* a, const char* b) {
    const std::vector<safetensors_entry> entries{{a, fine}, {b, fine}};
    return safetensors_bytes(entries).message();
  };
  EXPECT_EQ(both("a", "a"), R"(safetensors data: header: "a" is there twice)");
  EXPECT_EQ(message({"a", {}}), R"(safetensors data: tensor "a": is absent)");
  EXPECT_EQ(message({"a", fine, true}),
            R"(safetensors data: tensor "a": boolean tensors are u8, it is f32)");
  EXPECT_NE(message({"\xff", fine}), "");
  EXPECT_NE(message({"__metadata__", fine}), "");
  tensor_view wrong = fine;
  wrong.device.kind = device_kind::cuda;
  EXPECT_EQ(message({"a", wrong}), R"(safetensors data: tensor "a": is not in the CPU's memory)");
  wrong = fine;
  wrong.data = nullptr;
  EXPECT_EQ(message({"a", wrong}),
            R"(safetensors data: tensor "a": data is null, it has 16 bytes)");
  wrong = fine;
  wrong.extent[0] = -4;
  EXPECT_EQ(message({"a", wrong}),
            R"(safetensors data: tensor "a": an extent is -4, the least is 0)");
  wrong.extent[0] = std::int64_t{1} << 62;
  EXPECT_EQ(message({"a", wrong}), R"(safetensors data: tensor "a": is more than 2^63 - 1 bytes)");
  wrong.rank = 9;
  EXPECT_EQ(message({"a", wrong}), R"(safetensors data: tensor "a": rank is 9, it can be 0 to 5)");
}

TEST(safetensors, a_refused_or_failed_write_leaves_the_old_file) {
  folder in;
  const std::vector<float> values{1, 2};
  const std::vector<safetensors_entry> good{{"a", view(values.data(), {2})}};
  const std::vector<safetensors_entry> bad{{"a", view(values.data(), {2})}, {"a", good[0].tensor}};
  const fs::path path = in / "f";
  ASSERT_TRUE(write_safetensors(path, good));
  EXPECT_FALSE(write_safetensors(path, bad));
  EXPECT_EQ(in.files(), 1u);
  const auto read = safetensors_file::open(path);
  ASSERT_TRUE(read) << read.message();
  EXPECT_EQ(read->names(), std::vector<std::string_view>{"a"});

  EXPECT_EQ(write_safetensors(in / "no" / "f", good).code(), status_code::io);
  fs::create_directory(in / "taken");
  const auto onto_folder = write_safetensors(in / "taken", good);
  EXPECT_EQ(onto_folder.message(),
            (in / "taken").string() + ": is there and is not a regular file");
  EXPECT_EQ(write_safetensors("/dev/null", good).message(),
            "/dev/null: is there and is not a regular file");
}

TEST(safetensors, a_write_replaces_the_file_behind_a_link_and_keeps_its_mode) {
  folder in;
  const std::vector<float> values{1, 2};
  const std::vector<safetensors_entry> entries{{"a", view(values.data(), {2})}};
  std::ofstream(in / "real") << "old";
  ASSERT_EQ(::chmod((in / "real").c_str(), 0600), 0);
  fs::create_symlink("real", in / "link");
  ASSERT_TRUE(write_safetensors(in / "link", entries));
  EXPECT_TRUE(fs::is_symlink(in / "link"));
  EXPECT_EQ(fs::status(in / "real").permissions(), fs::perms(0600));
  EXPECT_TRUE(safetensors_file::open(in / "real"));
  EXPECT_EQ(in.files(), 2u);
}

TEST(safetensors, an_input_may_be_overwritten_with_its_own_tensors) {
  folder in;
  const std::vector<float> values{1, 2, 3, 4};
  const std::vector<safetensors_entry> entries{{"a", view(values.data(), {4})}};
  ASSERT_TRUE(write_safetensors(in / "f", entries));
  auto read = safetensors_file::open(in / "f");
  ASSERT_TRUE(read);
  ASSERT_TRUE(write_safetensors(in / "f", read->entries(), {{"again", "yes"}}));
  EXPECT_EQ(static_cast<const float*>(read->tensor("a")->data)[3], 4.0f);
  const auto again = safetensors_file::open(in / "f");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->metadata().at("again"), "yes");
}

#ifdef TESSERA_GOLDEN_DIR
TEST(safetensors, golden_files_are_read) {
  std::set<std::string> operations;
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(TESSERA_GOLDEN_DIR)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    const auto read = safetensors_file::open(entry.path());
    ASSERT_TRUE(read) << read.message();
    const auto op = read->metadata().find("op");
    ASSERT_NE(op, read->metadata().end()) << entry.path();
    operations.insert(op->second);
    const std::string stem = entry.path().filename().string();
    EXPECT_EQ(stem.rfind(op->second + ".", 0), 0u) << stem << " has op " << op->second;
    EXPECT_TRUE(read->metadata().contains("options")) << entry.path();
    const auto is_input = [](const auto& tensor) { return tensor.name.rfind("in.", 0) == 0; };
    EXPECT_TRUE(std::any_of(read->entries().begin(), read->entries().end(), is_input))
        << entry.path();
    const auto is_answer = [](const auto& tensor) { return tensor.name.rfind("ref.", 0) == 0; };
    EXPECT_TRUE(std::any_of(read->entries().begin(), read->entries().end(), is_answer))
        << entry.path();
    const tensor_view* const out = read->tensor("ref.out");
    EXPECT_TRUE(out == nullptr || out->type == dtype::f64) << entry.path();
  }
  EXPECT_GT(files, 50u);
  EXPECT_TRUE(operations.contains("flash_attention"));
}
#endif

}  // namespace
}  // namespace tessera::test
