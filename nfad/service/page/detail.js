// One inspection with all that speaks for it, and the operator's own verdict.

import * as api from "./api.js";
import {
  badge,
  compared,
  el,
  familyTint,
  familyWords,
  forbid,
  icon,
  isJudged,
  kind,
  moment,
  number,
  percent,
  rateWords,
  styled,
  timeOf,
  word,
} from "./dom.js";
import { viewer } from "./viewer.js";

export const changed = inspection =>
  isJudged(inspection) && inspection.unfiltered_score !== null && inspection.unfiltered_verdict !== inspection.verdict;

// { node, flip, mark(verdict) }; `told` hears of the inspection after each review, and whether it was the first.
export function detail(station, inspection, { told = () => {}, level = "h2" } = {}) {
  const under = level === "h1" ? "h2" : "h3";
  const picture = viewer(inspection);
  const opinion = review(station, inspection, told, under);
  const title = el(level, { tabindex: -1, class: "file" }, el("bdi", {}, inspection.image || "without a name"));
  const node = el(
    "article",
    { class: `detail ${kind(inspection.verdict)}`, "aria-label": `Inspection of ${inspection.image}` },
    el(
      "header",
      {},
      title,
      el(
        "p",
        { class: "soft" },
        timeOf(inspection.time),
        ` · ${inspection.model} · ${number(inspection.milliseconds, 0)} ms`,
      ),
    ),
    el(
      "div",
      { class: "body" },
      picture.node,
      el(
        "div",
        { class: "reading" },
        verdict(inspection),
        scores(inspection, under),
        opinion.node,
        isJudged(inspection) && deviation(station, inspection, under),
        downloads(inspection),
      ),
    ),
  );
  return { node, title, flip: picture.flip, mark: opinion.mark };
}

function verdict(inspection) {
  return el(
    "div",
    { class: `verdict ${kind(inspection.verdict)}` },
    el("p", { class: "word" }, icon(inspection.verdict), word(inspection.verdict)),
    el("p", {}, isJudged(inspection) ? inspection.explanation : reason(inspection)),
    !isJudged(inspection) && el("p", {}, "Neither good nor bad: look at the part itself, or take the photo again."),
    changed(inspection) && el("p", { class: "turned" }, icon("turned"), "Verdict changed by the filter"),
  );
}

// Why a photo is not judged, without the verdict before it.
const reason = ({ explanation }) => {
  const words = explanation.replace(/^Not judged: /, "");
  return words.charAt(0).toUpperCase() + words.slice(1);
};

function scores(inspection, heading) {
  const { score, threshold, unfiltered_score, unfiltered_threshold, scale } = inspection;
  if (!isJudged(inspection)) return el("p", { class: "soft" }, strangeWords(inspection));
  return el(
    "section",
    { "aria-label": "Score against threshold" },
    el(heading, {}, "Score against threshold"),
    el(
      "div",
      { class: "score" },
      bar("With filter", score, threshold, scale),
      bar("Without", unfiltered_score, unfiltered_threshold, scale),
    ),
    el(
      "p",
      { class: "soft" },
      [
        odds(inspection.p_value),
        `Threshold for a false-alarm rate of ${rateWords(inspection.false_alarm_rate)}.`,
        strangeWords(inspection),
      ].join(" "),
    ),
  );
}

const strangeWords = ({ strangeness }) =>
  strangeness === null ? "" : `Strangeness ${number(strangeness)}; above 1 a photo is not judged.`;

function bar(words, score, threshold, scale) {
  const along = value => `${Math.min(100, Math.max(0, (100 * (value ?? 0)) / scale)).toFixed(1)}%`;
  const over = score !== null && threshold !== null && score > threshold;
  return [
    el("span", {}, words),
    el(
      "span",
      { class: over ? "track over" : "track", "aria-hidden": "true" },
      styled(el("i"), { width: along(score) }),
      threshold !== null && styled(el("u"), { left: along(threshold) }),
    ),
    el("span", { class: "figures" }, threshold === null ? number(score) : compared(score, threshold)),
  ];
}

function odds(p) {
  if (p === null) return "";
  if (p >= 0.1) return `${percent(p)} of normal parts score at least this high.`; // "1 in 2.7" would need a thought
  if (p > 0)
    return `At most 1 in ${Math.floor(1 / p + 1e-9).toLocaleString("en")} normal parts scores this high.`;
  return "No normal part is expected to score this high.";
}

function deviation(station, { model, nuisance_fraction, nuisance_by_family, participation }, heading) {
  const families = Object.entries(nuisance_by_family);
  const known = families.length ? families : [["acquisition", nuisance_fraction]];
  const shares = known.map(([family, share]) => [familyTint(family), share ?? 0, familyWords(family)]);
  shares.push(["rest", Math.max(0, 1 - (nuisance_fraction ?? 0)), "the rest: texture, noise, defects"]);
  const spread = el("p", { class: "soft spread" });
  station.doing(async () => {
    const normals = participation !== null && (await normalsOf(station, model));
    if (normals) spread.textContent = spreadWords(participation, normals);
  });
  return el(
    "section",
    { "aria-label": "What the deviation looks like" },
    el(heading, {}, "What the deviation looks like"),
    el(
      "div",
      { class: "shares", "aria-hidden": "true" },
      shares.filter(([, share]) => share > 0).map(([tint, share]) => styled(el("i", { class: tint }), { flex: share })),
    ),
    el(
      "ul",
      { class: "key" },
      shares.map(([tint, share, words]) => el("li", {}, el("i", { class: tint }), `${percent(share)} ${words}`)),
    ),
    spread,
  );
}

const normals = new Map(); // by the model file: what four fifths of its held-out normals have

async function normalsOf(station, name) {
  const file = station.models.find(each => each.name === name)?.sha256;
  if (!file) return null; // it is no longer served, so nothing is known of its normals
  if (!normals.has(file)) normals.set(file, (await api.drift(name)).normals);
  return normals.get(file);
}

function spreadWords(share, { low, high }) {
  const [least, most] = [low.participation, high.participation];
  if (!Number.isFinite(least) || !Number.isFinite(most)) return "";
  const how = share < least ? "more concentrated than" : share > most ? "more spread out than" : "as spread out as";
  const usual = `${percent(least)} to ${percent(most)} on most of them`;
  return `It is ${how} on normal parts: over ${percent(share)} of the photo, ${usual}.`;
}

function review(station, inspection, told, heading) {
  let said = inspection.review;
  const note = el("textarea", { rows: 2, maxlength: 2000, placeholder: "e.g. dent at the rim" });
  note.value = said?.note ?? "";
  const state = el("p", { class: "soft state" });
  const buttons = ["good", "bad", "unsure"].map(verdict =>
    el(
      "button",
      { type: "button", class: verdict, "aria-keyshortcuts": verdict[0], onclick: () => choose(verdict) },
      icon(verdict),
      word(verdict),
      el("kbd", { "aria-hidden": "true" }, verdict[0]),
    ),
  );
  const save = el("button", { type: "button", onclick: () => put(said.verdict) }, "Save note");
  const undo = el("button", { type: "button", class: "quiet", onclick: takeBack }, "Take back");

  const show = () => {
    buttons.forEach(button => button.setAttribute("aria-pressed", button.classList.contains(said?.verdict)));
    undo.hidden = !said;
    save.hidden = !said || note.value === said.note;
    state.textContent = said ? `Reviewed ${moment(said.time)}.` : "Not reviewed yet.";
  };
  const heard = (answer, sentence) => {
    const first = !said && Boolean(answer.review);
    said = answer.review;
    show();
    station.say(sentence);
    told(answer, first);
  };
  const put = verdict =>
    station.doing(async () => heard(await api.setReview(inspection.id, verdict, note.value), `Marked as ${verdict}.`));
  function takeBack() {
    return station.doing(async () => {
      const answer = await api.takeBackReview(inspection.id);
      note.value = "";
      heard(answer, "Review taken back.");
      buttons[0].focus(); // the button that was pressed is gone
    });
  }
  const why = station.forbidden();
  for (const each of [...buttons, note, save, undo]) forbid(each, why);
  const choose = verdict => (why || (verdict === said?.verdict && note.value === said.note) ? undefined : put(verdict));
  note.addEventListener("input", show);
  show();
  const node = el(
    "section",
    { class: "opinion", "aria-label": "Your verdict" },
    el(heading, {}, "Your verdict"),
    el("div", { class: "choice", role: "group", "aria-label": "Your verdict" }, buttons),
    why && el("p", { class: "soft" }, why),
    el("label", { class: "field" }, "Note", note),
    el("div", { class: "row" }, state, save, undo),
  );
  return { node, mark: choose };
}

const downloads = ({ images }) =>
  images && el("p", {}, el("a", { href: images.original, download: "" }, "Download the original"));

// A small picture of an inspection for lists; `then` is another verdict that it would have.
export function tile(inspection, then = null) {
  return [
    el(
      "span",
      { class: "thumb" },
      inspection.images
        ? el("img", { src: inspection.images.thumbnail, alt: "", loading: "lazy" })
        : el("span", { class: "soft" }, "picture removed"),
    ),
    el(
      "span",
      { class: "told" },
      el("bdi", { class: "name", title: inspection.image }, inspection.image || "without a name"),
      el(
        "span",
        { class: "line" },
        then && el("span", { class: "soft" }, `${word(inspection.verdict)} →`),
        badge(then ?? inspection.verdict),
        el(
          "span",
          { class: "soft" },
          isJudged(inspection) ? compared(inspection.score, inspection.threshold) : reason(inspection),
        ),
      ),
      el(
        "span",
        { class: "line" },
        changed(inspection) && el("span", { class: "turned" }, icon("turned"), "changed"),
        inspection.review && badge(inspection.review.verdict, `operator: ${inspection.review.verdict}`),
      ),
      el("span", { class: "soft" }, timeOf(inspection.time)),
    ),
  ];
}
