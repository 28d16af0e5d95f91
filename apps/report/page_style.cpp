#include "apps/report/page_style.hpp"

namespace troupe::report {

const std::string_view kPageStyle = R"(
:root {
  color-scheme: light dark;
  --back: #f6f7f9; --card: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --grid: #e8ebef;
  --train: #2563c9; --test: #c8501e;
  --compute: #2f6fdb; --update: #17926a; --exchange: #d9541e; --load: #8a56c8; --evaluate: #11a3b5; --copy: #bb9412; --idle: #99a3ad;
  --good: #1a7f4b; --busy: #2563c9; --warn: #9a6700; --bad: #c4262e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #101418; --card: #191f26; --ink: #e4e9ee; --soft: #9aa6b2; --line: #313a44; --grid: #262e37;
    --train: #78a9ff; --test: #ff9466;
    --compute: #6c9dff; --update: #43c495; --exchange: #ff8657; --load: #b794f2; --evaluate: #4fd0df; --copy: #e2c04f; --idle: #76818c;
    --good: #4cc38a; --busy: #78a9ff; --warn: #e2b341; --bad: #ff7b72;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 0; }
.lead { color: var(--soft); margin: 2px 0 18px; overflow-wrap: anywhere; }
.state { border: 1px solid var(--line); border-left: 5px solid var(--hue); background: var(--card); border-radius: 6px; padding: 10px 14px; margin: 0 0 18px; overflow-wrap: anywhere; }
.state b { color: var(--hue); }
.running { --hue: var(--busy); } .finished { --hue: var(--good); } .stopped { --hue: var(--warn); } .failed { --hue: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; margin: 0 0 18px; padding: 0; list-style: none; }
.cards li, figure, section { background: var(--card); border: 1px solid var(--line); border-radius: 6px; }
.cards li { padding: 10px 14px; }
.cards b { display: block; font-size: 1.3rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.cards span { color: var(--soft); font-size: 0.85rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 14px; }
figure, section { margin: 0 0 14px; padding: 14px 16px; min-width: 0; }
.figures figure { margin: 0; }
.figures { margin-bottom: 14px; }
svg { display: block; width: 100%; height: auto; }
svg.bar { height: 26px; margin: 4px 0 14px; border-radius: 4px; }
svg.key { display: inline-block; width: 28px; height: 12px; margin-right: 6px; vertical-align: baseline; }
svg.key.box { width: 11px; height: 11px; border-radius: 2px; }
svg text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg text.label { fill: var(--ink); }
.grid { stroke: var(--grid); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; }
.curve { fill: none; stroke: var(--own); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.dashed { stroke-dasharray: 6 4; }
.dot { fill: var(--own); }
.cross { fill: none; stroke: var(--bad); stroke-width: 2; }
.area { fill: var(--own); }
.bar .area { stroke: var(--card); stroke-width: 1.5; }
.train { --own: var(--train); } .test { --own: var(--test); }
.compute { --own: var(--compute); } .update { --own: var(--update); } .exchange { --own: var(--exchange); }
.load { --own: var(--load); } .evaluate { --own: var(--evaluate); } .copy { --own: var(--copy); } .idle { --own: var(--idle); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 4px 0 8px; padding: 0; list-style: none; color: var(--soft); font-size: 0.88rem; }
.legend b { color: var(--ink); font-weight: 600; font-variant-numeric: tabular-nums; }
.remark { color: var(--soft); font-size: 0.85rem; margin: 8px 0 0; }
.remark strong { color: var(--bad); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th { text-align: left; font-weight: 600; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
thead th { color: var(--soft); font-weight: 500; }
.numbers td:nth-child(n+3), .numbers th:nth-child(n+3) { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.numbers td:nth-child(2) { color: var(--soft); }
.numbers tbody th { white-space: nowrap; }
.total td, .total th { border-bottom: 0; }
.facts th { width: 9rem; color: var(--soft); font-weight: 500; }
.facts td, .settings td { overflow-wrap: anywhere; }
.settings th, .settings td:nth-child(2) { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 0.85rem; font-weight: 400; }
.settings th { white-space: nowrap; }
.settings td:nth-child(3) { color: var(--soft); }
.settings .own th, .settings .own td:nth-child(2) { font-weight: 700; }
pre { margin: 8px 0 0; overflow-x: auto; font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
section > table, section > ul, section > .scroll { margin-top: 8px; }
section ul.notes { padding-left: 1.2rem; overflow-wrap: anywhere; margin-bottom: 0; }
footer { color: var(--soft); font-size: 0.85rem; margin-top: 18px; }
)";

}  // namespace troupe::report
