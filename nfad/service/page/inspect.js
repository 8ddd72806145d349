// New photos: dropped, chosen, pasted or taken; sent a few at a time, each with a place in the list from the start.

import * as api from "./api.js";
import { camera } from "./camera.js";
import { badge, byId, counted, el, icon, word } from "./dom.js";
import { detail, tile } from "./detail.js";

const AT_ONCE = 3; // so that the service finds several to judge together
const LISTED = 60;
const PATIENCE = 20; // tries against a full queue before a photo is given up
const PASSING = [0, 401, 408, 429]; // no answer, no longer logged in, too slow, no room; and whatever the service broke

const mayDoBetter = ({ status }) => PASSING.includes(status) || status >= 500;

const pause = seconds => new Promise(done => setTimeout(done, 1000 * seconds));

export function inspectView(station) {
  const list = byId("jobs");
  const place = byId("inspect-detail");
  let jobs = []; // the newest first
  let open = null; // the job shown in full
  let shown = null;
  let working = 0;

  async function add(files) {
    const images = [...files];
    if (!images.length) return;
    if (station.forbidden()) return void station.fail(new Error(station.forbidden())); // dropped, or pasted
    if (!station.model) await station.refresh(); // a photo dropped before the page has asked for the models
    if (!station.model) return void station.fail(new Error("The service does not answer; try again."));
    location.hash = "#/inspect";
    const fresh = images.map(file => ({
      file,
      name: file.name,
      model: station.model.name,
      state: "waiting",
      node: el("li"),
    }));
    fresh[0].first = true; // of these, the one to show when it is judged
    jobs.unshift(...fresh);
    list.prepend(...fresh.map(job => job.node));
    fresh.forEach(render);
    byId("inspect-list").hidden = false;
    byId("inspect").classList.add("busy"); // the photos need the room
    station.say(`${counted(images.length, "photo")} being inspected.`);
    while (working < AT_ONCE && jobs.some(job => job.state === "waiting")) work();
  }

  async function work() {
    working++;
    for (let job; (job = jobs.find(each => each.state === "waiting"));) await judge(job);
    working--;
    station.refresh();
  }

  async function judge(job) {
    job.state = "sending";
    render(job);
    try {
      job.inspection = await patiently(job);
      job.state = "done";
      station.say(`${job.name}: ${job.inspection.explanation}`);
    } catch (error) {
      job.state = "failed";
      job.error = error;
      station.fail(error, job.name);
    }
    render(job);
    if (job.first && job.state === "done") choose(job);
    const old = jobs.filter(each => each.state === "done" && each !== open).slice(LISTED);
    old.forEach(each => each.node.remove());
    jobs = jobs.filter(each => !old.includes(each));
  }

  async function patiently(job) {
    for (let turn = 1; ; turn++) {
      try {
        return await api.inspect(job.model, job.file, job.name);
      } catch (error) {
        // Only a full queue is sure to have left no record; anything else is for a person to repeat.
        if (error.status !== 429 || turn === PATIENCE) throw error;
        const seconds = error.retryAfter ?? 1;
        job.progress = `The queue is full; trying again in ${seconds} s.`;
        render(job);
        await pause(seconds);
      }
    }
  }

  // The same photo once more where that may help; otherwise why not, for whoever has dismissed the message.
  function remedy(job) {
    const again = () => {
      job.state = "waiting";
      job.progress = "";
      work();
    };
    return mayDoBetter(job.error)
      ? el("button", { type: "button", onclick: again }, "Try again")
      : el("button", { type: "button", onclick: () => station.fail(job.error, job.name) }, "Why?");
  }

  function render(job) {
    if (job.state === "done") {
      job.node.replaceChildren(
        el(
          "button",
          {
            type: "button",
            class: "tile",
            "aria-pressed": job === open,
            "aria-label": `${job.name}: ${word(job.inspection.verdict)}`,
            onclick: () => choose(job, true),
          },
          tile(job.inspection),
        ),
      );
      return;
    }
    const failed = job.state === "failed";
    job.node.replaceChildren(
      el(
        "div",
        { class: failed ? "tile failed" : "tile" },
        el("span", { class: "thumb" }, icon(failed ? "unsure" : "pending")),
        el(
          "span",
          { class: "told" },
          el("bdi", { class: "name" }, job.name),
          failed ? badge("unsure", "No verdict") : el("span", { class: "soft" }, job.progress || "being judged …"),
          failed && remedy(job),
        ),
      ),
    );
  }

  function choose(job, focus = false) {
    const before = open;
    open = job;
    if (before) render(before);
    render(job);
    shown = detail(station, job.inspection, {
      told: (inspection, first) => {
        job.inspection = inspection;
        render(job);
        const behind = jobs.slice(jobs.indexOf(job) + 1).find(each => each.inspection && !each.inspection.review);
        if (first && job === open && behind) choose(behind, true);
      },
    });
    place.replaceChildren(shown.node);
    if (focus) shown.title.focus();
  }

  function step(by) {
    const judged = jobs.filter(job => job.state === "done");
    const next = judged[judged.indexOf(open) + by];
    if (open && next) choose(next, true);
  }

  const files = byId("files");
  byId("choose").addEventListener("click", () => files.click());
  files.addEventListener("change", () => {
    add(files.files);
    files.value = "";
  });
  document.addEventListener("paste", event => {
    if (station.model && event.clipboardData?.files.length) add(event.clipboardData.files);
  });
  // Anywhere on the page: a photo dropped beside the field must not replace the page.
  const over = on => document.documentElement.classList.toggle("dropping", on);
  addEventListener("dragover", event => {
    event.preventDefault();
    over(true);
  });
  addEventListener("dragleave", event => {
    if (!event.relatedTarget) over(false);
  });
  addEventListener("drop", event => {
    event.preventDefault();
    over(false);
    if (station.model) add(event.dataTransfer.files);
  });
  const eye = camera(station, file => add([file]));

  return {
    name: "Inspect",
    show() {},
    leave: () => eye.close(),
    keys: {
      g: () => shown?.mark("good"),
      b: () => shown?.mark("bad"),
      u: () => shown?.mark("unsure"),
      f: () => shown?.flip(),
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
    },
  };
}
