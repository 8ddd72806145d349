// Whether the line still looks like the fit: the verdict, what it rests on, and charts.

import * as api from "./api.js";
import {
  absorbed,
  byId,
  el,
  familyTint,
  familyWords,
  ofCamera,
  icon,
  kind,
  moment,
  percent,
  styled,
  unjudged,
  unseen,
} from "./dom.js";
import { chart } from "./chart.js";

const QUESTIONS = {
  nuisance: "Has the acquisition moved?",
  bulk: "Do ordinary parts score differently?",
  tail: "Are more parts flagged?",
  not_judged: "Are many photos not judged?",
};
const ANSWERS = { normal: "No alarm", anomalous: "Yes", "not judged": "Yes", turned: "Yes", unsure: "Cannot be told" };
const FAMILY = "nuisance:";
const capital = words => words.charAt(0).toUpperCase() + words.slice(1);

export function driftView(station) {
  const place = byId("drift-body");
  let shown = null;
  async function show() {
    const told = await api.drift(station.model.name);
    place.replaceChildren(...body(told, station.model));
    shown = told;
  }
  return {
    name: "Drift",
    show,
    // A verdict must not stand beside an alarm that says otherwise; charts wait while somebody reads their numbers.
    beat() {
      const reading = place.querySelector("details[open]") || place.contains(document.activeElement);
      if (!shown || station.model.drift !== shown.state || !reading) return show();
    },
    keys: {},
  };
}

const flagged = model => `#/history?${new URLSearchParams({ verdict: "anomalous", model })}`;

function body(told, model) {
  const calm = absorbed(told.state);
  const { tail, not_judged } = told.questions;
  const state = calm ? "turned" : unseen(told.state) ? "not judged" : told.alarm ? "anomalous" : "normal";
  const first = ofCamera(told.state) || not_judged.alarm ? "The first of them" : `Part ${told.since?.toLocaleString("en")}`;
  const since = told.since_time && el("p", { class: "soft" }, `${first} was inspected ${moment(told.since_time)}.`);
  return [
    el(
      "div",
      { class: calm ? "verdict calm" : `verdict ${kind(state)}` },
      el("p", { class: "word" }, icon(state), capital(told.state)),
      el("p", {}, told.sentence),
      since,
      tail.alarm && el("p", {}, el("a", { href: flagged(told.model) }, "See the flagged parts")),
      told.photos > told.parts &&
        el("p", {}, el("a", { href: unjudged(told.model) }, "See the photos that are not judged")),
    ),
    el(
      "p",
      { class: "lead" },
      "Three questions are asked of every judged part. An ordinary part is one that scores no higher than four fifths " +
        "of the fit’s held-out normals; defects score higher, and so a minority of them does not disturb the first two. " +
        "A photo that is not judged says nothing about parts, so only the last question counts it.",
    ),
    el(
      "ul",
      { class: "questions" },
      Object.entries(QUESTIONS).map(([name, words]) =>
        question(words, told.questions[name], name === "not_judged" ? "not judged" : calm ? "turned" : "anomalous"),
      ),
    ),
    ...charts(told, model),
  ];
}

// `alarming` is what an alarm looks like.
function question(words, { alarm, level, effect }, alarming) {
  const answer = alarm ? alarming : level === null ? "unsure" : "normal";
  const share = Math.min(1, level);
  return el(
    "li",
    { class: "card" },
    el("h2", {}, words),
    el("p", { class: `answered ${kind(answer)}` }, icon(answer), ANSWERS[answer]),
    level !== null && el(
      "div",
      { class: "score evidence" },
      el("span", {}, "Evidence"),
      el(
        "span",
        { class: answer === "anomalous" ? "track over" : "track", "aria-hidden": "true" },
        styled(el("i"), { width: `${100 * share}%` }),
      ),
      el("span", { class: "figures" }, alarm ? "enough for an alarm" : evidence(level)),
    ),
    effect && el("p", { class: "soft" }, `${capital(effect)}.`),
  );
}

const evidence = level => (level < 0.005 ? "under 1% of an alarm" : `${percent(level)} of an alarm`);

function charts({ normals, blocks, since }, model) {
  if (!blocks.length) return [el("p", {}, "Charts follow with the first inspections.")];
  const families = Object.keys(normals.median).filter(name => name.startsWith(FAMILY));
  const short = value => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "–");
  const share = value => (Number.isFinite(value) ? `${short(100 * value)}%` : "–");
  const wanted = [
    { title: "Score with filter", name: "score", format: short, line: model.threshold },
    { title: "Score without filter", name: "unfiltered_score", format: short, line: model.unfiltered_threshold },
    ...families.map(name => {
      const family = name.slice(FAMILY.length);
      return { title: `${capital(familyWords(family))} share`, name, format: share, tint: familyTint(family) };
    }),
    { title: "Spread of the deviation", name: "participation", format: share },
    { title: "How far photos lie off", name: "moved", format: share },
  ].filter(({ name }) => blocks.some(block => Number.isFinite(block.median[name])));
  return [
    el("h2", {}, "Over time"),
    el(
      "p",
      { class: "lead" },
      `The line is the median of ${Math.max(...blocks.map(block => block.parts))} parts, its band holds four ` +
        "fifths of them; the grey band behind holds four fifths of the fit’s held-out normals.",
    ),
    el(
      "ul",
      { class: "legend", "aria-hidden": "true" },
      el("li", {}, el("i", { class: "l-median" }), "parts"),
      el("li", {}, el("i", { class: "l-normals" }), "the fit’s normals"),
      el("li", {}, el("i", { class: "l-limit" }), "threshold"),
      since !== null && el("li", {}, el("i", { class: "l-since" }), "change"),
    ),
    el(
      "div",
      { class: "charts" },
      wanted.map(each => chart({ ...each, normals, blocks, since })),
    ),
  ];
}
