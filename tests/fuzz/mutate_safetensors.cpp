// Changes safetensors files at random, with an eye for what matters in them, and gives them to the
// reader: mutate_safetensors COUNT SEED FOLDER...   (FOLDER: files to start from)
// Prints how many were taken and refused; status 1 with the seed of the first that went wrong.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/check_safetensors.hpp"

namespace tessera::fuzz {
namespace {

/// A file in its three parts; the length is kept apart so that it can lie.
struct parts {
  std::uint64_t length = 0;
  std::string header;
  std::string data;
};

parts split(const std::string& file) {
  parts made;
  if (file.size() < 8) return {0, file, ""};
  for (std::size_t byte = 8; byte-- > 0;) {
    made.length = made.length << 8 | static_cast<unsigned char>(file[byte]);
  }
  const std::size_t header = static_cast<std::size_t>(
      std::min<std::uint64_t>(made.length, static_cast<std::uint64_t>(file.size() - 8)));
  made.header = file.substr(8, header);
  made.data = file.substr(8 + header);
  return made;
}

std::vector<std::byte> joined(const parts& file) {
  std::vector<std::byte> bytes(8 + file.header.size() + file.data.size());
  for (std::size_t byte = 0; byte < 8; ++byte) {
    bytes[byte] = static_cast<std::byte>(file.length >> (8 * byte) & 0xff);
  }
  std::memcpy(bytes.data() + 8, file.header.data(), file.header.size());
  std::memcpy(bytes.data() + 8 + file.header.size(), file.data.data(), file.data.size());
  return bytes;
}

class mutator {
 public:
  mutator(std::vector<std::string> seeds, std::uint64_t seed)
      : seeds_(std::move(seeds)), random_(seed) {}

  std::vector<std::byte> next() {
    parts file = split(seeds_[pick(seeds_.size())]);
    bool lie = false;  // about the header's length
    for (std::size_t step = 1 + pick(3) * pick(2); step > 0; --step) lie = mutate(file) || lie;
    if (!lie) file.length = file.header.size();
    std::vector<std::byte> bytes = joined(file);
    if (pick(16) == 0) bytes.resize(pick(bytes.size() + 1));
    return bytes;
  }

 private:
  std::size_t pick(std::size_t count) {
    return count == 0 ? 0 : static_cast<std::size_t>(random_() % count);
  }

  static constexpr std::string_view values[] = {"0",
                                                "1",
                                                "-1",
                                                "7",
                                                "8",
                                                "4294967296",
                                                "9223372036854775807",
                                                "1e3",
                                                "0.5",
                                                "null",
                                                "[]",
                                                "{}",
                                                "\"\"",
                                                "18446744073709551615",
                                                "true",
                                                "1e999",
                                                "[[",
                                                "{\"",
                                                "\"",
                                                "99999999999999999999"};
  static constexpr std::string_view words[] = {
      "\"shape\"", "\"dtype\"", "\"data_offsets\"", "\"__metadata__\"", "\"F32\"", "\"BF16\"",
      "\"BOOL\"",  "\"I64\"",   "\"U8\"",           "\"F8_E4M3\"",      "\"X\"",   "\"\\u0000\""};

  /// Returns whether the length of the header is a lie.
  bool mutate(parts& file) {
    std::string& text = file.header;
    switch (pick(12)) {
      case 0:  // one bit of the header
        if (!text.empty()) flip(text);
        return false;
      case 1:  // one bit of the data
        if (!file.data.empty()) flip(file.data);
        return false;
      case 2:  // a number becomes another
      case 3:
        replace(text, "0123456789", values[pick(std::size(values))]);
        return false;
      case 4:  // a text becomes another
        replace_text(text, words[pick(std::size(words))]);
        return false;
      case 5: {  // a piece of the header is there twice
        const std::size_t from = pick(text.size()), size = pick(80);
        text.insert(pick(text.size() + 1), text.substr(from, size));
        return false;
      }
      case 6:  // a piece of the header is missing
        text.erase(pick(text.size()), 1 + pick(20));
        return false;
      case 7:  // the data has another size
        file.data.resize(pick(2 * file.data.size() + 16), 'x');
        return false;
      case 8: {  // the length lies
        const std::uint64_t lies[] = {
            0,           1,           text.size() + 1,   text.size() + file.data.size() + 1,
            100'000'000, 100'000'001, ~std::uint64_t{0}, std::uint64_t{1} << 63,
            random_()};
        file.length = lies[pick(std::size(lies))];
        return true;
      }
      case 9:  // deep nesting
        text.insert(pick(text.size() + 1), std::string(1 + pick(3000), pick(2) == 0 ? '[' : '{'));
        return false;
      case 10: {  // the header of another file
        text = split(seeds_[pick(seeds_.size())]).header;
        return false;
      }
      default:  // a byte of any value
        text.insert(pick(text.size() + 1), 1, static_cast<char>(pick(256)));
        return false;
    }
  }

  void flip(std::string& text) {
    char& letter = text[pick(text.size())];
    letter = static_cast<char>(letter ^ (1 << pick(8)));
  }
  /// Replaces one run of `characters` that begins at or after a random place.
  void replace(std::string& text, const char* characters, std::string_view by) {
    const std::size_t begin = text.find_first_of(characters, pick(text.size()));
    if (begin == text.npos) return;
    const std::size_t end = std::min(text.find_first_not_of(characters, begin), text.size());
    text.replace(begin, end - begin, by);
  }
  void replace_text(std::string& text, std::string_view by) {
    const std::size_t begin = text.find('"', pick(text.size()));
    if (begin == text.npos) return;
    const std::size_t end = text.find('"', begin + 1);
    if (end == text.npos) return;
    text.replace(begin, end + 1 - begin, by);
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

/// The regular files below the folders, at most 16 KiB each: what matters is in the header.
std::vector<std::string> read_seeds(int count, char** folders) {
  std::vector<std::filesystem::path> paths;
  for (int folder = 0; folder < count; ++folder) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folders[folder])) {
      if (entry.is_regular_file() && entry.file_size() <= 16384) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

/// Every 256th input goes through a mapped file as well; both ways must agree.
std::string check_mapped(const std::vector<std::byte>& bytes, const std::filesystem::path& path,
                         bool taken) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto file = safetensors_file::open(path);
  if (static_cast<bool>(file) != taken) return "mapped and parsed differ: " + file.message();
  if (file) touch(*file);
  return {};
}

int run(std::uint64_t count, std::uint64_t seed, const std::vector<std::string>& seeds) {
  mutator mutate(seeds, seed);
  const auto path = std::filesystem::temp_directory_path() /
                    ("tessera-mutate-" + std::to_string(seed) + "-" + std::to_string(count));
  std::uint64_t taken_count = 0;
  for (std::uint64_t index = 0; index < count; ++index) {
    const std::vector<std::byte> bytes = mutate.next();
    bool taken = false;
    std::string wrong = check(bytes, taken);
    if (wrong.empty() && index % 256 == 0) wrong = check_mapped(bytes, path, taken);
    if (!wrong.empty()) {
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
      std::printf("input %llu of seed %llu, kept as %s: %s\n",
                  static_cast<unsigned long long>(index), static_cast<unsigned long long>(seed),
                  path.c_str(), wrong.c_str());
      return 1;
    }
    taken_count += taken ? 1 : 0;
  }
  std::filesystem::remove(path);
  std::printf("%llu mutated files: %llu taken, %llu refused, none misread\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(taken_count),
              static_cast<unsigned long long>(count - taken_count));
  return taken_count > 0 && taken_count < count ? 0 : 1;
}

}  // namespace
}  // namespace tessera::fuzz

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s COUNT SEED FOLDER...\n", argv[0]);
    return 2;
  }
  const auto seeds = tessera::fuzz::read_seeds(argc - 3, argv + 3);
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no file of at most 16384 bytes to start from\n", argv[3]);
    return 2;
  }
  return tessera::fuzz::run(std::strtoull(argv[1], nullptr, 10),
                            std::strtoull(argv[2], nullptr, 10), seeds);
}
