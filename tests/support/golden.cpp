#include "golden.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <tessera/spec/check.hpp>

#include "../reference/operations.hpp"
#include "file_answers.hpp"
#include "file_judge.hpp"
#include "test_name.hpp"

namespace tessera::support {

namespace {

std::string metadata_of(const safetensors_file& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? std::string() : found->second;
}

std::filesystem::path golden_folder() {
  const char* const elsewhere = std::getenv("TESSERA_GOLDEN_DIR");
  return elsewhere != nullptr ? elsewhere : TESSERA_GOLDEN_DIR;
}

bool has_gradients(const std::filesystem::path& path) {
  const result<safetensors_file> file = safetensors_file::open(path);
  return file && (file->tensor("in.d_out") != nullptr || file->tensor("in.d_loss") != nullptr);
}

/// What separates two evaluations in double: the order of sums, near 2^-53 times their length.
constexpr double order_of_sums = 0x1p-40;

}  // namespace

std::string golden_name::text() const {
  return test_name(path.stem().string()) + "_as_" + std::string(op->name);
}

std::vector<golden_name> golden_names() {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder())) {
    if (entry.path().extension() == ".safetensors") files.insert(entry.path());
  }
  std::vector<golden_name> names;
  for (const std::filesystem::path& path : files) {
    const std::string file = path.filename().string();
    const std::string op = file.substr(0, file.find('.'));
    for (const std::string& served : {op, op + "_backward"}) {
      const found_operation known = operation_named(served);
      if (known.op == nullptr || (served != op && !has_gradients(path))) continue;
      names.push_back({path, known.kind, known.op});
    }
  }
  return names;
}

golden_call::golden_call(const golden_name& name)
    : file_(safetensors_file::open(name.path).value()), problem_(*name.op) {
  read_options(metadata_of(file_, "options"));
  const signature& form = *name.op->form;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const tensor_view* const input = file_.tensor("in." + name_of(i));
    const bool taken = (name.op->taken >> i & 1u) != 0;
    if (!taken || input == nullptr || form.tensors[i].use == tensor_use::output) continue;
    problem_.tensors[i] = *input;
  }
  read_residuals();
  operands_ = reference::operand_type(*name.op, problem_.tensors);
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const bool taken = (name.op->taken >> i & 1u) != 0;
    if (!taken || !form.tensors[i].is_output() || expected(i) == nullptr) continue;
    make_output(i, *expected(i));
  }
  reset_outputs();
}

void golden_call::read_options(const std::string& json) {
  if (json.empty()) return;
  const auto options = problem_.op->form->options;
  const boost::json::value parsed = boost::json::parse(json);
  for (const auto& [name, value] : parsed.as_object()) {
    const auto remarks = problem_.op->form->remarks;
    if (std::ranges::find(remarks, std::string_view(name)) != remarks.end()) continue;
    const auto known = std::ranges::find(options, std::string_view(name), &option_form::name);
    const std::string word(value.is_string() ? std::string(value.as_string())
                                             : boost::json::serialize(value));
    if (known == options.end()) throw std::invalid_argument("no option " + std::string(name));
    if (!value.is_null() && !text::read_option(*known, word, problem_.options.data())) {
      throw std::invalid_argument("option " + std::string(name) + " is " + word);
    }
  }
}

/// What a gradient takes from the forward call: the truth, in the precision of a call.
void golden_call::read_residuals() {
  const signature& form = *problem_.op->form;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const bool taken = (problem_.op->taken >> i & 1u) != 0;
    const tensor_view* const answer = expected(i);
    if (!taken || form.tensors[i].is_output() || answer == nullptr) continue;
    tensor_view& view = problem_.tensors[i];
    if (view.present() || is_an_answer(i)) continue;
    const dtype type = type_of_answer(file_, form, problem_.tensors, i, operands_);
    const std::vector<double> values = reference::to_doubles(*answer);
    guarded_tensor& memory =
        residuals_.emplace(i, guarded_tensor(type, answer->rank, answer->extent)).first->second;
    memory.fill([&](std::int64_t flat) { return values[static_cast<std::size_t>(flat)]; });
    view = memory.view();
  }
}

void golden_call::make_output(std::size_t tensor, const tensor_view& reference) {
  tensor_view& view = problem_.tensors[tensor];
  const dtype type = view.present() ? view.type
                                    : type_of_answer(file_, *problem_.op->form, problem_.tensors,
                                                     tensor, operands_);
  outputs_.emplace(tensor, guarded_tensor(type, reference.rank, reference.extent));
  view = outputs_.at(tensor).view();
}

std::string golden_call::name_of(std::size_t tensor) const {
  return std::string(problem_.op->form->tensors[tensor].name_in_files());
}

/// Whether the call computes what files know by this input's name.
bool golden_call::is_an_answer(std::size_t input) const {
  const signature& form = *problem_.op->form;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    const bool taken = (problem_.op->taken >> i & 1u) != 0;
    if (taken && form.tensors[i].is_output() && name_of(i) == name_of(input)) return true;
  }
  return false;
}

const tensor_view* golden_call::expected(std::size_t tensor) const {
  return file_.tensor("ref." + name_of(tensor));
}

void golden_call::reset_outputs() {
  for (auto& [tensor, output] : outputs_) {
    output.reset();
    const tensor_view* const before = file_.tensor("in." + name_of(tensor));
    if (before == nullptr) continue;
    const std::vector<double> values = reference::to_doubles(*before);
    output.fill([&](std::int64_t flat) { return values[static_cast<std::size_t>(flat)]; });
  }
}

comparison golden_call::judge(std::size_t tensor, const std::vector<double>& ours) const {
  return judge_by_file(file_, name_of(tensor), ours, problem_.tensors[tensor].type, operands_).ours;
}

std::string golden_call::complaints() const {
  std::string text;
  for (const auto& [tensor, output] : outputs_) {
    const comparison found = judge(tensor, reference::to_doubles(output.view()));
    const std::string name = name_of(tensor);
    if (!found.passed) text += sentence_of(found, name, output.view().shape()) + "\n";
    if (!output.margins_intact()) text += name + ": bytes outside the tensor were written\n";
  }
  return text;
}

std::string golden_call::reference_complaints() const {
  bound_call call{
      .op = problem_.op, .tensors = problem_.tensors.data(), .options = problem_.options.data()};
  status failure;
  if (!checks::is_call(call, nullptr, failure)) return failure.message();
  std::string text;
  std::size_t judged_outputs = 0;
  for (const reference::expected_tensor& ours :
       reference::reference_of(problem_.op->name)->exact(call)) {
    if (!outputs_.contains(ours.tensor)) continue;
    ++judged_outputs;
    comparison found = judge(ours.tensor, ours.values);
    found = judged(found, 0.0, order_of_sums);
    if (!found.passed) {
      text +=
          sentence_of(found, name_of(ours.tensor), problem_.tensors[ours.tensor].shape()) + "\n";
    }
  }
  if (judged_outputs != outputs_.size()) text += "the reference lacks an output of the file\n";
  return text;
}

}  // namespace tessera::support
