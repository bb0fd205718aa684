// Every refusal of every operation, derived from its declaration: one thing of a legal call changed
// at a time. The sentences are reviewed text, tests/golden/refusals/<op>.txt. For a new operation
// write its file with a line "# <op> <problem text>" per layout; TESSERA_WRITE_REFUSALS=1 writes
// the rest, and writes it anew.
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/family.hpp>

#include "tests/support/call_mutations.hpp"

namespace tessera::support {
namespace {

std::string section_text(const operation& op, const std::string& fields) {
  const std::unique_ptr<call_data> legal = legal_call(op, fields);
  EXPECT_TRUE(legal->refusal()) << fields << ": " << legal->refusal().message();
  std::string text = "# " + std::string(op.name) + " " + fields + "\n";
  for (const call_mutation& mutation : mutations_of(*legal)) {
    owned_problem changed = legal->owned();
    mutation.apply(changed);
    const status done = checked(changed);
    legal->reset();
    const std::string sentence = done ? "accepted" : done.message();
    EXPECT_TRUE(done || sentence.find(": ") != std::string::npos)
        << mutation.what << ": " << sentence;
    text += mutation.what + " -> " + sentence + "\n";
  }
  return text;
}

TEST(Refusals, OfEveryOperationAreTheReviewedText) {
  for (const family* kind : families()) {
    for (const operation& op : kind->operations) {
      const std::vector<refusal_section> sections = refusals_of(op.name);
      const std::string path = refusals_path(op.name);
      ASSERT_FALSE(sections.empty()) << path << " has no line '# " << op.name << " <problem>'";
      std::string text, reviewed;
      for (const refusal_section& section : sections) {
        text += section_text(op, section.fields);
        reviewed += "# " + std::string(op.name) + " " + section.fields + "\n";
        for (const std::string& line : section.lines) reviewed += line + "\n";
      }
      if (std::getenv("TESSERA_WRITE_REFUSALS") != nullptr) std::ofstream(path) << text;
      EXPECT_EQ(reviewed, text) << path;
    }
  }
}

}  // namespace
}  // namespace tessera::support
