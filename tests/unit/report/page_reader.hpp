// Reads a page into a tree. Takes well-formed markup only: every element closed in order, every
// attribute quoted and once, no character that should have been escaped.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::testing {

struct node {
  std::string name;  ///< empty: a text
  std::string text;
  std::map<std::string, std::string> attributes;
  std::vector<std::unique_ptr<node>> children;

  std::string attribute(const std::string& key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? std::string() : found->second;
  }

  /// All text inside, in order.
  std::string words() const {
    std::string all = text;
    for (const auto& child : children) all += child->words();
    return all;
  }

  void visit(const std::function<void(const node&)>& see) const {
    see(*this);
    for (const auto& child : children) child->visit(see);
  }

  std::vector<const node*> all(std::string_view element) const {
    std::vector<const node*> found;
    visit([&](const node& inner) {
      if (inner.name == element) found.push_back(&inner);
    });
    return found;
  }

  bool has_class(std::string_view wanted) const {
    const std::string list = " " + attribute("class") + " ";
    return list.find(" " + std::string(wanted) + " ") != std::string::npos;
  }

  const node* with_id(const std::string& id) const {
    const node* found = nullptr;
    visit([&](const node& inner) {
      if (inner.attribute("id") == id) found = &inner;
    });
    return found;
  }
};

class page_reader {
 public:
  explicit page_reader(std::string_view text) : text_(text) {}

  /// The root element; throws what is wrong and where.
  std::unique_ptr<node> read() {
    take("<!DOCTYPE html>");
    skip_space();
    std::unique_ptr<node> root = element();
    skip_space();
    if (at_ != text_.size()) fail("text after the root element");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at byte " + std::to_string(at_) + ": " +
                             std::string(text_.substr(at_, 60)));
  }
  bool at(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  void take(std::string_view word) {
    if (!at(word)) fail("expected " + std::string(word));
    at_ += word.size();
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  std::string name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-')) {
      ++at_;
    }
    if (begin == at_) fail("expected a name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Text up to one of `stops`, entities replaced.
  std::string plain(std::string_view stops) {
    std::string found;
    while (at_ < text_.size() && stops.find(text_[at_]) == std::string_view::npos) {
      const char letter = text_[at_];
      if (letter == '>' ||
          (static_cast<unsigned char>(letter) < 0x20 && letter != '\n' && letter != '\t')) {
        fail("a character that is not escaped");
      }
      if (letter != '&') {
        found += letter;
        ++at_;
        continue;
      }
      bool known = false;
      for (const auto& [entity, meaning] : {std::pair<std::string_view, char>{"&amp;", '&'},
                                            {"&lt;", '<'},
                                            {"&gt;", '>'},
                                            {"&quot;", '"'},
                                            {"&#39;", '\''}}) {
        if (!at(entity)) continue;
        found += meaning;
        at_ += entity.size();
        known = true;
        break;
      }
      if (!known) fail("an unknown entity");
    }
    return found;
  }

  void attributes_of(node& node) {
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
      const std::string key = name();
      take("=\"");
      if (!node.attributes.emplace(key, plain("\"<")).second) fail("attribute twice: " + key);
      take("\"");
    }
  }

  std::unique_ptr<node> element() {
    take("<");
    auto tag = std::make_unique<node>();
    tag->name = name();
    attributes_of(*tag);
    if (at("/>")) {
      at_ += 2;
      return tag;
    }
    take(">");
    if (tag->name == "style" || tag->name == "script") {
      const std::size_t end = text_.find("</", at_);
      if (end == std::string_view::npos) fail("not closed: " + tag->name);
      tag->text = text_.substr(at_, end - at_);
      at_ = end;
    }
    while (!at("</")) {
      if (at_ == text_.size()) fail("not closed: " + tag->name);
      if (text_[at_] == '<') {
        tag->children.push_back(element());
      } else {
        auto words = std::make_unique<node>();
        words->text = plain("<");
        tag->children.push_back(std::move(words));
      }
    }
    take("</" + tag->name + ">");
    return tag;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace tessera::testing
