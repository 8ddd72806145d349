// The photo under its map, and a slider that takes the filter away and puts it back.

import { el, icon, isJudged, styled, svg } from "./dom.js";
import { between, levels, outline, paint, paintScale } from "./heat.js";

const MOVE = 350; // milliseconds from one end of the slider to the other
const percentOf = (count, all) => `${Number(((100 * count) / all).toPrecision(2))}%`;
const UNJUDGED = "This photo is not judged: its map says nothing about the part, and is hidden at first.";
const still = matchMedia("(prefers-reduced-motion: reduce)");

export function viewer(inspection) {
  const { images, view, scale } = inspection;
  if (!images) {
    return {
      node: el(
        "div",
        { class: "gone card" },
        icon("pending"),
        el("p", {}, "The pictures of this inspection were removed to keep the disk free; its record remains."),
      ),
      flip() {},
    };
  }
  const canvas = el("canvas", { class: "heat", "aria-hidden": "true" });
  const path = svg("path");
  const drawing = svg("svg", { class: "outline", preserveAspectRatio: "none", "aria-hidden": "true" }, path);
  const box = styled(el("div", { class: "view" }, canvas, drawing), {
    left: `${100 * view.left}%`,
    top: `${100 * view.top}%`,
    width: `${100 * view.width}%`,
    height: `${100 * view.height}%`,
  });
  const photo = el("img", { src: images.photo, alt: `Photo ${inspection.image}`, class: "photo" });
  const stage = styled(el("div", { class: "stage" }, photo, box), { "--ratio": inspection.width / inspection.height });

  const slider = el("input", {
    type: "range",
    min: 0,
    max: 100,
    value: 100,
    "aria-label": "Strength of the filter in the map",
  });
  const shining = isJudged(inspection) ? 100 : 0; // a map that says nothing must not look like defects
  const opacity = el("input", { type: "range", min: 0, max: 100, value: shining, "aria-label": "Opacity of the map" });
  const withoutFilter = el("button", { type: "button", class: "end" }, "Without filter");
  const withFilter = el("button", { type: "button", class: "end" }, "With filter");
  const told = el("p", { class: "soft found" }, "Loading the map …");

  let maps = null;
  const draw = () => {
    const share = slider.value / 100;
    withoutFilter.setAttribute("aria-pressed", share === 0);
    withFilter.setAttribute("aria-pressed", share === 1);
    slider.setAttribute(
      "aria-valuetext",
      share === 1 ? "with filter" : share === 0 ? "without filter" : `${slider.value}% of the filter`,
    );
    if (!maps) return;
    const shown = between(maps.unfiltered, maps.filtered, share);
    paint(canvas, shown);
    if (!isJudged(inspection)) {
      told.textContent = UNJUDGED;
      return;
    }
    // Of two thresholds the one between: at either end it is the read-out's own.
    const ends = [inspection.unfiltered_threshold ?? inspection.threshold, inspection.threshold];
    const line = ends[0] + share * (ends[1] - ends[0]);
    // On a part that passes, a spot above the threshold is no defect, and an outline would look like one.
    const judged = share < 0.5 ? inspection.unfiltered_verdict : inspection.verdict;
    const rejected = judged === "anomalous";
    path.setAttribute("d", rejected ? outline(shown, (line / scale) * 255) : "");
    drawing.setAttribute("viewBox", `0 0 ${shown.width} ${shown.height}`);
    const above = shown.values.reduce((count, value) => count + (value > (line / scale) * 255), 0);
    const where = share === 1 ? "with the filter" : share === 0 ? "without the filter" : "in between";
    const why = rejected ? " (outlined)" : ", too little to reject the part: no outline";
    told.textContent = above
      ? `${percentOf(above, shown.values.length)} of the view lies above the threshold ${where}${why}.`
      : `Nothing in the view lies above the threshold ${where}.`;
  };

  let frame = 0;
  const slide = target => {
    cancelAnimationFrame(frame);
    const from = Number(slider.value);
    const start = performance.now();
    const step = now => {
      const done = still.matches ? 1 : Math.min(1, (now - start) / MOVE);
      slider.value = from + (target - from) * done;
      draw();
      if (done < 1) frame = requestAnimationFrame(step);
    };
    step(start);
  };
  slider.addEventListener("input", () => {
    cancelAnimationFrame(frame);
    draw();
  });
  const fade = () => {
    styled(stage, { "--heat": opacity.value / 100 });
    opacity.setAttribute("aria-valuetext", `${opacity.value}%`);
  };
  opacity.addEventListener("input", fade);
  fade();
  withoutFilter.addEventListener("click", () => slide(0));
  withFilter.addEventListener("click", () => slide(100));
  draw();

  Promise.all([levels(images.unfiltered_map), levels(images.map)]).then(
    ([unfiltered, filtered]) => {
      maps = { unfiltered, filtered };
      draw();
    },
    error => {
      told.textContent = `The map cannot be shown: ${error.message}`;
    },
  );

  const ramp = el("canvas", { class: "ramp", "aria-hidden": "true" });
  paintScale(ramp);
  const node = el(
    "figure",
    { class: "viewer" },
    stage,
    el(
      "figcaption",
      {},
      el("div", { class: "slider", role: "group", "aria-label": "Filter" }, withoutFilter, slider, withFilter),
      el(
        "div",
        { class: "under" },
        told,
        el("label", { class: "fade" }, "Photo", opacity, "Map"),
        el(
          "span",
          { class: "scale", role: "img", "aria-label": `Colour scale: z-scores from 0 to ${scale.toFixed(1)}` },
          "0",
          ramp,
          `${scale.toFixed(1)} z`,
        ),
      ),
    ),
  );
  return { node, flip: () => slide(slider.value >= 50 ? 0 : 100) };
}
