// The page put together: who is logged in, which model, which view, what is said, and the keys.

import * as api from "./api.js";
import { absorbed, byId, CAMERA, el, forbid, frozen, icon, kind, number, rateWords, unseen } from "./dom.js";
import { driftView } from "./drift.js";
import { historyView } from "./history.js";
import { inspectView } from "./inspect.js";
import { keyboard } from "./keys.js";
import { lineView } from "./line.js";
import { live } from "./live.js";
import { reviewView } from "./review.js";
import { thresholdView } from "./threshold.js";

const SHOWN = 12; // seconds a message that needs no answer stays
const LASTING = 120; // seconds for which a change of verdicts can be taken back from its message

const station = {
  models: [],
  model: null,
  me: null, // whose token it is, and what it may
  // Why this token may not do something that changes things, or "": to set a rate may take more than the rest.
  forbidden(rate = false) {
    const { name, role, may_change_verdicts, role_for_verdicts } = station.me ?? {};
    if (rate ? may_change_verdicts !== false : role !== "view") return "";
    return `This needs a token of the role ${rate ? role_for_verdicts : "operate"}; ${name} may ${role}.`;
  },
  say(sentence, visible = false) {
    if (visible) note(sentence, "good", SHOWN);
    else byId("said").textContent = sentence;
  },
  fail(error, about = "") {
    if (error.status === 401) return void ask();
    const again = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
    note(`${about && `${about}: `}${asSentence(error.message)}${again}`, "bad");
  },
  async doing(action) {
    try {
      await action();
    } catch (error) {
      if (error.name !== "AbortError") station.fail(error);
    }
  },
  replace(model) {
    station.models = station.models.map(each => (each.name === model.name ? model : each));
    if (station.model.name === model.name) station.model = model;
    alarm();
  },
  // A rate has been applied: said with a way back, which is another change, and noted as one.
  applied(model, before, after) {
    station.replace(model);
    const back = () =>
      station.doing(async () => {
        station.replace(await api.setRate(model.name, before));
        byId("alerts").replaceChildren();
        await route();
        station.say(`Taken back: ${model.name} judges at ${rateWords(before)} again.`, true);
      });
    const words = `Applied: a false-alarm rate of ${rateWords(after)}, threshold ${number(model.threshold)}.`;
    note(words, "good", LASTING, el("button", { type: "button", onclick: back }, `Undo: back to ${rateWords(before)}`));
    byId("said").textContent = words;
  },
  refresh: () => refresh().catch(() => {}), // the poll will tell
};

const asSentence = words => `${words.charAt(0).toUpperCase()}${words.slice(1)}${/[.!?…]$/.test(words) ? "" : "."}`;

function note(sentence, kind, seconds = null, action = null) {
  const place = byId("alerts");
  const known = [...place.children].find(each => each.dataset.sentence === sentence);
  known?.remove();
  const close = el(
    "button",
    { type: "button", class: "plain", "aria-label": "Dismiss", onclick: () => node.remove() },
    "×",
  );
  const node = el(
    "div",
    { class: `note ${kind}`, "data-sentence": sentence },
    icon(kind),
    el("p", {}, sentence),
    action,
    close,
  );
  place.append(node);
  [...place.children].slice(0, -4).forEach(old => old.remove());
  if (seconds) setTimeout(() => node.remove(), 1000 * seconds);
}

const views = {
  inspect: inspectView(station),
  line: lineView(station),
  history: historyView(station),
  threshold: thresholdView(station),
  drift: driftView(station),
  review: reviewView(station),
};
let open = null; // the view's key
let lost = false; // whether the service does not answer
let missed = false; // whether the view could not be shown for that

async function route() {
  if (!byId("login").hidden || (location.hash && !location.hash.startsWith("#/"))) return; // some other anchor
  const [address, ...query] = location.hash.slice(2).split("?");
  const [wanted, argument] = address.split("/");
  const key = Object.hasOwn(views, wanted) ? wanted : "inspect";
  const from = open;
  const moved = from !== null && key !== from;
  if (moved) {
    views[open].leave?.();
    byId("alerts").replaceChildren(); // they spoke of what one has left
  }
  open = key;
  for (const name of Object.keys(views)) {
    byId(name).hidden = name !== key;
    const link = document.querySelector(`nav [href="#/${name}"]`);
    if (name === key) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("model-label").hidden = station.models.length < 2 || key === "history";
  document.title = `${views[key].name} · NFAD`;
  missed = true;
  await station.doing(async () => {
    const ready = views[key].show(argument, from, query.join("?"));
    // At once, not when it has loaded: by then somebody may be typing.
    if (moved && !argument) byId(`${key}-title`).focus({ preventScroll: true });
    await ready;
    missed = false;
  });
}

function alarm() {
  const chip = byId("alarm");
  if (lost) {
    chip.className = "chip unsure";
    chip.setAttribute("aria-label", "Connection lost");
    return void chip.replaceChildren(icon("unsure"), el("span", {}, "Connection lost"));
  }
  const moved = station.models.filter(model => model.drift !== "steady");
  const blind = moved.length && moved.every(model => unseen(model.drift));
  const calm = moved.every(model => absorbed(model.drift));
  const state = !moved.length ? "good" : blind ? "not judged" : calm ? "turned" : "bad";
  // Black frame after black frame is a cover as often as a camera that stopped.
  const wordsOf = model => (unseen(model.drift) && frozen(model.camera) ? null : CAMERA[model.camera]);
  const camera = moved.map(wordsOf).find(Boolean);
  let words = camera ? camera : blind ? "Not judged" : moved.length ? "Drift" : "Steady";
  if (station.models.length > 1 && moved.length)
    words += `: ${moved.length > 1 ? `${moved.length} models` : moved[0].name}`;
  const told = moved.map(model => `${model.name}, ${model.drift}`).join("; ");
  chip.className = `chip ${state === "turned" ? "calm" : kind(state)}`;
  chip.setAttribute("aria-label", moved.length ? `Drift alarm: ${told}` : "Drift: steady");
  chip.replaceChildren(icon(state), el("span", {}, words));
}

async function refresh(signal) {
  station.models = await api.models(signal);
  const name = station.model?.name ?? localStorage.getItem("model");
  station.model = station.models.find(model => model.name === name) ?? station.models[0];
  const select = byId("model");
  if (select.options.length !== station.models.length)
    select.replaceChildren(...station.models.map(model => el("option", { value: model.name }, model.name)));
  select.value = station.model.name;
  alarm();
}

// The models for the alarm, then whatever the view wants to know anew. What is open stays as it is.
async function look(signal) {
  if (!byId("login").hidden) return;
  try {
    if (open === null) return await enter();
    await refresh(signal);
    await views[open].beat?.(signal);
  } catch (error) {
    if (error.status !== 401) throw error;
    ask();
  }
}

function silent(error) {
  if (!(error instanceof api.ApiError)) reportError(error);
  lost = true;
  alarm();
  note(`Connection lost. ${asSentence(error.message)} Trying again.`, "bad");
}

async function again() {
  lost = false;
  alarm();
  byId("alerts").replaceChildren();
  station.say("Connected again.", true);
  if (missed) await route();
}

function ask() {
  byId("login").hidden = false;
  for (const name of [...Object.keys(views), "views", "tools"]) byId(name).hidden = true;
  document.title = "Log in · NFAD";
  byId("token").focus();
}

async function enter() {
  await refresh();
  station.me = await api.me();
  const { login_needed, version } = station.me;
  byId("logout").hidden = !login_needed;
  byId("version").textContent = `NFAD ${version}`;
  for (const each of document.querySelectorAll("[data-operates]")) {
    each.disabled = false; // somebody else may have been logged in before
    forbid(each, station.forbidden());
  }
  for (const each of document.querySelectorAll(".why")) each.textContent = station.forbidden();
  byId("login").hidden = true;
  byId("views").hidden = byId("tools").hidden = false;
  open = null;
  await route();
}

byId("login-form").addEventListener("submit", event => {
  event.preventDefault();
  station.doing(async () => {
    await api.login(byId("token").value);
    byId("token").value = "";
    byId("alerts").replaceChildren();
    await enter();
  });
});
byId("logout").addEventListener("click", () =>
  station.doing(async () => {
    await api.logout();
    location.reload(); // so that nothing stays behind
  }),
);
byId("model").addEventListener("change", event => {
  station.model = station.models.find(model => model.name === event.target.value);
  localStorage.setItem("model", station.model.name);
  route();
});
addEventListener("hashchange", route);
byId("skip").addEventListener("click", event => {
  event.preventDefault(); // the address is the view's
  byId("main").focus();
});
keyboard(station, () => views[open]);

live(look, { lost: silent, found: again })();
