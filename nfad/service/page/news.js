// Inspections that were made while the history is open: put in place where that disturbs nobody, else offered.

import * as api from "./api.js";
import { byId, counted } from "./dom.js";

const LATE = 20_000; // milliseconds: a judgement may be kept after one that was begun later
const SPOKEN = 30_000; // milliseconds between two announcements

// The moment from which on to look: the newest known one's, less what may come late, but not before the filter's.
const from = (newest, since) => {
  const moment = newest ? new Date(Date.parse(newest.time) - LATE).toISOString() : "";
  return moment > since ? moment : since;
};

const told = fresh => {
  const among = ["anomalous", "not judged"].map(verdict => {
    const count = fresh.filter(each => each.verdict === verdict).length;
    return count && `${count.toLocaleString("en")} ${verdict}`;
  });
  return [counted(fresh.length, "new inspection"), ...among.filter(Boolean)].join(", ");
};

// `list`: { filters(), found(), hidden(), disturbed(), insert(inspections), reload() }, `page` of them at a time.
export function news(station, list, page) {
  const button = byId("news");
  let waiting = [];
  let more = false; // than one look brings: there is a gap between them and the list
  let unsaid = [];
  let spoken = 0;

  function clear() {
    waiting = [];
    more = false;
    button.hidden = true;
  }

  async function place() {
    const [fresh, gap] = [waiting, more];
    clear();
    if (gap) await list.reload();
    else list.insert(fresh);
  }

  function announce(fresh) {
    unsaid.push(...fresh);
    if (Date.now() - spoken < SPOKEN) return; // the next ones will take them along
    station.say(`${told(unsaid)}.`);
    unsaid = [];
    spoken = Date.now();
  }

  async function look(signal, still) {
    const { since, ...filters } = list.filters();
    const known = [...waiting, ...list.found()];
    const answer = await api.inspections({ ...filters, since: from(known[0], since), limit: page }, signal);
    if (!still()) return;
    const fresh = answer.inspections.filter(each => !known.some(old => old.id === each.id));
    if (!fresh.length) return;
    more ||= fresh.length === page;
    waiting = [...fresh, ...waiting];
    if (!list.hidden()) announce(fresh);
    if (!list.disturbed()) return place();
    button.textContent = more ? `More than ${told(waiting)}` : told(waiting);
    button.hidden = false;
  }

  button.addEventListener("click", () =>
    station.doing(async () => {
      await place();
      scrollTo(0, 0);
      byId("grid").querySelector("a")?.focus({ preventScroll: true });
    }),
  );
  return { look, clear, show: () => (button.hidden ? false : button.click()) };
}
