// Colours, layout and the few lines of script of the page.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tessera::tool::report {

/// A colour of the page in both themes.
struct colour {
  std::string_view name;
  std::string_view light;
  std::string_view dark;
};

/// Text colours have a contrast of at least 4.5 on every background they are used on, marks at
/// least 3; a test computes it from the page.
inline constexpr std::array colours{
    colour{"page", "#fbfbfa", "#12151a"},  colour{"panel", "#ffffff", "#191d24"},
    colour{"ink", "#16191d", "#e8ebf0"},   colour{"soft", "#525a66", "#a6afbd"},
    colour{"line", "#dcdfe4", "#303742"},  colour{"strong-line", "#868e9b", "#737e8e"},
    colour{"link", "#0a56a8", "#7db8ff"},  colour{"good", "#0b6b4f", "#58d3a7"},
    colour{"bad", "#b3261e", "#ff938a"},   colour{"track", "#eceef1", "#262c35"},
    colour{"under", "#eef3f9", "#182230"}, colour{"c1", "#0b62b8", "#6cb2ff"},
    colour{"c2", "#b3530a", "#ff9f55"},    colour{"c3", "#0a7a5a", "#4fd6a8"},
    colour{"c4", "#a3296f", "#ff8ccf"},    colour{"c5", "#6b4fc0", "#b7a2ff"},
    colour{"c6", "#7a6a00", "#e3cf52"},    colour{"c7", "#00768f", "#55cfe6"},
    colour{"c8", "#c02f2f", "#ff8f8f"},    colour{"f0", "#e7e9ec", "#2c323c"},
    colour{"f1", "#cfe2f8", "#1d3b60"},    colour{"f2", "#fbdcc2", "#5c3513"},
    colour{"f3", "#c6ecdd", "#154a39"},    colour{"f4", "#f6d0e5", "#5a2449"},
    colour{"f5", "#e0d7fa", "#3b2f6e"},    colour{"f6", "#efe7ad", "#4c4410"},
    colour{"f7", "#c5ecf4", "#134955"},    colour{"f8", "#f9d4d2", "#5e2626"},
};

/// The style sheet.
std::string style_sheet();

/// Theme button, sortable columns, and a tip beside what is pointed at. The page is complete
/// without it.
std::string_view script();

}  // namespace tessera::tool::report
