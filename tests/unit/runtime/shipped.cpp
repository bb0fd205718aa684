// The table inside the library against the problems it was measured on: each of its lines answers a
// call that somebody can make, with a row that runs it.
#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/lookup/record.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/inquiry.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/operation.hpp>
#include <tessera/runtime/record.hpp>

#include "tests/support/gpu_facts.hpp"

namespace {

using namespace tessera;

/// What the lines for one kind of device are measured on.
std::vector<std::string> measured_problems(device_kind device) {
  const std::string list = device == device_kind::cuda ? "gpu.txt" : "reference.txt";
  std::ifstream file(TESSERA_SHAPES_DIR "/../../tools/tuner/problems/" + list);
  std::vector<std::string> problems;
  for (std::string line; std::getline(file, line);) {
    const auto read = parse_trace_line(line);
    EXPECT_TRUE(read) << line << ": " << read.message();
    if (read && !read->problem.empty()) problems.push_back(read->problem);
  }
  return problems;
}

/// Threads that a line was measured with: its size ends with them, but on GPUs.
int threads_of(std::string_view size) {
  const std::size_t at = size.rfind("threads=");
  return at == std::string_view::npos ? 0 : std::stoi(std::string(size.substr(at + 8)));
}

/// The demand of a problem of that family; nothing for those of others.
std::optional<demand> demand_in(const family& kind, std::string_view problem) {
  const family* of = nullptr;
  const result<owned_problem> read = parse_problem(problem, of);
  EXPECT_TRUE(read) << problem << ": " << read.message();
  if (!read || of != &kind) return std::nullopt;
  return demand_for(kind, read->view(), {});
}

/// The row of that name in this build; null if there is none.
const instance* row_of(const family& kind, std::string_view name) {
  for (const instance& row : kind.rows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

/// The problem whose key a line has, on the kind of device of its row, and which the row runs;
/// empty if there is none.
std::string problem_of_line(const family& kind, const lookup_record& line,
                            const std::vector<std::string>& problems) {
  const instance* row = row_of(kind, line.row);
  if (row == nullptr) return {};
  for (const std::string& text : problems) {
    const std::optional<demand> asked = demand_in(kind, text);
    if (!asked) continue;
    const key_text key = key_text_of(kind, *asked, threads_of(line.size), kind_of(row->target));
    const bool same = key.identity.view() == line.identity && key.size.view() == line.size;
    if (same && kind.runs(row->config, *asked)) return text;
  }
  return {};
}

TEST(Properties, EveryShippedRowIsReachableFromARealCall) {
  const std::vector<std::string> of_cpu = measured_problems(device_kind::cpu);
  const std::vector<std::string> of_gpu = measured_problems(device_kind::cuda);
  EXPECT_GE(of_cpu.size(), 50u);
  EXPECT_GE(of_gpu.size(), 40u);
  for (const lookup_record& line : parse_table(shipped_lookup()).records) {
    std::string reached;
    for (const family* kind : families()) {
      if (line.family != kind->name) continue;
      const instance* row = row_of(*kind, line.row);
      ASSERT_NE(row, nullptr) << "this build has a line without its row: " << line_of(line);
      reached = problem_of_line(*kind, line, is_cuda(row->target) ? of_gpu : of_cpu);
    }
    EXPECT_NE(reached, "") << "no call asks for: " << line_of(line);
  }
}

/// The GPU of that class; nothing for classes of others.
std::optional<device_facts> gpu_of_class(std::string_view device_class) {
  for (const device_facts& gpu : {support::h100(), support::h200()}) {
    if (device_class_of(gpu).view() == device_class) return gpu;
  }
  return std::nullopt;
}

TEST(ShippedLines, OfGpusAnswerOnTheDeviceThatTheyWereMeasuredOn) {
  const std::vector<std::string> problems = measured_problems(device_kind::cuda);
  for (const lookup_record& line : parse_table(shipped_lookup()).records) {
    if (line.device_class.starts_with("cpu_")) continue;
    const std::optional<device_facts> gpu = gpu_of_class(line.device_class);
    ASSERT_TRUE(gpu) << "no GPU of tests/support/gpu_facts.hpp has the class of " << line_of(line);
    for (const family* kind : families()) {
      if (line.family != kind->name) continue;
      context where;
      where.policy = selection_policy{.tables = table_use::shipped_only};
      const family* of = nullptr;
      const auto problem = parse_problem(problem_of_line(*kind, line, problems), of);
      ASSERT_TRUE(problem) << line_of(line) << ": " << problem.message();
      const auto what = explain_operation(*kind, problem->view(), where, &*gpu);
      ASSERT_TRUE(what) << what.message();
      EXPECT_EQ(what->row, line.row);
      EXPECT_EQ(what->tier, selection_tier::persistent);
      EXPECT_TRUE(what->reason_text.starts_with("shipped table, measured ")) << what->reason_text;
    }
  }
}

/// The number behind `name` in a device class, in bytes where K or M follows it; 0: it is not
/// there.
std::int64_t number_in(std::string_view device_class, std::string_view name) {
  const std::size_t at = device_class.find(name);
  if (at == std::string_view::npos) return 0;
  const std::string rest(device_class.substr(at + name.size()));
  std::size_t digits = 0;
  const std::int64_t number = std::stoll(rest, &digits);
  if (rest.substr(digits).starts_with('K')) return number << 10;
  return rest.substr(digits).starts_with('M') ? number << 20 : number;
}

/// A processor of that class.
device_facts cpu_of_class(std::string_view device_class) {
  device_facts cpu;
  for (const backend target : all_backends) {
    if (name_of(target) == device_class.substr(0, device_class.find('.'))) cpu.highest = target;
  }
  cpu.l1d_bytes = number_in(device_class, "l1d=");
  cpu.l2_bytes = number_in(device_class, "l2=");
  const auto cores = static_cast<int>(number_in(device_class, "cores="));
  cpu.physical_cores = cpu.hardware_threads = cpu.available_threads = cores;
  return cpu;
}

/// What the shipped table says where a call of the line's problem is made.
result<explanation> answer_to(const family& kind, const lookup_record& line,
                              const std::vector<std::string>& problems, const device_facts& cpu) {
  context where;
  where.policy = selection_policy{.tables = table_use::shipped_only};
  where.threads = threads_of(line.size);
  const family* of = nullptr;
  const auto problem = parse_problem(problem_of_line(kind, line, problems), of);
  if (!problem) return problem.failure();
  return explain_operation(kind, problem->view(), where, &cpu);
}

TEST(ShippedLines, OfProcessorsAnswerOnThoseOfTheirClassAndOnNoOther) {
  const std::vector<std::string> problems = measured_problems(device_kind::cpu);
  int lines = 0;
  for (const lookup_record& line : parse_table(shipped_lookup()).records) {
    if (!line.device_class.starts_with("cpu_")) continue;
    ++lines;
    device_facts cpu = cpu_of_class(line.device_class);
    ASSERT_EQ(device_class_of(cpu).view(), line.device_class);
    for (const family* kind : families()) {
      if (line.family != kind->name) continue;
      const auto what = answer_to(*kind, line, problems, cpu);
      ASSERT_TRUE(what) << line_of(line) << ": " << what.message();
      EXPECT_EQ(what->row, line.row);
      EXPECT_EQ(what->tier, selection_tier::persistent);
      EXPECT_TRUE(what->reason_text.starts_with("shipped table, measured ")) << what->reason_text;
      cpu.l2_bytes *= 4;
      const auto elsewhere = answer_to(*kind, line, problems, cpu);
      ASSERT_TRUE(elsewhere) << elsewhere.message();
      EXPECT_NE(elsewhere->tier, selection_tier::persistent) << elsewhere->reason_text;
    }
  }
  EXPECT_GT(lines, 0) << "no line of a processor is shipped";
}

/// A line for each problem, with a row of the kind of device that runs it, is reached from that
/// problem and no longer when its key is another. Returns how many problems there were.
int lead_to_their_lines(const std::vector<std::string>& problems, device_kind device) {
  int reached = 0;
  for (const family* kind : families()) {
    for (const std::string& text : problems) {
      const std::optional<demand> asked = demand_in(*kind, text);
      if (!asked) continue;
      ++reached;
      const key_text key = key_text_of(*kind, *asked, 2, device);
      lookup_record line;
      line.family = kind->name;
      line.identity = key.identity.view();
      line.size = key.size.view();
      for (const instance& row : kind->rows()) {
        if (kind_of(row.target) == device && kind->runs(row.config, *asked)) line.row = row.name;
      }
      EXPECT_NE(problem_of_line(*kind, line, {text}), "") << text;
      line.identity += " other=true";
      EXPECT_EQ(problem_of_line(*kind, line, {text}), "") << text;
    }
  }
  return reached;
}

TEST(ReferenceProblems, LeadToALineOfTheirKeyAndToNoOther) {
  const std::vector<std::string> problems = measured_problems(device_kind::cpu);
  EXPECT_EQ(lead_to_their_lines(problems, device_kind::cpu), static_cast<int>(problems.size()))
      << "each is of one family";
}

TEST(ReferenceProblems, OfGpusLeadToLinesWhereTheBuildHasTheirRows) {
  const auto has_rows = [](const family* kind) {
    return std::ranges::any_of(kind->rows(), [](const auto& row) { return is_cuda(row.target); });
  };
  if (std::ranges::none_of(families(), has_rows)) {
    for (const lookup_record& line : parse_table(shipped_lookup()).records) {
      EXPECT_TRUE(line.device_class.starts_with("cpu_")) << line_of(line);
    }
    return;
  }
  const std::vector<std::string> problems = measured_problems(device_kind::cuda);
  EXPECT_EQ(lead_to_their_lines(problems, device_kind::cuda), static_cast<int>(problems.size()))
      << "each is of one family";
}

}  // namespace
