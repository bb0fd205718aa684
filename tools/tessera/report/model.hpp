// What a report is made from, whatever file it came in: bench runs, measured problems, rows and
// what they cost. Times are microseconds, rates 1e9 per second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::tool::report {

/// One file that was read.
struct source {
  std::string path;
  std::string kind;      ///< "bench run", "tune results", "lookup table", ...
  std::string contents;  ///< "24 cases, 3 ceilings"
  std::size_t bytes = 0;
  std::vector<std::string> bad_lines;  ///< of files where a damaged line costs that line only
};

enum class limit { compute, memory };

/// What the machine can do at most, measured in the run that carries it.
struct ceiling {
  std::string name;  ///< "f32 FMA", "read"
  limit kind = limit::compute;
  double rate = 0;  ///< GFLOP/s or GB/s, above 0
  bool of_one_core = false;
};

/// One timed case of a bench run. What the run did not say is empty.
struct bench_case {
  std::string name;   ///< "decode/flash_attention q=[...]"
  std::string group;  ///< what is before the first '/'
  std::string row;
  std::string error;  ///< why it was not timed
  std::optional<double> median_us;
  bool is_mean = false;            ///< `median_us` is the mean, the run has no median
  std::optional<double> lower_us;  ///< quartiles
  std::optional<double> upper_us;
  std::optional<double> gflops;
  std::optional<double> gbytes;
  std::optional<double> of_ceiling;  ///< 1 is the limit that binds
  std::string held_to;               ///< name of that limit, where it can be told
  bool disturbed = false;            ///< by other programs while it was measured
  std::vector<std::pair<std::string, double>> counters;  ///< every other counter, as it is

  /// GFLOP per GB; empty if a rate is unknown.
  std::optional<double> intensity() const {
    if (!gflops || !gbytes || !(*gflops > 0) || !(*gbytes > 0)) return std::nullopt;
    return *gflops / *gbytes;
  }
};

/// Another program's time for a case.
struct peer_time {
  std::string name;
  double median_us = 0;
};

struct bench_run {
  std::string path;
  std::vector<std::pair<std::string, std::string>> context;  ///< as the file has it
  std::vector<ceiling> ceilings;
  std::vector<bench_case> cases;
  std::map<std::string, std::vector<peer_time>> peers;  ///< by case name
};

/// One row measured on one problem.
struct measurement {
  std::string row;
  std::string state;   ///< "timed", else why there is no time
  std::string reason;  ///< more about the state; may be empty
  std::optional<double> us;
  std::optional<double> spread_us;
};

/// One problem that was tuned, from a lookup line or a tune result.
struct tuned_problem {
  std::string path;
  std::size_t line = 0;  ///< of the file, counted from 1
  std::string family;
  std::string device_class;
  std::string identity;  ///< "name=value ..."
  std::string size;      ///< likewise
  std::string problem;   ///< problem text where the file has it
  std::string row;       ///< what will run; empty if nothing could be timed
  std::string default_row;
  std::optional<double> us;  ///< of `row`
  std::optional<double> spread_us;
  std::optional<double> default_us;
  std::optional<double> again;  ///< the gain measured once more, after the row was chosen
  double count = 1;             ///< how often a trace asked it
  std::string decision;         ///< "tuned", "default", "failed"
  std::string reason;
  std::vector<measurement> measured;  ///< every row tried, best and default among them
  std::vector<std::pair<std::string, std::string>> details;  ///< what else the file says

  /// Default over chosen, in the race that chose it; empty if one was not timed.
  std::optional<double> raced_gain() const {
    if (!us || !default_us) return std::nullopt;
    return *default_us / *us;
  }
  /// What the choice is worth: measured once more where that was done, because the winner of a race
  /// is also the luckiest.
  std::optional<double> gain() const {
    const std::optional<double> raced = raced_gain();
    return raced && again ? again : raced;
  }
};

/// What a row costs.
struct row_cost {
  std::optional<double> seconds;
  std::optional<double> mebibytes;  ///< peak memory of its unit's compilation
  std::optional<double> bytes;
  std::optional<double> registers;    ///< of a thread; CUDA rows
  std::optional<double> local_bytes;  ///< of a thread: what did not fit into registers; CUDA rows
};

/// One row that is known by its build or by a cost file.
struct known_row {
  std::string name;
  std::string family;
  std::vector<std::pair<std::string, std::string>> config;  ///< member, value; empty if not built
  row_cost cost;
  bool built = false;  ///< in the build that makes the report
};

/// A step of a replay.
struct replay_step {
  double clock = 0;  ///< counts steps of the trace, idle ones included
  double tokens = 0;
  double pages = 0;  ///< in use
  double us = 0;
  bool reads_prompts = false;
};

/// Steps of one kind together.
struct replay_sums {
  std::string name;
  double steps = 0;
  double tokens = 0;
  double tokens_per_second = 0;
  std::optional<double> gflops, gbytes;
  std::optional<double> of_read;  ///< 1 is the bandwidth measured between the steps
  std::optional<double> p50_us, p99_us, max_us;
};

/// A row and what it served in a replay, for one kind of layers.
struct replay_row {
  std::string layers;  ///< "28 x full"
  std::string row;
  std::string tier;
  double steps = 0;
  double us = 0;                       ///< of one layer
  std::optional<double> error, bound;  ///< of the kind's layers, where steps were checked
};

/// `tessera replay --json`.
struct replay_run {
  std::string path;
  std::string model, dtype, trace, device;
  std::vector<std::string> statement;  ///< of the trace
  double pages = 0;                    ///< of the pool
  std::optional<double> read_gbytes;
  std::vector<replay_sums> sums;
  std::vector<replay_row> rows;
  std::vector<replay_step> steps;
  std::vector<std::pair<std::string, double>> totals;  ///< as the file has them
  std::vector<std::string> complaints;                 ///< of its checks; empty: all was right
  double checked_steps = 0;
};

/// Everything that was read.
struct input {
  std::vector<source> sources;
  std::vector<bench_run> runs;
  std::vector<replay_run> replays;
  std::vector<tuned_problem> problems;  ///< one per (family, device class, identity, size)
  std::vector<tuned_problem> table;     ///< every lookup line, as it is
  std::vector<std::pair<std::string, std::string>>
      tuning;  ///< what tune results say about their run
  std::map<std::string, known_row> rows;
  std::vector<std::pair<std::string, std::string>> machine;  ///< facts from `doctor --json`
  std::vector<ceiling> ceilings;                             ///< likewise
  std::vector<std::string> notes;  ///< what a reader should know about the input
};

}  // namespace tessera::tool::report
