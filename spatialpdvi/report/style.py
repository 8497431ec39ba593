"""The look of a report: light or dark as the reader's system is, and fit for paper."""

__all__ = ["CSS"]

CSS = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5c6675; --line: #dde2ea; --page: #ffffff; --card: #f6f8fb;
  --link: #2f62ab; --good: #1f7a43; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #a2acbb; --line: #343b47; --page: #14181f; --card: #1c222c; --link: #8db7f5;
    --good: #6fcf97; --bad: #ff9a92; }
  .chart img { filter: invert(1) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
body { margin: 0 auto; max-width: 74rem; padding: 2rem 1.5rem 4rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.35rem; margin: 2.6rem 0 .2rem; padding-top: 1.2rem; border-top: 2px solid var(--line);
  overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 1.9rem 0 .5rem; }
p { margin: .35rem 0 .6rem; max-width: 58rem; }
a { color: var(--link); }
.soft, figcaption, .legend { color: var(--soft); }
.state { font-weight: 600; }
.good { color: var(--good); }
.bad { color: var(--bad); }
nav { margin: .8rem 0; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .93rem; }
.maps { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1.2rem; }
.charts { display: flex; flex-wrap: wrap; gap: 1rem 2.2rem; align-items: flex-start; }
.charts > div { flex: 1 1 20rem; min-width: 0; }
figure { margin: 0; padding: .8rem .9rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  min-width: 0; }
figure.chart { flex: 0 1 auto; }
figcaption { font-weight: 600; color: var(--ink); margin-bottom: .5rem; }
img { max-width: 100%; height: auto; display: block; }
.maps img { max-height: 27rem; margin: 0 auto; object-fit: contain; }
.legend { list-style: none; padding: 0; margin: .6rem 0 0; display: flex; flex-wrap: wrap; gap: .1rem .9rem;
  font-size: .85rem; }
.legend li { overflow-wrap: anywhere; }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em;
  vertical-align: -.06em; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.scale { display: flex; align-items: center; gap: .6rem; font-size: .85rem; margin-top: .6rem; color: var(--soft); }
.bar { flex: 0 1 12rem; height: .7rem; border-radius: 3px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.wide { overflow-x: auto; margin: .4rem 0 .8rem; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { text-align: left; padding: .28rem 1.1rem .28rem 0; border-bottom: 1px solid var(--line);
  vertical-align: baseline; }
th { font-weight: 600; color: var(--soft); vertical-align: bottom; }
td { overflow-wrap: anywhere; min-width: 4.5rem; }
td:has(> a) { min-width: 10rem; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number { white-space: nowrap; }
.name { white-space: nowrap; }
.genes { line-height: 1.6; }
.genes b { font-weight: 600; font-style: italic; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem .9rem;
  margin: .4rem 0 .8rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .88rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
dl { columns: 19rem; column-gap: 2rem; font-size: .9rem; margin: .4rem 0; }
dl div { break-inside: avoid; padding: .1rem 0; }
dt { display: inline; color: var(--soft); }
dd { display: inline; margin: 0 0 0 .5em; overflow-wrap: anywhere; }
footer { margin-top: 3rem; padding-top: .8rem; border-top: 1px solid var(--line); font-size: .88rem;
  color: var(--soft); }
@media print {
  :root { --ink: #000; --soft: #444; --line: #ccc; --page: #fff; --card: #fff; --link: #000;
    --good: #000; --bad: #000; }
  .chart img { filter: none; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav, .back { display: none; }
  .sample { break-before: page; }
  figure, tr, pre { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .wide { overflow: visible; }
}
"""
