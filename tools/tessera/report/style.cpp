#include "style.hpp"

#include <fmt/format.h>

#include "chart.hpp"

namespace tessera::tool::report {
namespace {

constexpr std::string_view rules = R"css(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth;scroll-padding-top:1rem}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif}
.wrap{max-width:1180px;margin:0 auto;padding:0 24px 64px}
code,.case-name{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.84em;overflow-wrap:anywhere;unicode-bidi:isolate}
a{color:var(--link)}
a:focus-visible,button:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-999px}
.skip:focus{left:12px;top:12px;background:var(--panel);padding:8px 12px;z-index:3}
header{padding:44px 0 8px}
.head{display:flex;gap:16px;align-items:flex-start;justify-content:space-between}
h1{font-size:clamp(1.7rem,4.6vw,2.6rem);line-height:1.12;letter-spacing:-.022em;margin:0;overflow-wrap:anywhere}
.lead{font-size:1.08rem;color:var(--soft);max-width:46em;margin:.7rem 0 0}
.lead b{color:var(--ink);font-weight:600}
button{font:inherit;font-size:.86rem;color:var(--ink);background:var(--panel);border:1px solid var(--strong-line);border-radius:999px;padding:5px 14px;cursor:pointer;white-space:nowrap}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;padding:0;margin:22px 0 0;font-size:.94rem}
nav a{text-decoration:none;display:inline-block;padding:3px 0}
nav a:hover{text-decoration:underline}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:28px 0 0;padding:0}
.tiles>div{background:var(--panel);border:1px solid var(--line);border-radius:12px;padding:13px 16px 12px}
.tiles dt{font-size:.82rem;color:var(--soft)}
.tiles dd{margin:2px 0 0;font-size:1.5rem;font-weight:640;letter-spacing:-.015em;line-height:1.2;font-variant-numeric:tabular-nums}
.tiles small{display:block;font-size:.8rem;font-weight:400;letter-spacing:0;color:var(--soft);line-height:1.35;margin-top:3px}
section{margin-top:64px}
h2{font-size:1.55rem;letter-spacing:-.015em;line-height:1.2;margin:0 0 10px}
h3{font-size:1.05rem;margin:34px 0 8px}
h3 code{font-size:.92em}
p{margin:.5em 0 1em;max-width:52em}
.nothing,.note{color:var(--soft);background:var(--panel);border:1px dashed var(--strong-line);border-radius:12px;padding:12px 16px;max-width:none}
.note{border-style:solid;border-color:var(--line);border-left:4px solid var(--c2);color:var(--ink)}
figure{margin:14px 0 20px;padding:16px 18px 14px;background:var(--panel);border:1px solid var(--line);border-radius:14px}
figcaption{color:var(--soft);font-size:.88rem;margin-top:8px;max-width:62em}
.chart{display:block;width:100%;height:auto;overflow:visible}
.chart.narrow{display:none}
.chart text{fill:var(--soft);font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;font-variant-numeric:tabular-nums}
.chart .axis-title,.chart .roof-name{fill:var(--ink)}
.chart .roof-name,.chart .mark-name{paint-order:stroke;stroke:var(--panel);stroke-width:3px;stroke-linejoin:round}
.chart .roof-name{font-size:12.5px}
.chart .mark-name{font-size:11px;fill:var(--ink)}
.grid{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--strong-line);stroke-width:1}
.roof{stroke:var(--ink);stroke-width:2}
.roof.memory{stroke-dasharray:7 4}
.roof.minor{stroke:var(--strong-line);stroke-width:1.2}
.under{fill:var(--under)}
.steps{fill:none;stroke:currentColor;stroke-width:2}
.stem{stroke:currentColor;stroke-width:1.4;opacity:.65}
.mark{fill:currentColor;stroke:var(--panel);stroke-width:1.2}
.hollow .mark{fill:var(--panel);stroke:currentColor;stroke-width:1.6}
.reach{fill:transparent}
.point{cursor:pointer}
.point:hover .mark,.point:focus .mark,.point.lit .mark{stroke:var(--ink);stroke-width:2.2}
.point:focus{outline:none}
.point:focus-visible .reach{stroke:var(--link);stroke-width:2}
.kept{color:var(--strong-line)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:0 0 10px;padding:0;font-size:.9rem}
.legend li{display:flex;align-items:center;gap:7px;overflow-wrap:anywhere}
.legend code{color:var(--soft)}
.key{width:15px;height:15px;flex:none}
.swatch{width:16px;height:16px;border-radius:4px;border:1px solid var(--strong-line);flex:none}
.scroll{overflow-x:auto;margin:12px 0 20px;border:1px solid var(--line);border-radius:14px;background:var(--panel)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
caption{text-align:left;padding:12px 16px 4px;color:var(--soft);font-size:.88rem}
th,td{padding:8px 12px;text-align:left;vertical-align:top;border-top:1px solid var(--line)}
thead th{border-top:0;border-bottom:1px solid var(--strong-line);font-weight:600;font-size:.84rem;white-space:nowrap;vertical-align:bottom}
th:first-child,td:first-child{padding-left:16px}
th:last-child,td:last-child{padding-right:16px}
tbody th{font-weight:500;color:var(--soft)}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td small,td .line small{color:var(--soft);font-size:.84em}
td>small{display:block}
td>small:first-child{display:inline}
.line{display:block}
.case{min-width:17em}
.case-name,.row-name{display:block}
.row-name{color:var(--soft)}
td:not(.n):has(>code){min-width:13em}
.share{min-width:7.5em}
.bar{display:block;height:6px;border-radius:3px;background:var(--track);overflow:hidden;margin:4px 0 2px}
.bar span{display:block;height:100%;border-radius:3px;background:var(--c1)}
.bar .good{background:var(--c3)}
.bar .bad{background:var(--bad)}
.bar .cost{background:var(--c5)}
.failed{color:var(--bad);display:block}
.badge{display:inline-block;font-size:.76rem;border:1px solid var(--strong-line);border-radius:999px;padding:0 8px;margin-left:6px;color:var(--soft);white-space:nowrap}
thead button{border:0;background:none;padding:0;margin:0;font-weight:600;font-size:inherit;border-radius:3px}
thead button::after{content:"\2195\FE0E";opacity:.45;margin-left:4px}
[aria-sort=ascending] button::after{content:"\2191";opacity:1}
[aria-sort=descending] button::after{content:"\2193";opacity:1}
tr:target>*{background:var(--f1)}
@media (min-width:761px){.tall{max-height:82vh;overflow:auto}.tall thead th{position:sticky;top:0;background:var(--panel);box-shadow:inset 0 -1px var(--strong-line)}}
.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(520px,100%),1fr));gap:16px}
.maps figure{margin:0;min-width:0}
.maps .whole{grid-column:1/-1}
.met{color:var(--good)}
.map .scroll{border:0;margin:0 0 12px;border-radius:0}
.heat{width:auto;min-width:min(100%,440px);border-collapse:separate;border-spacing:3px}
.heat caption{padding-left:3px;color:var(--ink)}
.heat th,.heat td{border:0;padding:6px 8px;text-align:center;vertical-align:middle}
.heat th{font-weight:500;color:var(--soft);font-variant-numeric:tabular-nums}
.heat tbody th{text-align:right}
.heat .corner{font-size:.8rem;white-space:nowrap}
.tile{border-radius:7px;min-width:64px;font-variant-numeric:tabular-nums}
.tile b{display:block;font-weight:600;font-size:.84rem;line-height:1.25}
.heat .tile small{display:block;color:var(--ink);font-size:.78rem}
.gap{background:repeating-linear-gradient(135deg,var(--track) 0 4px,transparent 4px 9px);border-radius:7px}
details{margin:14px 0}
summary{cursor:pointer;padding:6px 0;font-size:.95rem}
td details{margin:4px 0 0}
td summary{padding:0;color:var(--soft);font-size:.86em}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:0 28px;margin:6px 0 18px}
.facts>div{border-top:1px solid var(--line);padding:6px 0;overflow-wrap:anywhere}
.facts dt{font-size:.8rem;color:var(--soft)}
.facts dd{margin:0;font-size:.9rem;font-variant-numeric:tabular-nums}
.inline{display:flex;flex-wrap:wrap;gap:4px 26px}
.inline>div{display:flex;gap:7px;border:0;padding:0;align-items:baseline}
.commands code{display:block}
.commands small{color:var(--soft)}
.commands li{margin:6px 0}
#tip{position:absolute;z-index:2;max-width:min(420px,calc(100vw - 24px));background:var(--ink);color:var(--page);border-radius:8px;padding:8px 12px;font-size:.84rem;line-height:1.4;pointer-events:none;overflow-wrap:anywhere}
footer{margin-top:64px;border-top:1px solid var(--line);padding-top:14px;color:var(--soft);font-size:.86rem}
@media (max-width:760px){
.wrap{padding:0 14px 48px}
header{padding-top:26px}
section{margin-top:48px}
figure{padding:12px 10px;border-radius:12px}
.chart.wide{display:none}
.chart.narrow{display:block}
.chart text{font-size:12px}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}
.tiles>div{padding:10px 12px}
.tiles dd{font-size:1.2rem}
.list,.list tbody,.list tr,.list td,.list th{display:block}
.list thead{position:absolute;left:-9999px}
.list caption{display:block}
.list tbody tr{border-top:1px solid var(--line);padding:10px 14px 12px;display:grid;grid-template-columns:1fr 1fr;gap:2px 22px;align-items:start}
.list td,.list tbody th{border:0;padding:1px 0;text-align:right;white-space:normal;min-width:0;overflow-wrap:anywhere}
.list td::before,.list tbody th::before{content:attr(data-name);color:var(--soft);float:left;margin-right:10px}
.list td:not(.n),.list td:first-child,.list tbody th{grid-column:1/-1;text-align:left}
.list data{white-space:nowrap}
.list td.case::before,.list td:first-child::before{content:none}
.list tbody th::before{float:none;margin-right:5px}
.list td.case{padding-bottom:4px}
.list td>small{clear:both}
.list .share .bar{clear:both}
.heat{font-size:.82rem;border-spacing:2px}
.heat th,.heat td{padding:6px}
.tile{min-width:56px}
}
@media print{
button,nav,.skip{display:none}
section{margin-top:28px}
.tall{max-height:none}
figure,tr{break-inside:avoid}
}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
)css";

constexpr std::string_view behaviour = R"js(
(function () {
  'use strict';
  var root = document.documentElement;
  var dark = window.matchMedia('(prefers-color-scheme: dark)');
  var button = document.getElementById('theme');
  function shown() { return root.getAttribute('data-theme') || (dark.matches ? 'dark' : 'light'); }
  function label() { button.textContent = shown() === 'dark' ? 'Light theme' : 'Dark theme'; }
  button.hidden = false;
  button.addEventListener('click', function () {
    root.setAttribute('data-theme', shown() === 'dark' ? 'light' : 'dark');
    label();
  });
  dark.addEventListener('change', label);
  label();

  function valueOf(row, column) {
    var cell = row.children[column];
    var data = cell.querySelector('data');
    if (data) return parseFloat(data.getAttribute('value'));
    var text = cell.textContent.trim();
    return text !== '' && isFinite(text) ? parseFloat(text) : text;
  }
  function before(a, b) {
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === 'number' ? -1 : 1;
  }
  document.querySelectorAll('table.list').forEach(function (table) {
    var heads = table.querySelectorAll('thead th');
    var body = table.tBodies[0];
    if (body.rows.length < 2) return;
    heads.forEach(function (head, column) {
      var sort = document.createElement('button');
      sort.type = 'button';
      sort.textContent = head.textContent;
      head.textContent = '';
      head.appendChild(sort);
      sort.addEventListener('click', function () {
        var up = head.getAttribute('aria-sort') !== 'ascending';
        heads.forEach(function (other) { other.removeAttribute('aria-sort'); });
        head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        Array.from(body.rows).map(function (row) {
          return { row: row, value: valueOf(row, column) };
        }).sort(function (a, b) {
          return before(a.value, b.value) * (up ? 1 : -1);
        }).forEach(function (entry) { body.appendChild(entry.row); });
      });
    });
  });

  var tip = document.createElement('div');
  tip.id = 'tip';
  tip.hidden = true;
  document.body.appendChild(tip);
  function hide() { tip.hidden = true; }
  document.querySelectorAll('a.point').forEach(function (point) {
    var title = point.querySelector('title');
    var words = title.textContent;
    point.setAttribute('aria-label', words);
    title.remove();
    function show() {
      var at = point.querySelector('.reach').getBoundingClientRect();
      tip.textContent = words;
      tip.hidden = false;
      var left = at.left + at.width / 2 - tip.offsetWidth / 2;
      left = Math.max(12, Math.min(left, root.clientWidth - tip.offsetWidth - 12));
      var above = at.top - tip.offsetHeight - 6;
      tip.style.left = left + window.scrollX + 'px';
      tip.style.top = (above > 0 ? above : at.bottom + 6) + window.scrollY + 'px';
    }
    point.addEventListener('pointerenter', show);
    point.addEventListener('pointerleave', hide);
    point.addEventListener('focus', show);
    point.addEventListener('blur', hide);
  });
  document.addEventListener('keydown', function (event) { if (event.key === 'Escape') hide(); });
})();
)js";

std::string variables(std::string_view selector, std::string_view scheme,
                      std::string_view colour::*theme) {
  std::string text = fmt::format("{}{{color-scheme:{}", selector, scheme);
  for (const colour& colour : colours) text += fmt::format(";--{}:{}", colour.name, colour.*theme);
  return text + "}\n";
}

}  // namespace

std::string style_sheet() {
  std::string text = variables(":root", "light", &colour::light);
  text += "@media (prefers-color-scheme:dark){" +
          variables(":root:not([data-theme=light])", "dark", &colour::dark) + "}\n";
  text += variables(":root[data-theme=dark]", "dark", &colour::dark);
  for (std::size_t at = 1; at <= palette_size; ++at) {
    text += fmt::format(".c{0}{{color:var(--c{0})}}.f{0}{{background:var(--f{0})}}", at);
  }
  text += ".f0{background:var(--f0)}";
  return text.append(rules);
}

std::string_view script() {
  return behaviour;
}

}  // namespace tessera::tool::report
