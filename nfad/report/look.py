"""The page's style sheet and script. Plain strings in a module, so that no packaging step can forget them."""

STYLE = """
:root { color-scheme: light dark; --paper: #f5f5f2; --card: #fff; --ink: #1b1e22; --soft: #5b626b; --line: #e1e1db;
  --well: #eeeeea; --accent: #245a8d; --bad: #a5301d; --bad-wash: #fbe8e2; --good: #1c634d; --good-wash: #e2f1ea;
  --turn: #6b4b00; --turn-wash: #faefd2; --neutral: #8a929c; --rest: #d9d9d2; --heat: 1; }
@media (prefers-color-scheme: dark) { :root { --paper: #111316; --card: #191c20; --ink: #e9ebee; --soft: #a0a8b2;
  --line: #2c3138; --well: #23272d; --accent: #8bbdf0; --bad: #ff9e86; --bad-wash: #3d1f18; --good: #8ad8ba;
  --good-wash: #16322a; --turn: #ecc672; --turn-wash: #352a12; --neutral: #79828d; --rest: #3d444d; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", Arial, sans-serif; font-variant-numeric: tabular-nums; }
.wide { max-width: 1240px; margin: 0 auto; padding: 0 24px; }
h1, h2, h3, p, ul, dl, dd, figure { margin: 0; padding: 0; }
ul { list-style: none; }
h1 { font-size: clamp(26px, 3.4vw, 36px); font-weight: 650; letter-spacing: -.02em; line-height: 1.15;
  text-wrap: balance; overflow-wrap: anywhere; }
h2 { font-size: 22px; font-weight: 650; letter-spacing: -.012em; margin: 44px 0 4px; overflow-wrap: anywhere; }
small, .soft { color: var(--soft); }
small { font-size: 13px; }
.brand { font-size: 13px; color: var(--soft); margin: 44px 0 8px; }
.brand b { color: var(--ink); letter-spacing: .06em; margin-right: .5em; }

.counts { display: grid; grid-template-columns: repeat(4, auto) 1fr; gap: 12px 48px; margin: 30px 0 28px; }
.counts b { display: block; font-size: 40px; font-weight: 600; letter-spacing: -.03em; line-height: 1.1; }
.counts small { display: block; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)); gap: 14px 32px;
  border-top: 1px solid var(--line); padding: 18px 0; }
.facts dt { font-size: 13px; color: var(--soft); }
.facts dd { overflow-wrap: anywhere; }
details { border-top: 1px solid var(--line); padding: 12px 0; }
summary { cursor: pointer; color: var(--accent); width: fit-content; }
details p { max-width: 72ch; margin: 8px 0; }

.bar { display: none; position: sticky; top: 0; z-index: 2; gap: 10px; padding: 12px 0; margin-top: 20px;
  background: var(--paper); border-block: 1px solid var(--line); box-shadow: 0 0 0 100vmax var(--paper);
  clip-path: inset(0 -100vmax); }
.live .bar { display: grid; }
.bar > div { display: flex; flex-wrap: wrap; gap: 8px 24px; align-items: center; }
.choice { display: inline-flex; border: 1px solid var(--line); border-radius: 8px; background: var(--card);
  overflow: clip; }
.choice button { font: inherit; font-size: 14px; color: inherit; background: none; border: 0; min-height: 38px;
  padding: 0 13px; cursor: pointer; white-space: nowrap; }
.choice button + button { border-left: 1px solid var(--line); }
.choice button span { color: var(--soft); margin-left: .3em; }
.choice [aria-pressed=true] { background: var(--ink); color: var(--card); }
.choice [aria-pressed=true] span { color: inherit; opacity: .75; }
.bar label { display: inline-flex; align-items: center; gap: 8px; font-size: 14px; min-height: 38px; }
.bar select { font: inherit; font-size: 14px; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; min-height: 38px; padding: 0 8px; }
.bar input { width: 120px; height: 38px; accent-color: var(--accent); }
.scale { display: inline-flex; align-items: center; gap: 8px; font-size: 13px; color: var(--soft); }
.scale i { width: 110px; height: 10px; border-radius: 3px; }
.bar [role=status] { font-size: 13px; color: var(--soft); margin-left: auto; }
button:focus-visible, select:focus-visible, input:focus-visible, summary:focus-visible, .scroll:focus-visible {
  outline: 3px solid var(--accent); outline-offset: 2px; }
.choice button:focus-visible { outline-offset: -3px; }

main { padding-bottom: 64px; }
.items { display: grid; gap: 16px; margin: 20px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 20px 18px;
  min-width: 0; content-visibility: auto; contain-intrinsic-size: auto 390px; }
.card > header { display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: center; margin-bottom: 14px; }
.card h3 { font-size: 16px; font-weight: 600; overflow-wrap: anywhere; min-width: 0; }
.card .folder { font-size: 13px; color: var(--soft); overflow-wrap: anywhere; min-width: 0; }
.tag { font-size: 13px; color: var(--soft); background: var(--well); padding: 3px 10px; border-radius: 6px; }
.badge { font-size: 14px; font-weight: 600; padding: 3px 12px 3px 10px; border-radius: 99px; white-space: nowrap;
  color: var(--good); background: var(--good-wash); }
.anomalous .badge { color: var(--bad); background: var(--bad-wash); }
.failed .badge { color: var(--soft); background: var(--well); }
.turned { font-size: 13px; color: var(--turn); background: var(--turn-wash); padding: 3px 10px; border-radius: 6px;
  margin-left: auto; }
.body { display: grid; grid-template-columns: minmax(0, 1fr) 360px; gap: 28px; align-items: start; }
.panes { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 12px; }
.frame { position: relative; width: min(100%, calc(var(--tall, 340px) * var(--ratio))); aspect-ratio: var(--ratio);
  margin: 0 auto; background: var(--well) var(--photo) center / 100% 100%; border-radius: 4px; overflow: hidden;
  -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.frame img, .truth { position: absolute; inset: 0; width: 100%; height: 100%; }
.truth { background: var(--truth) center / 100% 100%; }
.heat { opacity: var(--heat); transition: opacity .15s; }
@media (hover: hover) { .frame:hover .heat { opacity: 0; } }
figcaption { font-size: 13px; color: var(--soft); text-align: center; margin-top: 7px; }
[data-map=without] .with, [data-map=with] .without { display: none; }
[data-map=without] .panes, [data-map=with] .panes { --tall: 480px; grid-template-columns: repeat(2, minmax(0, 1fr)); }
[data-show=anomalous] .card:not(.anomalous), [data-show=changed] .card:not(.changed),
[data-show=failed] .card:not(.failed) { display: none; }

.reading { display: grid; gap: 15px; }
.explain { text-wrap: pretty; }
.reading h4 { font-size: 13px; font-weight: 400; color: var(--soft); margin: 0 0 5px; }
.score { display: grid; grid-template-columns: 92px minmax(0, 1fr) 92px; gap: 4px 12px; align-items: center;
  font-size: 14px; }
.score > :nth-child(3n) { text-align: right; white-space: nowrap; }
.track { position: relative; height: 10px; border-radius: 3px; background: var(--well); }
.track i { position: absolute; inset: 0 auto 0 0; border-radius: 3px; background: var(--neutral); }
.track.over i { background: var(--bad); }
.track u { position: absolute; top: -4px; bottom: -4px; width: 2px; margin-left: -1px; background: var(--ink);
  box-shadow: 0 0 0 1.5px var(--card); }
.reading div > p { font-size: 14px; margin-top: 6px; }
.shares { display: flex; gap: 2px; height: 10px; border-radius: 3px; overflow: hidden; }
.key { display: flex; flex-wrap: wrap; gap: 0 16px; font-size: 13px; margin-top: 5px; }
.key i { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 6px; }
.photometric { background: #d0902f; }
.background { background: #5486bd; }
.sensor { background: #8f70b5; }
.geometric { background: #419c88; }
.other { background: #a3a3a3; }
.rest { background: var(--rest); }
.card.failed p { overflow-wrap: anywhere; max-width: 90ch; }

.scroll { overflow-x: auto; margin: 20px 0; background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 14px 20px; width: fit-content; max-width: 100%; }
table { border-collapse: collapse; }
caption { text-align: left; color: var(--soft); padding-bottom: 8px; }
th, td { text-align: left; padding: 8px 40px 8px 0; border-top: 1px solid var(--line); font-weight: 400; }
thead th { border: 0; font-size: 13px; color: var(--soft); vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
strong { font-weight: 700; }
.lead { max-width: 72ch; color: var(--soft); }

@media (max-width: 1080px) {
  .body { grid-template-columns: 1fr; gap: 18px; }
  .reading { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 15px 32px; }
  .explain { grid-column: 1 / -1; }
  .folder { order: 1; flex-basis: 100%; }
  .card { contain-intrinsic-size: auto 520px; }
}
@media (max-width: 640px) {
  .wide { padding: 0 14px; }
  .bar { position: static; }
  .reading, .facts { grid-template-columns: 1fr; }
  .counts { grid-template-columns: repeat(2, 1fr); gap: 18px; }
  .card { padding: 14px; }
  .turned { margin-left: 0; }
  .panes { gap: 6px; }
  .choice { flex-wrap: wrap; }
  th, td { padding-right: 18px; }
}
@media (prefers-reduced-motion: reduce) { .heat { transition: none; } }
@media print { .live .bar { display: none; } .card { content-visibility: visible; break-inside: avoid; } }
"""

# What an evaluation has and an inspection has not.
REPORT = """
.counts b { font-size: clamp(24px, 2.6vw, 32px); white-space: nowrap; }
.counts { margin-bottom: 8px; }
header .lead { margin-bottom: 28px; }
.notes, .remarks { display: grid; gap: 6px; max-width: 90ch; margin: 0 0 18px; padding: 14px 20px; border-radius: 12px;
  color: var(--turn); background: var(--turn-wash); }
nav { display: flex; flex-wrap: wrap; gap: 4px 24px; border-block: 1px solid var(--line); padding: 10px 0; }
a { color: var(--accent); }
a:focus-visible, pre:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
h2 { scroll-margin-top: 20px; }
h3 { font-size: 16px; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
.full { width: auto; }
.domains { width: 100%; }
.domains th, .domains td { padding: 7px 0 7px 24px; vertical-align: baseline; }
.domains thead th:first-child, .domains th[scope=rowgroup] { padding-left: 0; }
.domains tbody tr + tr > * { border-top: 0; padding-top: 0; }
.domains tbody th[scope=rowgroup] { vertical-align: top; font-weight: 600; }
.domains tbody th[scope=rowgroup] small { display: block; font-weight: 400; white-space: nowrap; }
.domains small { margin-left: .45em; white-space: nowrap; }
.domains th small, .gain small { display: block; margin: 0; }
.domains .gain { vertical-align: top; }
.plots { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 8px 20px; margin: 8px 0 0; }
.place .plots > div { max-width: 300px; }
.places { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 520px), 1fr)); gap: 16px;
  margin: 20px 0; }
.place, .spread { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 20px;
  break-inside: avoid; }
.spread { margin-top: 16px; }
pre { max-height: 60vh; overflow: auto; font-size: 13px; user-select: all; }
@media (max-width: 1080px) {
  .domains th, .domains td { padding-left: 11px; }
  .domains thead .number, .domains .gain { white-space: normal; }
  .domains small { display: block; margin: 0; }
  .domains .words { white-space: normal; }
  .spread .chart text { font-size: 14px; }
}
@media (max-width: 640px) { .plots { grid-template-columns: 1fr; } }
"""

# The style sheet does the hiding and fading; the script only says what was chosen.
SCRIPT = """
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const cards = all(".card");
  const place = new Map(cards.map((card, index) => [card, index]));
  const count = () => {
    const shown = root.dataset.show || "all";
    const number = shown === "all" ? cards.length : cards.filter(card => card.classList.contains(shown)).length;
    const told = number === cards.length ? "" : `${number} of ${cards.length} shown`;
    all("[role=status]").forEach(status => status.textContent = told);
  };
  all(".choice button").forEach(button => button.addEventListener("click", () => {
    all("button", button.parentElement).forEach(other => other.setAttribute("aria-pressed", other === button));
    Object.assign(root.dataset, button.dataset);
    count();
  }));
  // A card without a score (failed, or not a number) comes last in both directions.
  const score = card => card.dataset.score === "" ? NaN : Number(card.dataset.score);
  const orders = {
    given: (a, b) => place.get(a) - place.get(b),
    high: (a, b) => score(b) - score(a),
    low: (a, b) => score(a) - score(b),
  };
  const missingLast = (a, b) => Number.isNaN(score(a)) - Number.isNaN(score(b));
  document.querySelector("#sort")?.addEventListener("change", event => {
    const chosen = event.target.value;
    const last = chosen === "given" ? () => 0 : missingLast;
    const compare = (a, b) => last(a, b) || orders[chosen](a, b) || orders.given(a, b);
    all(".items").forEach(items => items.append(...all(".card", items).sort(compare)));
  });
  document.querySelector("#fade")?.addEventListener("input", event =>
    root.style.setProperty("--heat", event.target.value / 100));
  root.classList.add("live");
})();
"""
