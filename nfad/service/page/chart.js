// Small charts over parts: the middle and spread of each block against the fit's normals; the table says the same.

import { el, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 150, 44, 8, 8, 22];

// Round steps: from two to five marks, for no step is more than two and a half times the one before.
export function ticks(low, high) {
  const rough = (high - low) / 3 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const among = step => Math.floor(high / step) - Math.ceil(low / step) + 1;
  const step = [1, 2, 5, 10].map(times => times * power).find(size => among(size) <= 5);
  return Array.from({ length: among(step) }, (_, at) => (Math.ceil(low / step) + at) * step);
}

export function chart({ title, name, normals, blocks, since, format, tint = "", line = null }) {
  const usable = blocks.filter(block =>
    [block.low, block.median, block.high].every(numbers => Number.isFinite(numbers[name])),
  );
  const now = usable.at(-1)?.median[name];
  const words =
    `${title}: median ${format(now)} in the latest parts; the fit’s normals have ${format(normals.median[name])}, ` +
    `four fifths of them between ${format(normals.low[name])} and ${format(normals.high[name])}.`;
  return el(
    "figure",
    { class: `chart ${tint}` },
    el(
      "figcaption",
      {},
      el("b", {}, title),
      el("span", { class: "soft" }, ` ${format(now)} now, ${format(normals.median[name])} at the fit`),
    ),
    drawing({ name, normals, usable, since, format, line, words }),
    table(title, name, normals, usable, format),
  );
}

function drawing({ name, normals, usable, since, format, line, words }) {
  const values = [normals, ...usable].flatMap(block => [block.low[name], block.high[name]]).concat(line ?? []);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = 0.06 * (high - low) || 0.5;
  const [bottom, top] = [low < 0 ? low - margin : Math.max(0, low - margin), high + margin];
  const last = usable.at(-1);
  const [from, to] = [usable[0].first, Math.max(last.first + last.parts - 1, usable[0].first + 1)];
  const x = part => LEFT + ((part - from) / (to - from)) * (WIDTH - LEFT - RIGHT);
  const y = value => TOP + ((top - value) / (top - bottom)) * (HEIGHT - TOP - BOTTOM);
  const middle = block => x(block.first + (block.parts - 1) / 2);
  // Flat to either end: the first and the last block have no neighbour to lean on.
  const along = key =>
    [[x(from), usable[0]], ...usable.map(block => [middle(block), block]), [x(to), last]].map(
      ([place, block]) => `${place.toFixed(1)},${y(block[key][name]).toFixed(1)}`,
    );
  const level = (value, given) => svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), ...given });
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words },
    svg("rect", {
      class: "normals",
      x: LEFT,
      y: y(normals.high[name]),
      width: WIDTH - LEFT - RIGHT,
      height: Math.max(1, y(normals.low[name]) - y(normals.high[name])),
    }),
    level(normals.median[name], { class: "expected" }),
    ticks(bottom, top).map(value => [
      level(value, { class: "rule" }),
      svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)),
    ]),
    line !== null && level(line, { class: "limit" }),
    svg("polygon", { class: "spread", points: [...along("high"), ...along("low").reverse()].join(" ") }),
    svg("polyline", { class: "median", points: along("median").join(" ") }),
    usable.length <= 12 &&
      usable.map(block => svg("circle", { class: "point", cx: middle(block), cy: y(block.median[name]), r: 3 })),
    since !== null &&
      since >= from &&
      svg("line", { class: "since", x1: x(since), x2: x(since), y1: TOP, y2: HEIGHT - BOTTOM }),
    svg("text", { x: LEFT, y: HEIGHT - 6 }, `part ${from.toLocaleString("en")}`),
    svg(
      "text",
      { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" },
      (last.first + last.parts - 1).toLocaleString("en"),
    ),
  );
}

function table(title, name, normals, usable, format) {
  const row = (words, block) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, words),
      ["low", "median", "high"].map(key => el("td", { class: "number" }, format(block[key][name]))),
    );
  const whole = () =>
    el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title} in numbers` },
      el(
        "table",
        {},
        el("caption", { class: "unseen" }, `${title} in numbers`),
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            ["Parts", "a tenth below", "median", "a tenth above"].map((words, at) =>
              el("th", { scope: "col", class: at ? "number" : "" }, words),
            ),
          ),
        ),
        el(
          "tbody",
          {},
          row("the fit’s normals", normals),
          usable.toReversed().map(block => row(`${block.first}–${block.first + block.parts - 1}`, block)),
        ),
      ),
    );
  const details = el("details", {}, el("summary", {}, "Numbers", el("span", { class: "unseen" }, ` of ${title}`)));
  // Hundreds of rows: only if asked for.
  details.addEventListener("toggle", () => details.append(whole()), { once: true });
  return details;
}
