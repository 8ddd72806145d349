// The line: the newest part large, its verdict to be read from afar, three targets for a gloved hand. No numbers.

import * as api from "./api.js";
import { byId, CAMERA, el, icon, isJudged, kind, moment, shifted, word } from "./dom.js";

const EVERY = 1000; // milliseconds between two looks
const STEADY = 700; // a part must have been seen for so long before a touch can be meant for it
const QUEUE = 60; // of the last parts, those not reviewed, of which the worst come first
const TONES = { anomalous: [330, 220, 330, 220], "not judged": [440, 440, 440] }; // told apart by their number, too

export function lineView(station) {
  const [verdict, photo, name, buttons, undo] = ["line-verdict", "line-photo", "line-name", "line-buttons", "line-undo"].map(byId);
  const [worst, sound] = ["line-worst", "line-sound"].map(byId);
  let shown = null; // the inspection
  let since = 0;
  let waiting = []; // worst first, if that was asked for
  let last = null; // what can be undone: the id and the review before
  let timer = 0;
  let audio = null;
  let lost = false; // the last look was not answered
  let trouble = ""; // what stands in the verdict's place

  // No verdict stands large beside a part that the camera does not show: it may be an hour old.
  const blind = () => {
    const camera = station.model?.camera;
    return worst.checked ? "" : lost ? "No connection" : shifted(camera) ? "" : (CAMERA[camera] ?? "");
  };
  const model = () => station.model?.name;
  // What is not judged was seen by nobody yet; then the highest share of the threshold.
  const badness = each => (isJudged(each) ? each.score / each.threshold : Infinity);

  function show(inspection) {
    const [same, before] = [inspection?.id === shown?.id, trouble];
    trouble = blind();
    if (same && trouble === before) return;
    shown = inspection;
    if (!same) since = performance.now();
    const now = trouble ? "not judged" : (inspection?.verdict ?? "pending");
    const said = trouble || (inspection ? word(now) : "No part yet");
    verdict.className = `line-verdict ${kind(now)}`;
    verdict.replaceChildren(icon(now), el("span", {}, said));
    const picture = inspection?.images && (now === "anomalous" ? inspection.images.map : inspection.images.photo);
    photo.replaceChildren(...(picture ? [el("img", { src: picture, alt: `${said}: ${inspection.image}` })] : []));
    name.textContent = inspection ? `${inspection.image} · ${moment(inspection.time)}` : "";
    buttons.hidden = !inspection;
    mark(inspection?.review?.verdict);
    if (trouble ? trouble !== before : inspection) beep(TONES[now] ?? []);
  }

  function mark(said) {
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.value === said));
  }

  function beep(tones) {
    if (!audio || !sound.checked) return;
    tones.forEach((frequency, i) => {
      const [tone, volume] = [audio.createOscillator(), audio.createGain()];
      tone.frequency.value = frequency;
      volume.gain.value = 0.2;
      tone.connect(volume).connect(audio.destination);
      tone.start(audio.currentTime + 0.22 * i);
      tone.stop(audio.currentTime + 0.22 * i + 0.16);
    });
  }

  async function look() {
    clearTimeout(timer);
    try {
      if (worst.checked) {
        if (!waiting.length) await gather();
      } else {
        const { inspections } = await api.inspections({ model: model(), limit: 1 });
        lost = false;
        show(inspections[0] ?? null);
      }
    } catch (error) {
      if (error.status === 401) station.fail(error); // all else the page's own look tells, too
      else {
        lost = true;
        show(shown);
      }
    }
    if (!byId("line").hidden) timer = setTimeout(look, EVERY);
  }

  async function gather() {
    const { inspections } = await api.inspections({ model: model(), review: "none", limit: QUEUE });
    waiting = inspections.sort((a, b) => badness(b) - badness(a));
    show(waiting[0] ?? null);
  }

  const say = given =>
    station.doing(async () => {
      if (station.forbidden() || !shown || performance.now() - since < STEADY) return;
      const { id, review } = shown;
      const kept = await api.setReview(id, given, review?.note ?? "");
      last = { id, review };
      undo.hidden = false;
      undo.textContent = `Undo: ${word(given)}`;
      station.say(`${word(given)}: kept.`);
      if (worst.checked) {
        waiting = waiting.filter(each => each.id !== id);
        if (waiting.length) show(waiting[0]);
        else await gather();
      } else if (shown.id === id) {
        shown = kept;
        mark(given);
      }
    });

  undo.addEventListener("click", () =>
    station.doing(async () => {
      const { id, review } = last;
      const back = review ? await api.setReview(id, review.verdict, review.note ?? "") : await api.takeBackReview(id);
      undo.hidden = true;
      station.say("Taken back.");
      if (worst.checked) waiting.unshift(back);
      if (worst.checked) show(back);
      else if (shown?.id === id) {
        shown = back;
        mark(review?.verdict);
      }
    }),
  );
  for (const button of buttons.children) button.addEventListener("click", () => say(button.value));
  worst.addEventListener("change", () => {
    waiting = [];
    look();
  });
  sound.addEventListener("change", () => {
    audio ??= new AudioContext(); // a touch is needed before a page may sound
    beep([660]);
  });

  return {
    name: "Line",
    async show() {
      document.body.classList.add("at-line");
      await look();
    },
    leave() {
      clearTimeout(timer);
      document.body.classList.remove("at-line");
    },
    keys: { g: () => say("good"), b: () => say("bad"), u: () => say("unsure") },
  };
}
