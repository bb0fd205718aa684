#include "output.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include "../table.hpp"
#include "bench/support/timing.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

/// Steps of one kind together.
struct step_sums {
  std::int64_t tokens = 0;
  double seconds = 0, bytes = 0, flops = 0;
  std::vector<double> times;  ///< ascending once they are all there

  void add(const step_record& step) {
    tokens += step.tokens;
    seconds += step.seconds;
    bytes += step.bytes;
    flops += step.flops;
    times.push_back(step.seconds);
  }
  /// The time that `share` of the steps do not exceed.
  double quantile(double share) const {
    if (times.empty()) return 0;
    const auto last = static_cast<double>(times.size() - 1);
    return times[static_cast<std::size_t>(std::ceil(share * last))];
  }
  double rate(double amount) const { return seconds > 0 ? amount / seconds : 0; }
};

/// All steps; those in which every sequence decodes; the others, which have chunks of prompts.
struct step_kinds {
  explicit step_kinds(const std::vector<step_record>& steps) {
    for (const step_record& step : steps) {
      all.add(step);
      (step.generating == step.sequences ? decode : prefill).add(step);
    }
    for (step_sums* sums : {&all, &decode, &prefill}) std::ranges::sort(sums->times);
  }
  step_sums all, decode, prefill;
};

double mean_of_pages(const std::vector<step_record>& steps) {
  double sum = 0;
  for (const step_record& step : steps) sum += static_cast<double>(step.pages_used);
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size());
}

std::int64_t most_pages(const std::vector<step_record>& steps) {
  std::int64_t most = 0;
  for (const step_record& step : steps) most = std::max(most, step.pages_used);
  return most;
}

std::int64_t steps_with_groups(const std::vector<step_record>& steps) {
  return std::ranges::count_if(steps, [](const step_record& step) { return step.joined > 0; });
}

void print_steps(const replay_session& done) {
  const step_kinds kinds(done.steps());
  const double ceiling = done.place().read_gbytes();
  table out({{"steps"},
             {"count", side::right},
             {"tokens", side::right},
             {"tokens/s", side::right},
             {"GFLOP/s", side::right},
             {"GB/s", side::right},
             {"of read", side::right},
             {"ms p50", side::right},
             {"ms p99", side::right}});
  const auto add = [&](std::string name, const step_sums& sums) {
    if (sums.times.empty()) return;
    const double gbytes = sums.rate(sums.bytes) * 1e-9;
    out.add({std::move(name), std::to_string(sums.times.size()), std::to_string(sums.tokens),
             fmt::format("{:.0f}", sums.rate(static_cast<double>(sums.tokens))),
             fmt::format("{:.1f}", sums.rate(sums.flops) * 1e-9), fmt::format("{:.1f}", gbytes),
             fmt::format("{:.0f}%", gbytes / ceiling * 100),
             fmt::format("{:.3f}", sums.quantile(0.5) * 1e3),
             fmt::format("{:.3f}", sums.quantile(0.99) * 1e3)});
  };
  add("decode only", kinds.decode);
  add("with prefill", kinds.prefill);
  add("all", kinds.all);
  print(out.text(terminal_width()) + "\n");
}

void print_rows(const replay_session& done) {
  table out({{"layers"},
             {"served by"},
             {"tier"},
             {"steps", side::right},
             {"of time", side::right},
             {"GB/s", side::right},
             {"error", side::right},
             {"bound", side::right}});
  for (const replayed_layer& layer : done.layers()) {
    bool first = true;
    for (const row_use& row : layer.layer->rows()) {
      const auto once = [&](std::string text) { return first ? std::move(text) : std::string(); };
      const style look = layer.verdict.complaint.empty() ? style::plain : style::bad;
      out.add({{once(fmt::format("{} x {}", layer.kind.layers, layer.kind.name)), style::bold},
               row.row,
               std::string(name_of(row.tier)),
               std::to_string(row.steps),
               fmt::format("{:.0f}%", row.seconds / layer.seconds * 100),
               once(fmt::format("{:.1f}", layer.bytes / layer.seconds * 1e-9)),
               {once(fmt::format("{:.1e}", layer.verdict.worst.error)), look},
               once(fmt::format("{:.1e}", layer.verdict.worst.bound))});
      first = false;
    }
  }
  print(out.text(terminal_width()));
}

std::string pages_text(const replay_session& done) {
  const replay::schedule_totals& totals = done.totals();
  const std::int64_t pages = done.pool().pages();
  const auto share = [&](double used) {
    return fmt::format("{:.0f} ({:.0f}%)", used, used / static_cast<double>(pages) * 100);
  };
  double bytes = 0;
  for (const replayed_layer& layer : done.layers()) {
    bytes +=
        static_cast<double>(layer.layer->pool_bytes()) * static_cast<double>(layer.kind.layers);
  }
  return fmt::format(
      "Pages: {} of {} tokens, {:.1f} MiB in all layers; in use {} at most, {} on average.\n"
      "Prefixes: {} pages shared, which spared {} tokens; {} given up. In {} steps sequences were\n"
      "named that have the same first pages. Evictions: {}, after which {} tokens were computed\n"
      "again.\n",
      pages, done.served().limits.page_size, bytes / (1 << 20),
      share(static_cast<double>(most_pages(done.steps()))), share(mean_of_pages(done.steps())),
      totals.shared_pages, totals.shared_tokens, done.pool().given_up(),
      steps_with_groups(done.steps()), totals.evictions, totals.again);
}

std::string checks_text(const replay_session& done) {
  std::int64_t sequences = 0;
  std::string complaints;
  for (const replayed_layer& layer : done.layers()) {
    sequences += layer.verdict.sequences;
    if (layer.verdict.complaint.empty()) continue;
    complaints += fmt::format("\n{} layers: {}", layer.kind.name, layer.verdict.complaint);
  }
  if (done.checked_steps() == 0 && complaints.empty()) {
    return "Outputs are finite; no step was checked against the definition.\n";
  }
  return fmt::format(
      "Checked: {} of {} steps, {} sequence{}: keys in pages bit by bit, outputs against the\n"
      "definition in double precision, {}.{}\n",
      done.checked_steps(), done.steps().size(), sequences, sequences == 1 ? "" : "s",
      complaints.empty() ? styled(style::good, "all right") : styled(style::bad, "wrong"),
      complaints);
}

json::object json_of(const step_sums& sums, double ceiling) {
  const double gbytes = sums.rate(sums.bytes) * 1e-9;
  return {{"steps", sums.times.size()},
          {"tokens", sums.tokens},
          {"seconds", sums.seconds},
          {"tokens_per_second", sums.rate(static_cast<double>(sums.tokens))},
          {"gflops_per_second", sums.rate(sums.flops) * 1e-9},
          {"gigabytes_per_second", gbytes},
          {"percent_of_read", ceiling > 0 ? gbytes / ceiling * 100 : 0},
          {"milliseconds",
           {{"p50", sums.quantile(0.5) * 1e3},
            {"p99", sums.quantile(0.99) * 1e3},
            {"max", sums.quantile(1) * 1e3}}}};
}

json::object json_of(const replayed_layer& layer) {
  const auto text = [](std::string_view view) { return json::string(view); };
  json::array rows;
  for (const row_use& row : layer.layer->rows()) {
    rows.push_back(json::object{{"row", row.row},
                                {"tier", text(name_of(row.tier))},
                                {"reason", text(name_of(row.reason))},
                                {"steps", row.steps},
                                {"seconds", row.seconds}});
  }
  return {{"kind", layer.kind.name},
          {"layers", layer.kind.layers},
          {"operation", layer.layer->form().operation},
          {"pool_bytes", layer.layer->pool_bytes()},
          {"seconds", layer.seconds},
          {"flops", layer.flops},
          {"bytes", layer.bytes},
          {"rows", std::move(rows)},
          {"checked_sequences", layer.verdict.sequences},
          {"error", layer.verdict.worst.error},
          {"error_bound", layer.verdict.worst.bound},
          {"complaint", layer.verdict.complaint},
          {"passed", layer.verdict.complaint.empty()}};
}

/// A list for each number of a step, as long as there are steps.
json::object columns_of(const std::vector<step_record>& steps) {
  const auto column = [&](const auto& value) {
    json::array list;
    for (const step_record& step : steps) list.emplace_back(value(step));
    return list;
  };
  return {{"clock", column([](const step_record& step) { return step.clock; })},
          {"tokens", column([](const step_record& step) { return step.tokens; })},
          {"sequences", column([](const step_record& step) { return step.sequences; })},
          {"generating", column([](const step_record& step) { return step.generating; })},
          {"pages_used", column([](const step_record& step) { return step.pages_used; })},
          {"pages_kept", column([](const step_record& step) { return step.pages_kept; })},
          {"joined", column([](const step_record& step) { return step.joined; })},
          {"milliseconds", column([](const step_record& step) { return step.seconds * 1e3; })}};
}

json::object trace_of(const replay::trace& served) {
  return {{"file", served.file},
          {"statement", json::array(served.statement.begin(), served.statement.end())},
          {"requests", served.requests.size()},
          {"page_size", served.limits.page_size},
          {"pages", served.limits.pages},
          {"step_tokens", served.limits.tokens},
          {"sequences", served.limits.sequences}};
}

json::object totals_of(const replay_session& done) {
  const replay::schedule_totals& totals = done.totals();
  return {{"requests_finished", totals.finished},
          {"prompt_tokens", totals.prompt_tokens},
          {"decoded_tokens", totals.decoded},
          {"generated_tokens", totals.generated},
          {"tokens_computed_again", totals.again},
          {"evictions", totals.evictions},
          {"pages_shared", totals.shared_pages},
          {"tokens_shared", totals.shared_tokens},
          {"prefix_pages_given_up", done.pool().given_up()},
          {"pages_peak", most_pages(done.steps())},
          {"pages_mean", mean_of_pages(done.steps())}};
}

}  // namespace

void print_replay(const replay_session& done, const model_description& model) {
  const replay::schedule_totals& totals = done.totals();
  const double seconds = step_kinds(done.steps()).all.seconds;
  print(fmt::format(
      "{} ({}) served {}: {} of {} requests finished in {} steps, {} tokens prefilled,\n"
      "{} generated. On {}, {}.\n\n",
      styled(style::bold, model.name), name_of(model.type), done.served().file, totals.finished,
      done.served().requests.size(), done.steps().size(), totals.prompt_tokens, totals.generated,
      device_text(done.place().device()),
      workers_text(done.place().device(), done.place().workers())));
  print_steps(done);
  print_rows(done);
  std::int64_t layers = 0;
  for (const replayed_layer& layer : done.layers()) layers += layer.kind.layers;
  print(fmt::format(
      "\nTimes are those of attention in all {} layers: one of each kind is measured with cold "
      "caches\nand counts as often as the model has it. {:.0f} tokens generated a second. GB/s "
      "count "
      "keys and values\nthat some row sees, queries and outputs once; memory is read at {:.1f} "
      "GB/s "
      "at most, measured\nbetween the steps.\n",
      layers, seconds > 0 ? static_cast<double>(totals.generated) / seconds : 0,
      done.place().read_gbytes()));
  print(pages_text(done));
  print(checks_text(done));
}

json::object document_of(const replay_session& done, const model_description& model) {
  const double ceiling = done.place().read_gbytes();
  const step_kinds kinds(done.steps());
  json::array layers;
  for (const replayed_layer& layer : done.layers()) layers.push_back(json_of(layer));
  return {{"tessera", "replay"},
          {"device", device_text(done.place().device())},
          {"workers", done.place().workers()},
          {"model", {{"name", model.name}, {"dtype", json::string(name_of(model.type))}}},
          {"trace", trace_of(done.served())},
          {"totals", totals_of(done)},
          {"read_gigabytes_per_second", ceiling},
          {"steps",
           {{"all", json_of(kinds.all, ceiling)},
            {"decode_only", json_of(kinds.decode, ceiling)},
            {"with_prefill", json_of(kinds.prefill, ceiling)}}},
          {"layers", std::move(layers)},
          {"left_out", json::array(done.left_out().begin(), done.left_out().end())},
          {"checked_steps", done.checked_steps()},
          {"passed", done.passed()},
          {"columns", columns_of(done.steps())}};
}

}  // namespace tessera::tool
