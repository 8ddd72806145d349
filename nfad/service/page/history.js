// Past inspections: a list that can be searched, and one of them in full.

import * as api from "./api.js";
import { byId, counted, el, latest } from "./dom.js";
import { detail, tile } from "./detail.js";
import { news } from "./news.js";

const PAGE = 48;
const LISTED = 4 * PAGE; // a list that nobody touches grows no longer than this

const ALL = { href: "#/history", words: "All inspections" };
const THRESHOLD = { href: "#/threshold", words: "Threshold" };

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
  const [listing, opening] = [latest(), latest()];
  let found = [];
  let next = null;
  let shown = null; // { id, …detail }
  let stale = true;
  let back = null; // where one came from: { href, words }

  const filters = () => {
    const { since, until, ...given } = Object.fromEntries(new FormData(form));
    return { ...given, since: dayStart(since), until: dayStart(until, 1) };
  };

  const filtersNow = () => JSON.stringify(filters());

  async function load(further = false) {
    const current = listing();
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
    else made.clear();
    told();
    station.say(count.textContent);
  }

  function told() {
    more.hidden = !next;
    const filtered = Object.values(filters()).some(Boolean);
    count.textContent = found.length
      ? `${counted(found.length, "inspection")}${next ? " shown, there are older ones" : ""}`
      : filtered
        ? "No inspection matches; loosen the filters."
        : "No inspection yet; send a photo under Inspect.";
  }

  // Ids sort by time, and a later judgement may have been kept before an earlier one.
  function insert(fresh) {
    for (const inspection of fresh) {
      const at = found.findIndex(each => each.id < inspection.id);
      if (at < 0 && next) continue; // it comes with the older ones
      const place = at < 0 ? found.length : at;
      found.splice(place, 0, inspection);
      grid.insertBefore(item(inspection), grid.children[place] ?? null);
    }
    if (found.length > LISTED && !list.hidden && !disturbed()) {
      found.length = LISTED - PAGE;
      while (grid.children.length > found.length) grid.lastChild.remove();
      next = found.at(-1).id;
    }
    told();
  }

  // Whether what is read, pointed at or under the keyboard would move.
  const disturbed = () =>
    !list.hidden && (scrollY > 0 || grid.matches(":hover") || grid.contains(document.activeElement));
  const made = news(
    station,
    { filters, found: () => found, hidden: () => list.hidden, disturbed, insert, reload: () => load() },
    PAGE,
  );

  const item = inspection =>
    el(
      "li",
      { "data-id": inspection.id },
      el("a", { class: `tile ${inspection.verdict}`, href: `#/history/${inspection.id}` }, tile(inspection)),
    );

  async function open(id) {
    const current = opening();
    const inspection = await api.inspection(id);
    if (!current()) return;
    if (stale) station.doing(() => load()); // for its neighbours
    const heard = answer => {
      found = found.map(each => (each.id === id ? answer : each));
      grid.querySelector(`[data-id="${CSS.escape(id)}"]`)?.replaceWith(item(answer));
    };
    shown = { id, ...detail(station, inspection, { told: heard, level: "h1" }) };
    place.replaceChildren(
      el(
        "div",
        { class: "row steps" },
        el("a", { href: back.href }, `← ${back.words}`),
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
    async show(id, from) {
      const names = station.models.map(model => model.name);
      const select = byId("filter-model");
      const chosen = select.value;
      select.replaceChildren(
        el("option", { value: "" }, "any"),
        ...names.map(name => el("option", { value: name, selected: name === chosen }, name)),
      );
      if (from !== "history") back = from === "threshold" ? THRESHOLD : ALL;
      if (id) return open(id);
      opening(); // one that is still on its way is no longer wanted
      const was = shown?.id;
      shown = null;
      list.hidden = false;
      place.hidden = true;
      place.replaceChildren();
      if (!was || stale) await load();
      if (was && document.activeElement !== byId("search"))
        grid.querySelector(`[data-id="${CSS.escape(was)}"] a`)?.focus();
    },
    beat(signal) {
      const asked = filtersNow();
      if (!stale) return made.look(signal, () => !stale && asked === filtersNow());
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
        location.hash = back.href;
      }),
      n: () => (shown ? false : made.show()),
      ArrowLeft: key => (shown ? step(-1) : move(key)),
      ArrowRight: key => (shown ? step(1) : move(key)),
      ArrowUp: key => (shown ? false : move(key)),
      ArrowDown: key => (shown ? false : move(key)),
    },
  };
}
