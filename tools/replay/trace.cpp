#include "trace.hpp"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include <tessera/spec/status.hpp>

#include "generator.hpp"
#include "trace_line.hpp"

namespace tessera::replay {
namespace {

constexpr std::int64_t most_tokens = 1 << 20;    ///< of a request, a page, a step
constexpr std::int64_t most_requests = 1 << 20;  ///< of a trace
constexpr std::int64_t most_pages = 1 << 24;
constexpr std::int64_t most_keys = std::int64_t{1} << 30;  ///< of a pool
constexpr std::int64_t most_sequences = 1 << 16;

/// A word that names a value of an enumeration.
template <class Value, std::size_t Count>
Value named(const trace_line& line, std::string_view word,
            const std::array<std::pair<std::string_view, Value>, Count>& known) {
  std::string names;
  for (const auto& [name, value] : known) {
    if (name == word) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  line.refuse(fmt::format("\"{}\" is none of {}", word, names));
}

class trace_reader {
 public:
  explicit trace_reader(const std::string& file) { found_.file = file; }

  void read(trace_line& line) {
    const std::string_view head = line.word(0, "a word");
    using reader = void (trace_reader::*)(trace_line&);
    constexpr std::array<std::pair<std::string_view, reader>, 8> readers{
        {{"pool", &trace_reader::read_pool},
         {"batch", &trace_reader::read_batch},
         {"request", &trace_reader::read_request},
         {"generate", &trace_reader::read_generate},
         {"arrivals", &trace_reader::read_arrivals},
         {"prompt", &trace_reader::read_prompt},
         {"output", &trace_reader::read_output},
         {"prefix", &trace_reader::read_prefix}}};
    const reader read_line = named(line, head, readers);
    if (head != "request" && head != "prefix") note_once(line, std::string(head));
    if (head != "request") found_.statement.emplace_back(line.text());
    (this->*read_line)(line);
  }

  trace finished() && {
    for (const std::string head : {"pool", "batch"}) need(head);
    if (lines_.contains("generate")) {
      for (const std::string head : {"arrivals", "prompt", "output"}) need(head);
      std::ranges::move(generated(stated_), std::back_inserter(found_.requests));
    } else if (found_.requests.empty()) {
      refuse("has 0 requests: no line \"generate\", and none \"request\"");
    }
    std::ranges::stable_sort(found_.requests, {}, &request::arrival);
    check_sizes();
    return std::move(found_);
  }

 private:
  [[noreturn]] void refuse(std::string_view fact) const {
    throw error(status(status_code::malformed, fmt::format("{}: {}", found_.file, fact)));
  }

  void note_once(const trace_line& line, const std::string& head) {
    const auto [before, is_first] = lines_.emplace(head, line.number());
    if (!is_first) {
      line.refuse(fmt::format("is given 2 times, first in line {}", before->second));
    }
  }

  void need(const std::string& head) const {
    if (!lines_.contains(head)) refuse(fmt::format("has no line \"{}\"", head));
  }

  void read_pool(trace_line& line) {
    found_.limits.page_size = line.whole("page_size", 1, most_tokens);
    found_.limits.pages = line.whole("pages", 1, most_pages);
    const std::int64_t keys = found_.limits.pages * found_.limits.page_size;
    if (keys > most_keys) {
      line.refuse(fmt::format("{} pages of {} hold {} keys, {} at most", found_.limits.pages,
                              found_.limits.page_size, keys, most_keys));
    }
    line.end(1);
  }

  void read_batch(trace_line& line) {
    found_.limits.sequences = line.whole("sequences", 1, most_sequences);
    // Each sequence under way can generate a token in each step.
    found_.limits.tokens = line.whole("tokens", found_.limits.sequences, most_tokens);
    line.end(1);
  }

  void read_request(trace_line& line) {
    request request{.arrival = line.real("arrival", 0, 1e9),
                    .prompt = line.whole("prompt", 1, most_tokens),
                    .output = line.whole("output", 1, most_tokens)};
    if (const auto prefix = line.text_of("prefix"))
      request.shared = shared_of(line, *prefix, request);
    line.end(1);
    if (static_cast<std::int64_t>(found_.requests.size()) == most_requests) {
      line.refuse(
          fmt::format("is request {}, a trace has {} at most", most_requests + 1, most_requests));
    }
    found_.requests.push_back(request);
  }

  /// "NAME:TOKENS".
  common_tokens shared_of(const trace_line& line, std::string_view text, const request& request) {
    const std::size_t colon = text.rfind(':');
    const std::string name(text.substr(0, colon));
    if (colon == std::string_view::npos || name.empty()) {
      line.refuse(fmt::format("prefix is \"{}\", must be NAME:TOKENS", text));
    }
    const std::string number = fmt::format("tokens={}", text.substr(colon + 1));
    trace_line tokens(number, found_.file, line.number());
    return {number_of(name), tokens.whole("tokens", 1, request.prompt)};
  }

  std::size_t number_of(const std::string& prefix) {
    const auto [known, is_new] = numbers_.emplace(prefix, found_.prefixes.size());
    if (is_new) found_.prefixes.push_back(prefix);
    return known->second;
  }

  void read_generate(trace_line& line) {
    stated_.requests = line.whole("requests", 1, most_requests);
    stated_.seed = static_cast<std::uint64_t>(line.whole("seed", 0, std::int64_t{1} << 53));
    line.end(1);
  }

  void read_arrivals(trace_line& line) {
    using form = arrival_process::form;
    constexpr std::array<std::pair<std::string_view, form>, 3> forms{
        {{"poisson", form::poisson}, {"uniform", form::uniform}, {"at_once", form::at_once}}};
    stated_.arrivals.kind = named(line, line.word(1, "the process"), forms);
    if (stated_.arrivals.kind != form::at_once)
      stated_.arrivals.rate = line.real("rate", 1e-6, 1e6);
    line.end(2);
  }

  void read_prompt(trace_line& line) { stated_.prompt = lengths(line); }
  void read_output(trace_line& line) { stated_.output = lengths(line); }

  static length_distribution lengths(trace_line& line) {
    using form = length_distribution::form;
    constexpr std::array<std::pair<std::string_view, form>, 4> forms{
        {{"constant", form::constant},
         {"uniform", form::uniform},
         {"lognormal", form::lognormal},
         {"zipf", form::zipf}}};
    length_distribution read{.kind = named(line, line.word(1, "the distribution"), forms)};
    if (read.kind == form::constant) {
      read.min = read.max = line.whole("value", 1, most_tokens);
      read.center = static_cast<double>(read.min);
    } else {
      read.min = line.whole("min", 1, most_tokens);
      read.max = line.whole("max", read.min, most_tokens);
    }
    if (read.kind == form::lognormal) {
      read.center = line.real("median", 1, static_cast<double>(most_tokens));
      read.spread = line.real("sigma", 0, 10);
    }
    if (read.kind == form::zipf) read.spread = line.real("exponent", 0, 10);
    line.end(2);
    return read;
  }

  void read_prefix(trace_line& line) {
    const std::string name(line.word(1, "the name"));
    prefix_group group{.first = found_.prefixes.size(),
                       .count = line.whole_or("count", 1, 1, most_sequences),
                       .length = line.whole("length", 1, most_tokens),
                       .share = line.real("share", 0, 1)};
    line.end(2);
    for (std::int64_t n = 0; n < group.count; ++n) {
      const std::string text = group.count == 1 ? name : fmt::format("{}.{}", name, n + 1);
      if (numbers_.contains(text)) line.refuse(fmt::format("{} is the name of 2 prefixes", text));
      number_of(text);
    }
    stated_.prefixes.push_back(group);
    shares_ += group.share;
    if (shares_ > 1 + 1e-9) {
      line.refuse(fmt::format("share: the prefixes have {:g} of the requests together, 1 at most",
                              shares_));
    }
  }

  /// What the pool can never hold is refused before anything runs.
  void check_sizes() const {
    for (std::size_t n = 0; n < found_.requests.size(); ++n) {
      const request& request = found_.requests[n];
      const std::int64_t needed = found_.limits.pages_of(request.most_keys());
      if (needed <= found_.limits.pages) continue;
      refuse(fmt::format(
          "request {}: {} prompt and {} output tokens need {} pages of {}, the pool has "
          "{}",
          n + 1, request.prompt, request.output, needed, found_.limits.page_size,
          found_.limits.pages));
    }
  }

  trace found_;
  request_statement stated_;
  std::map<std::string, std::size_t> lines_;    ///< number of the line, by its first word
  std::map<std::string, std::size_t> numbers_;  ///< of prefixes, by name
  double shares_ = 0;                           ///< of all prefixes
};

}  // namespace

trace parse_trace(std::string_view text, const std::string& file) {
  trace_reader reader(file);
  for (std::size_t number = 1; !text.empty(); ++number) {
    trace_line line(text.substr(0, text.find('\n')), file, number);
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    if (!line.empty()) reader.read(line);
  }
  return std::move(reader).finished();
}

}  // namespace tessera::replay
