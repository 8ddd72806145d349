// Past inspections: a list that can be searched, and one of them in full.

import * as api from "./api.js";
import { byId, counted, el, latest } from "./dom.js";
import { detail, tile } from "./detail.js";

const PAGE = 48;

// A day of the operator's, as the moments the service wants; `until` is exclusive, so it is the next day's start.
const dayStart = (day, plus = 0) => {
  if (!day) return "";
  const [year, month, date] = day.split("-").map(Number);
  return new Date(year, month - 1, date + plus).toISOString();
};

export function historyView(station) {
  const [form, grid, more, count, list, place] = [
    "filters",
    "grid",
    "more",
    "history-count",
    "history-list",
    "history-detail",
  ].map(byId);
  const turn = latest();
  let found = [];
  let next = null;
  let shown = null; // { id, …detail }
  let stale = true;

  const filters = () => {
    const { since, until, ...given } = Object.fromEntries(new FormData(form));
    return { ...given, since: dayStart(since), until: dayStart(until, 1) };
  };

  async function load(further = false) {
    const current = turn();
    const answer = await api.inspections({ ...filters(), limit: PAGE, before: further ? next : null });
    if (!current()) return;
    stale = false;
    const fresh = answer.inspections;
    found = further ? [...found, ...fresh] : fresh;
    next = answer.next;
    const items = fresh.map(item);
    if (further) grid.append(...items);
    else grid.replaceChildren(...items);
    if (further) items[0]?.querySelector("a").focus();
    more.hidden = !next;
    const filtered = Object.values(filters()).some(Boolean);
    count.textContent = found.length
      ? `${counted(found.length, "inspection")}${next ? " shown, there are older ones" : ""}`
      : filtered
        ? "No inspection matches; loosen the filters."
        : "No inspection yet; send a photo under Inspect.";
  }

  const item = inspection =>
    el(
      "li",
      { "data-id": inspection.id },
      el("a", { class: `tile ${inspection.verdict}`, href: `#/history/${inspection.id}` }, tile(inspection)),
    );

  async function open(id) {
    const current = turn();
    const inspection = await api.inspection(id);
    if (!current()) return;
    if (!found.some(each => each.id === id) && stale) station.doing(() => load()); // for its neighbours
    const told = answer => {
      found = found.map(each => (each.id === id ? answer : each));
      grid.querySelector(`[data-id="${CSS.escape(id)}"]`)?.replaceWith(item(answer));
    };
    shown = { id, ...detail(station, inspection, { told, level: "h1" }) };
    place.replaceChildren(
      el(
        "div",
        { class: "row steps" },
        el("a", { href: "#/history" }, "← All inspections"),
        el(
          "span",
          { class: "row" },
          el("button", { type: "button", "aria-keyshortcuts": "ArrowLeft", onclick: () => step(-1) }, "‹ Newer"),
          el("button", { type: "button", "aria-keyshortcuts": "ArrowRight", onclick: () => step(1) }, "Older ›"),
        ),
      ),
      shown.node,
    );
    list.hidden = true;
    place.hidden = false;
    shown.title.focus({ preventScroll: true });
    scrollTo(0, 0);
  }

  async function step(by) {
    const at = found.findIndex(each => each.id === shown?.id);
    if (at < 0) return;
    if (at + by >= found.length && next) await station.doing(() => load(true));
    const target = found[at + by];
    if (target) location.hash = `#/history/${target.id}`;
    else station.say(by < 0 ? "This is the newest one." : "This is the oldest one.");
  }

  // Through the grid as it is laid out: sideways by one, up and down by a row.
  function move(key) {
    const links = [...grid.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (at < 0 && ["ArrowUp", "ArrowDown"].includes(key)) return false; // the page scrolls
    if (at < 0) return links[0]?.focus();
    const row = links.filter(link => link.offsetTop === links[0].offsetTop).length;
    links[at + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row }[key]]?.focus();
  }

  byId("filter-more").open = !matchMedia("(max-width: 560px)").matches; // a phone shows the pictures first
  let typing = 0;
  const changed = () => {
    clearTimeout(typing);
    typing = setTimeout(() => station.doing(() => load()), 250);
  };
  form.addEventListener("input", changed);
  form.addEventListener("reset", () => setTimeout(changed));
  form.addEventListener("submit", event => {
    event.preventDefault();
    changed();
  });
  more.addEventListener("click", () => station.doing(() => load(true)));

  const mark = verdict => shown?.mark(verdict);
  const onDetail = action => () => shown && action();
  return {
    name: "History",
    async show(id) {
      const names = station.models.map(model => model.name);
      const select = byId("filter-model");
      const chosen = select.value;
      select.replaceChildren(
        el("option", { value: "" }, "any"),
        ...names.map(name => el("option", { value: name, selected: name === chosen }, name)),
      );
      if (id) return open(id);
      const back = shown?.id;
      shown = null;
      list.hidden = false;
      place.hidden = true;
      place.replaceChildren();
      if (!back || stale) await load();
      if (back && document.activeElement !== byId("search"))
        grid.querySelector(`[data-id="${CSS.escape(back)}"] a`)?.focus();
    },
    leave() {
      shown = null;
      stale = true;
    },
    keys: {
      g: () => mark("good"),
      b: () => mark("bad"),
      u: () => mark("unsure"),
      f: onDetail(() => shown.flip()),
      Escape: onDetail(() => {
        location.hash = "#/history";
      }),
      ArrowLeft: key => (shown ? step(-1) : move(key)),
      ArrowRight: key => (shown ? step(1) : move(key)),
      ArrowUp: key => (shown ? false : move(key)),
      ArrowDown: key => (shown ? false : move(key)),
    },
  };
}
