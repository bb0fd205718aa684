#include "session.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "../failure.hpp"

namespace tessera::tool {
namespace {

/// Parts of a replay that progress is shown of.
constexpr std::int64_t shown_parts = 10;

std::int64_t longest_table(const replay::trace& served) {
  std::int64_t pages = 1;
  for (const replay::request& request : served.requests) {
    pages = std::max(pages, served.limits.pages_of(request.most_keys()));
  }
  return pages;
}

std::int64_t joined_sequences(const replay::step& step) {
  std::size_t joined = 0, begin = 0;
  for (const replay::page_group& group : step.groups) {
    if (group.pages > 0) joined += group.end - begin;
    begin = group.end;
  }
  return static_cast<std::int64_t>(joined);
}

}  // namespace

replay_session::replay_session(const model_description& model, const pool_wishes& pool,
                               const replay::trace& served, const execution_flags& flags)
    : served_(served),
      scheduler_(served),
      place_(flags),
      lists_(served.limits, longest_table(served), place_) {
  if (!model.causal) {
    throw failure(
        fmt::format("{}: is an encoder, which generates nothing: a replay needs a model "
                    "that does",
                    model.file));
  }
  for (const layer_kind& kind : model.kinds) add_layer(model, kind, pool, flags);
  if (!layers_.empty()) return;
  std::string reasons;
  for (const std::string& text : left_out_) reasons += "; " + text;
  throw failure(fmt::format("{}: 0 of {} kinds of layers can be replayed{}", model.file,
                            model.kinds.size(), reasons));
}

void replay_session::add_layer(const model_description& model, const layer_kind& kind,
                               const pool_wishes& pool, const execution_flags& flags) {
  const std::string layers = fmt::format("{} layers of kind {}", kind.layers, kind.name);
  std::optional<paged_form> form =
      paged_form_of(kind, model.type, served_.limits.page_size, pool.token_scales);
  if (!form) {
    left_out_.push_back(fmt::format("{} are left out: {} has no keys in pages of {}", layers,
                                    text_of(kind.mixer), served_.limits.page_size));
    return;
  }
  const auto* const latents = std::get_if<latent_layer>(&kind.mixer);
  if (latents != nullptr && pool.type != dtype::none) {
    left_out_.push_back(
        fmt::format("{} are left out: pools of latents have the type of the model, "
                    "not {}",
                    layers, name_of(pool.type)));
    return;
  }
  const dtype held = pool.type != dtype::none ? pool.type : model.type;
  auto layer =
      std::make_unique<paged_layer>(*std::move(form), model.type, held, served_, place_, flags,
                                    fmt::format("{}, {} layers", model.name, kind.name));
  if (const status planned = layer->plan_step(lists_); planned.code() == status_code::no_row) {
    left_out_.push_back(fmt::format("{} are left out: {}", layers, planned.message()));
    return;
  }
  if (latents != nullptr && latents->index_heads > 0) {
    left_out_.push_back(fmt::format("the indexer of {} is left out: they read all keys, not {}",
                                    layers, latents->index_topk));
  }
  layers_.push_back({.kind = kind, .layer = std::move(layer)});
}

void replay_session::run(const replay_wishes& wishes, progress& shown) {
  const auto requests = static_cast<std::int64_t>(served_.requests.size());
  std::int64_t part = 0;
  while (wishes.max_steps == 0 || static_cast<std::int64_t>(steps_.size()) < wishes.max_steps) {
    const std::optional<replay::step> step = scheduler_.next();
    if (!step) break;
    const auto number = static_cast<std::int64_t>(steps_.size());
    for (; part < shown_parts && scheduler_.totals().finished * shown_parts >= part * requests;
         ++part) {
      shown.step(fmt::format("step {}, {} of {} requests are finished", number,
                             scheduler_.totals().finished, requests));
    }
    step_record record{.clock = step->clock,
                       .tokens = step->tokens,
                       .generating = step->generating,
                       .sequences = static_cast<std::int64_t>(step->ranges.size()),
                       .pages_used = step->pages_used,
                       .pages_kept = step->pages_kept,
                       .joined = joined_sequences(*step)};
    lists_.load(*step);
    const bool is_checked = wishes.check_every > 0 && number % wishes.check_every == 0;
    for (replayed_layer& layer : layers_) run_layer(layer, *step, is_checked, record);
    checked_steps_ += is_checked ? 1 : 0;
    steps_.push_back(record);
    scheduler_.complete(*step);
  }
}

void replay_session::run_layer(replayed_layer& layer, const replay::step& step, bool is_checked,
                               step_record& record) {
  layer.layer->load(step);
  place_.sweep();
  const layer_call_cost cost = layer.layer->run(lists_, step);
  const auto layers = static_cast<double>(layer.kind.layers);
  layer.seconds += cost.seconds;
  layer.bytes += cost.work.bytes;
  layer.flops += cost.work.flops;
  record.seconds += layers * cost.seconds;
  record.bytes += layers * cost.work.bytes;
  record.flops += layers * cost.work.flops;
  layer.layer->fetch(step, is_checked);
  const std::int64_t wild = layer.layer->wild_elements(step);
  if (wild > 0 && layer.verdict.complaint.empty()) {
    layer.verdict.complaint =
        fmt::format("step {}: {} of {} elements of out are no finite numbers", step.clock, wild,
                    step.tokens * layer.layer->form().out.elements());
  }
  if (is_checked) layer.verdict.add(checked(*layer.layer, lists_, step, served_));
}

bool replay_session::passed() const {
  return std::ranges::all_of(
      layers_, [](const replayed_layer& layer) { return layer.verdict.complaint.empty(); });
}

}  // namespace tessera::tool
