// What the corrections say of the model, and the rate that would have done better.

import * as api from "./api.js";
import { byId, counted, el, forbid, percent, rateWords, styled, unjudged } from "./dom.js";
import { effect } from "./threshold.js";

export function reviewView(station) {
  const place = byId("review-body");
  async function show() {
    const told = await api.review(station.model.name);
    place.replaceChildren(...body(told, ask));
  }
  // Another rate changes verdicts from the next part on: what it would have done is shown before it is applied.
  const ask = (rate, asked) =>
    station.doing(async () => {
      const told = await api.whatIf(station.model.name, rate);
      const yes = el("button", { type: "button", class: "main", onclick: () => apply(rate) }, `Apply ${rateWords(rate)}`);
      const no = el("button", { type: "button", onclick: show }, "Leave it as it is");
      const why = station.forbidden(true);
      forbid(yes, why);
      const said = [...effect(told, false), why && el("p", { class: "soft" }, why)].filter(Boolean);
      asked.replaceChildren(...said, el("p", { class: "buttons" }, yes, no));
      asked.querySelector("h2").tabIndex = -1;
      asked.querySelector("h2").focus();
      station.say(asked.querySelector("p").textContent);
    });
  const apply = rate =>
    station.doing(async () => {
      const before = station.model.false_alarm_rate;
      station.applied(await api.setRate(station.model.name, rate), before, rate);
      await show();
      byId("review-title").focus();
    });
  return { name: "Review", show, keys: {} };
}

const said = ({ good, bad, unsure }) => `${good} good, ${bad} bad, ${unsure} unsure`;

function body({ model, counts, not_judged, table, precision, recall, suggestion, notes }, ask) {
  const asked = el("div", { class: "asked" });
  const judged = counts.good + counts.bad;
  if (suggestion) asked.append(offer(suggestion.rate, asked, ask));
  return [
    el(
      "ul",
      { class: "counts" },
      figure(counts.inspections, counts.inspections === 1 ? "judged part" : "judged parts", ""),
      figure(counts.reviewed, "of them reviewed", said(counts)),
      not_judged.inspections > 0 &&
        figure(
          not_judged.inspections,
          "not judged",
          not_judged.reviewed ? `${not_judged.reviewed} reviewed: ${said(not_judged)}` : "none of them reviewed",
        ),
    ),
    el(
      "div",
      { class: "two" },
      el(
        "section",
        { class: "card", "aria-labelledby": "measured" },
        el("h2", { id: "measured" }, "Measured on reviewed parts"),
        range("Precision", "of the rejected parts, how many are bad", precision),
        range("Recall", "of the bad parts, how many were rejected", recall),
        el(
          "p",
          { class: "soft" },
          `Bands are 95% intervals from ${counted(judged, "part")}; more reviews narrow them.`,
        ),
      ),
      el(
        "section",
        { class: "card", "aria-labelledby": "counted" },
        el("h2", { id: "counted" }, "Verdicts against the operator’s"),
        confusion(table, not_judged),
        not_judged.inspections > 0 &&
          el("p", { class: "soft" }, "Photos that are not judged are neither right nor wrong, and in no figure but these."),
      ),
    ),
    el(
      "section",
      { class: "card", "aria-labelledby": "suggested" },
      el("h2", { id: "suggested" }, "Suggested threshold"),
      suggestion
        ? [
            el("p", { class: "answer" }, suggestion.sentence),
            el(
              "p",
              {},
              `Good parts rejected: ${suggestion.false_alarms.then} instead of ${suggestion.false_alarms.now}. ` +
                `Bad parts accepted: ${suggestion.missed.then} instead of ${suggestion.missed.now}.`,
            ),
            asked,
          ]
        : el("p", {}, "None for now."),
    ),
    notes.length
      ? el(
          "ul",
          { class: "remarks" },
          notes.map(note => el("li", {}, note)),
        )
      : null,
    el(
      "p",
      { class: "buttons" },
      el("a", { class: "button", href: "#/history?review=none" }, "Review further parts"),
      not_judged.inspections
        ? el("a", { class: "button", href: unjudged(model) }, "See the photos that are not judged")
        : null,
      judged + not_judged.good + not_judged.bad
        ? el("a", { class: "button", href: api.exportAddress(model), download: "" }, "Export reviewed photos (zip)")
        : null,
    ),
  ].filter(Boolean);
}

const offer = (rate, asked, ask) =>
  el(
    "p",
    { class: "buttons" },
    el(
      "button",
      { type: "button", class: "main", onclick: () => ask(rate, asked) },
      `See what ${rateWords(rate)} would do`,
    ),
  );

const figure = (value, words, more) =>
  el("li", {}, el("b", {}, value.toLocaleString("en")), ` ${words}`, more && el("small", {}, more));

function range(name, words, { value, low, high }) {
  const told =
    value === null ? "nothing counted yet" : `${percent(value)}, 95% interval ${percent(low)} to ${percent(high)}`;
  return el(
    "div",
    { class: "range" },
    el("p", {}, el("b", {}, name), el("span", { class: "soft" }, ` ${words}`)),
    el(
      "div",
      { class: "track", "aria-hidden": "true" },
      value !== null && styled(el("i"), { left: `${100 * low}%`, width: `${100 * (high - low)}%` }),
      value !== null && styled(el("u"), { left: `${100 * value}%` }),
    ),
    el("p", {}, told),
  );
}

function confusion({ rejected_bad, rejected_good, accepted_bad, accepted_good }, apart) {
  const row = (words, ...cells) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, words),
      cells.map(([count, kind]) =>
        el("td", { class: `number ${kind}` }, count, el("small", {}, kind === "wrong" && count ? "wrong" : "")),
      ),
    );
  return el(
    "table",
    {},
    el("caption", { class: "unseen" }, "Verdicts against the operator’s"),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("td"),
        ["is bad", "is good"].map(words => el("th", { scope: "col", class: "number" }, words)),
      ),
    ),
    el(
      "tbody",
      {},
      row("Rejected", [rejected_bad, "right"], [rejected_good, "wrong"]),
      row("Accepted", [accepted_bad, "wrong"], [accepted_good, "right"]),
      apart.inspections > 0 && row("Not judged", [apart.bad, "neither"], [apart.good, "neither"]),
    ),
  );
}
