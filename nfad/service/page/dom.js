// Elements and words. Text always enters as text nodes, so that no file name or note can become markup.

const SVG = "http://www.w3.org/2000/svg";

const filled = (node, given, children) => {
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return node;
};

export const el = (tag, given = {}, ...children) => filled(document.createElement(tag), given, children);
export const svg = (tag, given = {}, ...children) => filled(document.createElementNS(SVG, tag), given, children);
export const byId = id => document.getElementById(id);

// Style is set through the object model: the service's policy refuses style attributes.
export const styled = (node, properties) => {
  for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
  return node;
};

// A control that one's token may not use stays to be seen, greyed out, and says why.
export const forbid = (control, why) => {
  if (why) control.disabled = true;
  control.title = why;
};

// A shape of its own for each state, so that colour never speaks alone.
const SHAPES = {
  normal: [
    ["circle", { cx: 12, cy: 12, r: 10 }],
    ["path", { d: "M7.5 12.5l3 3 6-6.5", class: "cut" }],
  ],
  anomalous: [
    ["path", { d: "M12 2.5L23 21.5H1z" }],
    ["path", { d: "M12 9.5v5.5m0 2.6v.4", class: "cut" }],
  ],
  unsure: [
    ["rect", { x: 2.5, y: 2.5, width: 19, height: 19, rx: 4 }],
    ["path", { d: "M9 9.5c0-4 6-4 6-.3 0 2.3-3 2.3-3 4.6m0 3.2v.4", class: "cut" }],
  ],
  "not judged": [
    ["path", { d: "M7.9 2h8.2L22 7.9v8.2L16.1 22H7.9L2 16.1V7.9z" }],
    ["path", { d: "M7.5 12h9", class: "cut" }],
  ],
  turned: [["path", { d: "M4 9h13l-4-4m7 10H7l4 4", class: "stroke" }]],
  pending: [["circle", { cx: 12, cy: 12, r: 9, class: "stroke dots" }]],
};
SHAPES.good = SHAPES.normal;
SHAPES.bad = SHAPES.anomalous;

export const icon = name =>
  svg(
    "svg",
    { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" },
    SHAPES[name].map(([tag, given]) => svg(tag, given)),
  );

const WORDS = {
  normal: "Normal",
  anomalous: "Anomalous",
  "not judged": "Not judged",
  good: "Good",
  bad: "Bad",
  unsure: "Unsure",
};

export const word = verdict => WORDS[verdict] ?? verdict;
export const kind = verdict => verdict.replace(" ", "-"); // as a class of its own
export const badge = (verdict, words = word(verdict)) =>
  el("span", { class: `badge ${kind(verdict)}` }, icon(verdict), words);

// Neither good nor bad: its numbers are there, and say nothing about the part.
export const isJudged = inspection => inspection.verdict !== "not judged";
export const unjudged = model => `#/history?${new URLSearchParams({ verdict: "not judged", model })}`;

export const number = (value, places = 2) => (Number.isFinite(value) ? value.toFixed(places) : "not measured");
export const percent = (share, places = 0) => (Number.isFinite(share) ? `${(100 * share).toFixed(places)}%` : "–");
export const rateWords = rate => `${Number((100 * rate).toPrecision(2))}%`;
export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export const compared = (score, threshold) =>
  Number.isFinite(score) && Number.isFinite(threshold)
    ? `${number(score)} ${score > threshold ? ">" : "≤"} ${number(threshold)}`
    : "not measured";

export const unseen = drift => drift === "many photos are not judged";
export const CAMERA = {
  "no photo comes from the camera": "No photo",
  "the camera shows the same frame": "Camera stopped",
  "the camera is covered": "Camera covered",
  "the camera is out of focus": "Camera out of focus",
  "the camera does not see the part": "Camera out of place",
  "the camera has moved": "Camera moved",
};
export const frozen = state => state === "the camera shows the same frame";
export const shifted = state => state === "the camera has moved"; // its photos are judged
export const ofCamera = drift => Object.hasOwn(CAMERA, drift);

// The one drift that leaves verdicts as they should be: worth knowing, not a reason to stop the line.
export const absorbed = drift => drift === "acquisition drift, absorbed by the filter";

const sameDay = (a, b) => a.toDateString() === b.toDateString();

export function moment(time) {
  const then = new Date(time);
  const clock = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  if (sameDay(then, new Date())) return `today ${clock}`;
  return `${then.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" })} ${clock}`;
}

export const timeOf = time => el("time", { datetime: time }, moment(time));

const FAMILIES = {
  photometric: "illumination-like",
  background: "background-like",
  sensor: "noise- or blur-like",
  geometric: "pose-like",
};

export const familyWords = family => FAMILIES[family] ?? `${family}-like`;
export const familyTint = family => (family in FAMILIES ? family : "other");

// A turn for each question; its answer counts only while no newer one was asked.
export function latest() {
  let turn = 0;
  return () => {
    const mine = ++turn;
    return () => mine === turn;
  };
}
