// Files that lie, end early or were changed: each is refused with the reason, none is read past its
// end.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/interop/safetensors_files.hpp"

namespace tessera::test {
namespace {

constexpr std::string_view two_tensors =
    R"({"__metadata__":{"op":"flash_attention"},)"
    R"("q":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[16,19]}})";

/// Reads every byte that the file's views promise.
std::uint64_t touch(const safetensors_file& file) {
  std::uint64_t sum = 0;
  for (const safetensors_entry& entry : file.entries()) {
    const auto* data = static_cast<const unsigned char*>(entry.tensor.data);
    const auto size =
        static_cast<std::size_t>(entry.tensor.elements()) * size_of(entry.tensor.type);
    for (std::size_t at = 0; at < size; ++at) sum += data[at];
  }
  return sum;
}

TEST(safetensors_hostile, the_untouched_file_is_read) {
  const bytes file = file_of(two_tensors, 19);
  const auto read = safetensors_file::parse(file);
  ASSERT_TRUE(read) << read.message();
  EXPECT_EQ(touch(*read), 19u * 18u / 2);
}

TEST(safetensors_hostile, every_truncation_is_refused) {
  const bytes file = file_of(two_tensors, 19);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    const auto read = safetensors_file::parse(cut, "cut");
    ASSERT_FALSE(read) << size;
    EXPECT_EQ(read.code(), status_code::malformed) << size;
    EXPECT_EQ(read.message().rfind("cut: ", 0), 0u) << read.message();
  }
}

TEST(safetensors_hostile, every_changed_byte_is_refused_or_read_within_bounds) {
  const bytes file = file_of(two_tensors, 19);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int change = 1; change < 256; ++change) {
      bytes changed = file;
      changed[at] ^= static_cast<std::byte>(change);
      const auto read = safetensors_file::parse(changed);
      if (!read) {
        ++refused;
        EXPECT_FALSE(read.message().empty());
        continue;
      }
      EXPECT_EQ(read->entries().size(), 2u);
      touch(*read);
    }
  }
  EXPECT_GT(refused, file.size() * 100);  // most bytes are structure
}

TEST(safetensors_hostile, header_lengths) {
  const auto message = [](std::uint64_t length) {
    const bytes file = file_with_length(length, two_tensors, 19);
    return safetensors_file::parse(file, "f").message();
  };
  EXPECT_EQ(message(0), "f: the header of 0 bytes does not begin with {");
  EXPECT_EQ(message(100'000'001),
            "f: the header's length is 100000001 bytes, the most is 100000000");
  EXPECT_EQ(message(~std::uint64_t{0}),
            "f: the header's length is 18446744073709551615 bytes, the most is 100000000");
  EXPECT_EQ(message(two_tensors.size() + 20),
            "f: the header's length is " + std::to_string(two_tensors.size() + 20) +
                " bytes, the file has " + std::to_string(two_tensors.size() + 19) + " behind it");
  EXPECT_EQ(safetensors_file::parse(bytes(3), "f").message(),
            "f: has 3 bytes, the header's length alone is 8");
  EXPECT_EQ(safetensors_file::parse({}, "f").message(),
            "f: has 0 bytes, the header's length alone is 8");
}

struct wrong_header {
  const char* header;
  std::size_t data_bytes;
  const char* sentence;
};

const wrong_header wrong_headers[] = {
    // Text that is not JSON, or not this JSON.
    {" {}", 0, "f: the header of 3 bytes does not begin with {"},
    {"[]", 0, "f: the header of 2 bytes does not begin with {"},
    {"{}x", 0, "f: the header is not JSON at byte 2 of 3 (extra data)"},
    {"{", 0, "f: the header is not JSON at byte 1 of 1 (incomplete JSON)"},
    {R"({"a":1})", 0, R"(f: header: "a" is 1, not an object)"},
    {R"({"a":"b"})", 0, R"(f: header: "a" is a text, not an object)"},
    {R"({"a":null})", 0, R"(f: header: "a" is null, not an object)"},
    {R"({"a":[]})", 0, R"(f: header: "a" is a list, not an object)"},
    {R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":{}}})", 1,
     R"(f: tensor "a": has a field "x"; fields are dtype, shape and data_offsets)"},
    // Keys twice, where a parser that keeps one of them would show either.
    {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
     R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
     1, R"(f: header: "a" is there twice)"},
    {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
     R"(f: tensor "a": dtype is there twice)"},
    {R"({"__metadata__":{"x":"1","x":"2"}})", 0, R"(f: __metadata__: "x" is there twice)"},
    {R"({"__metadata__":{},"__metadata__":{}})", 0, R"(f: header: "__metadata__" is there twice)"},
    // Metadata is texts.
    {R"({"__metadata__":{"x":1}})", 0, R"(f: __metadata__: "x" is 1, not a text)"},
    {R"({"__metadata__":{"x":{}}})", 0, R"(f: __metadata__: "x" is an object, not a text)"},
    {R"({"__metadata__":{"x":null}})", 0, R"(f: __metadata__: "x" is null, not a text)"},
    {R"({"__metadata__":[]})", 0, R"(f: header: "__metadata__" is a list, not an object)"},
    // Fields that are missing or of another type.
    {R"({"a":{}})", 0, R"(f: tensor "a": has no dtype)"},
    {R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, R"(f: tensor "a": has no shape)"},
    {R"({"a":{"dtype":"U8","shape":[]}})", 1, R"(f: tensor "a": has no data_offsets)"},
    {R"({"a":{"dtype":4}})", 0, R"(f: tensor "a": dtype is 4, not a text)"},
    {R"({"a":{"dtype":["U8"]}})", 0, R"(f: tensor "a": dtype is a list, not a text)"},
    {R"({"a":{"shape":3}})", 0, R"(f: tensor "a": shape is 3, not a list)"},
    {R"({"a":{"shape":"[3]"}})", 0, R"(f: tensor "a": shape is a text, not a list)"},
    {R"({"a":{"dtype":"F33"}})", 0,
     R"(f: tensor "a": dtype is "F33"; it can be F64, F32, F16, BF16, I64, I32, U32, U8, BOOL, )"
     R"(F8_E4M3, F8_E5M2, I8)"},
    {R"({"a":{"dtype":"f32"}})", 0,
     R"(f: tensor "a": dtype is "f32"; it can be F64, F32, F16, BF16, I64, I32, U32, U8, BOOL, )"
     R"(F8_E4M3, F8_E5M2, I8)"},
    // Numbers.
    {R"({"a":{"shape":[-1]}})", 0,
     R"(f: tensor "a": shape holds -1, not a whole number of at least 0)"},
    {R"({"a":{"shape":[1.5]}})", 0,
     R"(f: tensor "a": shape holds a fraction, not a whole number of at least 0)"},
    {R"({"a":{"shape":[true]}})", 0,
     R"(f: tensor "a": shape holds true or false, not a whole number of at least 0)"},
    {R"({"a":{"shape":["1"]}})", 0,
     R"(f: tensor "a": shape holds a text, not a whole number of at least 0)"},
    {R"({"a":{"shape":[99999999999999999999999]}})", 0,
     R"(f: tensor "a": shape holds a fraction, not a whole number of at least 0)"},
    {R"({"a":{"shape":[9223372036854775808]}})", 0,
     R"(f: tensor "a": shape holds 9223372036854775808, the most is 9223372036854775807)"},
    {R"({"a":{"shape":[1,1,1,1,1,1]}})", 0,
     R"(f: tensor "a": rank is more than 5, the most a view has)"},
    {R"({"a":{"data_offsets":[0,-4]}})", 0,
     R"(f: tensor "a": data_offsets holds -4, not a whole number of at least 0)"},
    {R"({"a":{"data_offsets":[0]}})", 0, R"(f: tensor "a": data_offsets has 1 numbers, not 2)"},
    {R"({"a":{"data_offsets":[0,1,2]}})", 0, R"(f: tensor "a": data_offsets has 3 numbers, not 2)"},
    {R"({"a":{"data_offsets":[0,[1]]}})", 0,
     R"(f: tensor "a": data_offsets holds a list, not a whole number of at least 0)"},
    // Sizes and offsets.
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
     R"(f: tensor "a": data_offsets begin at 8, past their end at 0)"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7,
     R"(f: tensor "a": data_offsets end at 8, the file has 7 bytes of data)"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8,
     R"(f: tensor "a": data_offsets end at 18446744073709551615, the file has 8 bytes of data)"},
    {R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20,
     R"(f: tensor "a": shape [2,3] F32 is 24 bytes, data_offsets hold 20)"},
    {R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,24]}})", 24,
     R"(f: tensor "a": shape [2,3] F16 is 12 bytes, data_offsets hold 24)"},
    {R"({"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
     R"(f: tensor "a": shape [4611686018427387904,4] F64 is more than 2^63 - 1 bytes)"},
    {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
     R"(f: tensor "a": shape [4294967296,4294967296,0] U8 is more than 2^63 - 1 bytes)"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
     6, R"(f: tensor "b": begins at byte 2 of the data, what lies before it ends at 4 (overlap))"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
     4, R"(f: tensor "b": begins at byte 0 of the data, what lies before it ends at 4 (overlap))"},
    {R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]},)"
     R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
     10, R"(f: tensor "b": begins at byte 6 of the data, what lies before it ends at 4 (gap))"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5,
     R"(f: tensor "a": begins at byte 1 of the data, what lies before it ends at 0 (gap))"},
    {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5,
     "f: the tensors end at byte 4 of the data, the file has 5"},
    {"{}", 1, "f: the tensors end at byte 0 of the data, the file has 1"},
};

TEST(safetensors_hostile, every_refusal_says_what_is_wrong) {
  for (const wrong_header& header : wrong_headers) {
    EXPECT_EQ(refusal_of(header.header, header.data_bytes), header.sentence) << header.header;
  }
}

TEST(safetensors_hostile, deep_nesting) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(refusal_of(R"({"a":)" + deep, 0), R"(f: header: "a" is a list, not an object)");
  EXPECT_EQ(refusal_of(R"({"a":{"shape":)" + deep, 0),
            R"(f: tensor "a": shape holds a list, not a whole number of at least 0)");
  std::string objects;
  for (int level = 0; level < 100'000; ++level) objects += R"({"a":)";
  EXPECT_EQ(refusal_of(objects, 0),
            R"(f: tensor "a": has a field "a"; fields are dtype, shape and data_offsets)");
}

TEST(safetensors_hostile, texts_that_are_not_utf8_or_control_characters) {
  EXPECT_NE(refusal_of("{\"\xff\":{}}", 0), "");
  EXPECT_NE(refusal_of("{\"a\nb\":{}}", 0), "");
  EXPECT_NE(refusal_of("{\"a\\ud800\":{}}", 0), "");
  EXPECT_EQ(refusal_of(R"({"a\nb":1})", 0), R"(f: header: "a?b" is 1, not an object)");
}

TEST(safetensors_hostile, long_names_are_cut_in_messages) {
  const std::string name(100'000, 'n');
  const std::string message = refusal_of("{\"" + name + "\":1}", 0);
  EXPECT_EQ(message, "f: header: \"" + std::string(60, 'n') + "...\" is 1, not an object");
}

TEST(safetensors_hostile, things_that_are_no_files) {
  EXPECT_EQ(safetensors_file::open("/nowhere/at/all").message(),
            "/nowhere/at/all: cannot be opened for reading (No such file or directory)");
  EXPECT_EQ(safetensors_file::open("/").message(), "/: is not a regular file");
  EXPECT_EQ(safetensors_file::open("/dev/zero").message(), "/dev/zero: is not a regular file");
}

}  // namespace
}  // namespace tessera::test
