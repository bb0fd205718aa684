// What `tessera model` shows: its problems, whole layers and models made of them, as tables and as
// JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "model_measure.hpp"

namespace tessera::tool {

/// A layer in a phase: the sums over what it asks, or a head, or a model, which is the sum of its
/// layers and the head. Milliseconds; none if a problem of it was not measured.
struct layer_sum {
  std::string model;
  std::string layer;  ///< "28 x full, gated 3072", "head", "model"
  std::int64_t layers = 1;
  model_phase phase = model_phase::prefill;
  std::optional<double> mixer = 0.0;
  std::optional<double> products = 0.0;

  std::optional<double> sum() const;
};

/// The whole layers of a model in each phase, then the head and the model. `measured` are all of
/// its problems.
std::vector<layer_sum> layer_sums(const model_description& model,
                                  const std::vector<measured_layer>& measured);

void print_models(const std::vector<model_description>& models);
void print_layers(const std::vector<measured_layer>& layers);
void print_sums(const std::vector<layer_sum>& sums);
void print_legend(const limits_of_device& limits, const std::vector<measured_layer>& layers);

boost::json::object json_of(const measured_layer& layer);
boost::json::object json_of(const layer_sum& sum);
boost::json::object json_of(const limits_of_device& limits);

}  // namespace tessera::tool
