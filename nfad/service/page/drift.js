// Whether the line still looks like the fit: the verdict, what it rests on, and charts.

import * as api from "./api.js";
import { byId, el, familyTint, familyWords, icon, moment, percent, styled } from "./dom.js";
import { chart } from "./chart.js";

const QUESTIONS = {
  nuisance: "Has the acquisition moved?",
  bulk: "Do ordinary parts score differently?",
  tail: "Are more parts flagged?",
};
const FAMILY = "nuisance:";

export function driftView(station) {
  const place = byId("drift-body");
  return {
    name: "Drift",
    async show() {
      const told = await api.drift(station.model.name);
      place.replaceChildren(...body(told, station.model));
    },
    keys: {},
  };
}

function body(told, model) {
  const state = told.alarm ? "anomalous" : "normal";
  const first = told.state.charAt(0).toUpperCase() + told.state.slice(1);
  const since = told.since_time && el("p", { class: "soft" }, `It began about ${moment(told.since_time)}.`);
  return [
    el(
      "div",
      { class: `verdict ${state}` },
      el("p", { class: "word" }, icon(state), first),
      el("p", {}, told.sentence),
      since,
    ),
    el(
      "ul",
      { class: "questions" },
      Object.entries(QUESTIONS).map(([name, words]) => question(words, told.questions[name])),
    ),
    ...charts(told, model),
  ];
}

function question(words, { alarm, level, effect }) {
  const share = Math.min(1, level ?? 0);
  return el(
    "li",
    { class: "card" },
    el("h2", {}, words),
    el("p", { class: alarm ? "yes" : "no" }, icon(alarm ? "anomalous" : "normal"), alarm ? "Yes" : "No alarm"),
    el(
      "div",
      { class: "score evidence" },
      el("span", {}, "Evidence"),
      el(
        "span",
        { class: alarm ? "track over" : "track", "aria-hidden": "true" },
        styled(el("i"), { width: `${100 * share}%` }),
      ),
      el("span", { class: "figures" }, level >= 1 ? "alarm" : `${percent(level)} of an alarm`),
    ),
    effect && el("p", { class: "soft" }, `${effect.charAt(0).toUpperCase()}${effect.slice(1)}.`),
  );
}

function charts({ normals, blocks, since }, model) {
  if (!blocks.length) return [el("p", {}, "Charts follow with the first inspections.")];
  const families = Object.keys(normals.median).filter(name => name.startsWith(FAMILY));
  const short = value => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "–");
  const share = value => (Number.isFinite(value) ? `${short(100 * value)}%` : "–");
  const wanted = [
    { title: "Score with filter", name: "score", format: short, line: model.threshold },
    { title: "Score without filter", name: "control_score", format: short, line: model.control_threshold },
    ...families.map(name => {
      const family = name.slice(FAMILY.length);
      return { title: `Share ${familyWords(family)}`, name, format: share, tint: familyTint(family) };
    }),
    { title: "Participation", name: "participation", format: short },
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
