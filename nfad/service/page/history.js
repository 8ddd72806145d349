// Past inspections: a list that can be searched, and one of them in full.

import * as api from "./api.js";
import { byId, counted, el, kind, latest } from "./dom.js";
import { detail, tile } from "./detail.js";
import { filterForm } from "./filters.js";
import { news } from "./news.js";
import { tiles } from "./tiles.js";

const PAGE = 48;
const LISTED = 4 * PAGE; // a list that nobody touches grows no longer than this

const THRESHOLD = { href: "#/threshold", words: "Threshold" };

export function historyView(station) {
  const [grid, more, count, skip, list, place] = [
    "grid",
    "more",
    "history-count",
    "grid-skip",
    "history-list",
    "history-detail",
  ].map(byId);
  const [listing, opening] = [latest(), latest()];
  const filters = filterForm(() => station.doing(() => load()));
  const walk = tiles(grid);
  let found = [];
  let next = null;
  let shown = null; // { id, …detail }
  let listed = null; // the list's filters as a query; null where it must be loaded anew
  let elsewhere = null; // the view one came from: { href, words }

  const isListed = () => listed === filters.query();

  const back = () =>
    elsewhere ?? { href: filters.address(), words: filters.query() ? "Inspections found" : "All inspections" };

  async function load(further = false) {
    const current = listing();
    const query = filters.query();
    const answer = await api.inspections({ ...filters.asked(), limit: PAGE, before: further ? next : null });
    if (!current()) return;
    listed = query;
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
    skip.hidden = !found.length;
    walk.settle();
    count.textContent = found.length
      ? `${counted(found.length, "inspection")}${next ? " shown, there are older ones" : ""}`
      : next
        ? "No match among the newest; older ones may."
        : filters.query()
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
    { filters: filters.asked, found: () => found, hidden: () => list.hidden, disturbed, insert, reload: () => load() },
    PAGE,
  );

  const item = inspection =>
    el(
      "li",
      { "data-id": inspection.id },
      el("a", { class: `tile ${kind(inspection.verdict)}`, href: filters.address(inspection.id) }, tile(inspection)),
    );

  async function open(id) {
    const current = opening();
    if (!isListed()) station.doing(() => load()); // for its neighbours
    const inspection = await api.inspection(id);
    if (!current()) return;
    const heard = (answer, first) => {
      found = found.map(each => (each.id === id ? answer : each));
      grid.querySelector(`[data-id="${CSS.escape(id)}"]`)?.replaceWith(item(answer));
      walk.settle();
      if (first && shown?.id === id && filters.asked().review === "none") step(1); // among those to be reviewed
    };
    shown = { id, ...detail(station, inspection, { told: heard, level: "h1" }) };
    place.replaceChildren(
      el(
        "div",
        { class: "row steps" },
        el("a", { href: back().href }, `← ${back().words}`),
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
    if (target) location.hash = filters.address(target.id);
    else station.say(by < 0 ? "This is the newest one." : "This is the oldest one.");
  }

  skip.addEventListener("click", event => {
    event.preventDefault(); // the address is the list's
    walk.focus();
  });
  more.addEventListener("click", () => station.doing(() => load(true)));

  const mark = verdict => shown?.mark(verdict);
  const onDetail = action => () => shown && action();
  const onList = key => (shown ? false : walk.move(key));
  return {
    name: "History",
    async show(id, from, query) {
      filters.read(query, station.models);
      if (from !== "history") elsewhere = from === "threshold" ? THRESHOLD : null;
      if (id) return open(id);
      elsewhere = null;
      opening(); // one that is still on its way is no longer wanted
      const was = shown?.id;
      shown = null;
      list.hidden = false;
      place.hidden = true;
      place.replaceChildren();
      if (!was || !isListed()) await load();
      if (was && document.activeElement !== byId("search"))
        grid.querySelector(`[data-id="${CSS.escape(was)}"] a`)?.focus();
    },
    beat(signal) {
      if (isListed()) return made.look(signal, isListed);
    },
    leave() {
      filters.forget();
      shown = null;
      listed = null;
    },
    keys: {
      g: () => mark("good"),
      b: () => mark("bad"),
      u: () => mark("unsure"),
      f: onDetail(() => shown.flip()),
      Escape: onDetail(() => {
        location.hash = back().href;
      }),
      n: () => (shown ? false : made.show()),
      ArrowLeft: key => (shown ? step(-1) : walk.move(key)),
      ArrowRight: key => (shown ? step(1) : walk.move(key)),
      ArrowUp: onList,
      ArrowDown: onList,
      Home: onList,
      End: onList,
    },
  };
}
