// The threshold by the false-alarm rate it stands for, with what it would have done before it is applied.

import * as api from "./api.js";
import { tile } from "./detail.js";
import { byId, counted, el, forbid, icon, latest, number, rateWords, styled, timeOf, unjudged } from "./dom.js";

const value = given => (given?.rate ? rateWords(given.rate) : (given?.sha256?.slice(0, 12) ?? "–"));

export function thresholdView(station) {
  const [form, rates, panel, apply] = ["rate-form", "rates", "what-if", "rate-apply"].map(byId);
  const turn = latest();
  let chosen = null;
  let of = null; // the model's name
  let looked = null; // the id of the inspection that was opened from here

  const allow = () => {
    apply.disabled = isInUse(chosen);
    forbid(apply, station.forbidden(true));
    byId("rate-why").textContent = station.forbidden(true);
  };
  const isInUse = rate => rate === station.model.false_alarm_rate;

  function offer() {
    const { model } = station;
    rates.replaceChildren(
      ...model.rates.map(({ rate, threshold }) =>
        el(
          "label",
          { class: "rate" },
          el("input", { type: "radio", name: "rate", value: rate, checked: rate === chosen }),
          el("span", {}, el("b", {}, rateWords(rate)), isInUse(rate) && el("span", { class: "tag" }, "in use")),
          el("span", { class: "soft" }, `threshold ${number(threshold)}`),
        ),
      ),
    );
    byId("rate-least").textContent =
      `${counted(model.held_out, "held-out normal")} of ${model.name} support ${rateWords(model.smallest_rate)} ` +
      "at the least; a smaller rate needs a fit on more photos.";
    allow();
  }

  async function preview() {
    const current = turn();
    const told = await api.whatIf(station.model.name, chosen);
    if (!current()) return;
    panel.replaceChildren(...effect(told, isInUse(chosen)).filter(Boolean));
    station.say(panel.querySelector("p").textContent);
  }

  // Who has changed what verdicts come from, newest first.
  async function changes() {
    const { changes } = await api.changes({ subject: station.model.name, limit: 20 });
    byId("changes").replaceChildren(
      ...changes.map(each =>
        el("li", {}, timeOf(each.time), ` · ${each.who} · ${each.what}: ${value(each.before)} → ${value(each.after)}`),
      ),
    );
  }

  panel.addEventListener("click", event => {
    looked = event.target.closest("a")?.hash.split("/").at(-1) ?? null;
  });
  form.addEventListener("change", () => {
    chosen = Number(new FormData(form).get("rate"));
    allow();
    station.doing(preview);
  });
  form.addEventListener("submit", event => {
    event.preventDefault();
    station.doing(async () => {
      const before = station.model.false_alarm_rate;
      station.applied(await api.setRate(station.model.name, chosen), before, chosen);
      offer();
      await changes();
      await preview();
      rates.querySelector(":checked")?.focus();
    });
  });

  return {
    name: "Threshold",
    async show(_, from) {
      const { name, rates, false_alarm_rate } = station.model;
      // Back from one of the parts the choice still stands.
      const stands = from === "history" && looked && of === name && rates.some(({ rate }) => rate === chosen);
      if (!stands) chosen = false_alarm_rate;
      of = name;
      offer();
      await changes();
      await preview();
      if (stands && document.activeElement === byId("threshold-title"))
        panel.querySelector(`a[href$="${CSS.escape(looked)}"]`)?.focus();
      looked = null;
    },
    keys: {},
  };
}

// What a rate would have done to the parts so far.
export function effect(told, inUse) {
  const { inspections, not_judged, anomalous, newly_rejected, newly_accepted } = told;
  const head = el("h2", {}, inUse ? `At ${rateWords(told.rate)}, as it is` : `If it were ${rateWords(told.rate)}`);
  const apart =
    not_judged > 0 &&
    el(
      "p",
      { class: "apart" },
      icon("not judged"),
      `${counted(not_judged, "photo")} not judged, and no threshold changes that. `,
      el("a", { href: unjudged(told.model) }, "See them"),
    );
  if (!inspections)
    return [head, el("p", {}, "This model has judged nothing yet, so there is nothing to compare with."), apart];
  const move =
    newly_rejected + newly_accepted
      ? `${counted(newly_rejected, "accepted part")} would be rejected, ` +
        `${counted(newly_accepted, "rejected part")} accepted.`
      : "No past verdict would change.";
  const { as_judged, at_rate } = anomalous;
  const instead = at_rate === as_judged ? "as many as were" : `instead of ${as_judged.toLocaleString("en")}`;
  return [
    head,
    el(
      "p",
      { class: "answer" },
      `Of ${counted(inspections, not_judged ? "judged part" : "past inspection")}, ${at_rate.toLocaleString("en")} would be rejected, ` +
        `${instead}. ${move}`,
    ),
    el(
      "div",
      { class: "bars", "aria-hidden": "true" },
      strip("As judged", as_judged, inspections),
      strip("At this rate", at_rate, inspections),
    ),
    apart,
    parts("would be rejected", "anomalous", newly_rejected, told.rejected, told.threshold),
    parts("would be accepted", "normal", newly_accepted, told.accepted, told.threshold),
    ...wrong(told),
  ];
}

// Which parts they are, the nearest to the line first.
function parts(words, then, count, inspections, threshold) {
  if (!count) return null;
  const shown = inspections.length < count ? `, the ${inspections.length} nearest to the threshold` : "";
  const id = `parts-${words.split(" ").at(-1)}`;
  return el(
    "section",
    { "aria-labelledby": id },
    el("h3", { id }, `${counted(count, "part")} that ${words}${shown}`),
    el(
      "ul",
      { class: "few" },
      inspections.map(each =>
        el("li", {}, el("a", { class: "tile", href: `#/history/${each.id}` }, tile({ ...each, threshold }, then))),
      ),
    ),
  );
}

function wrong({ reviewed, false_alarms, missed }) {
  const judged = reviewed.good + reviewed.bad;
  if (!judged) return [el("p", { class: "soft" }, "No operator has said good or bad of these parts yet.")];
  const head = ["", "as judged", "at this rate"].map((words, at) =>
    el(at ? "th" : "td", at ? { scope: "col", class: "number" } : {}, words),
  );
  return [
    el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Effect in numbers" },
      el(
        "table",
        {},
        el("caption", {}, `Wrong verdicts among ${counted(judged, "part")} an operator has judged`),
        el("thead", {}, el("tr", {}, head)),
        el(
          "tbody",
          {},
          row(`Good parts rejected, of ${reviewed.good}`, false_alarms),
          row(`Bad parts accepted, of ${reviewed.bad}`, missed),
        ),
      ),
    ),
  ];
}

const strip = (words, count, all) => [
  el("span", {}, words),
  el("span", { class: "track over" }, styled(el("i"), { width: `${(100 * count) / all}%` })),
  el("span", { class: "figures" }, `${count} of ${all}`),
];

function row(words, { as_judged, at_rate }) {
  const better = at_rate < as_judged ? "fewer" : at_rate > as_judged ? "more" : "";
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, words),
    el("td", { class: "number" }, as_judged),
    el(
      "td",
      { class: "number" },
      better && el("span", { class: `change ${better}` }, icon(better === "fewer" ? "good" : "bad"), better),
      ` ${at_rate}`,
    ),
  );
}
