// Single keys and the help that lists them. They can be switched off, for people who speak to their computer.

import { byId } from "./dom.js";

const TEXT = "input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select";

export function keyboard(station, view) {
  const help = byId("help");
  const on = byId("keys-on");
  on.checked = localStorage.getItem("keys") !== "off";
  on.addEventListener("change", () => localStorage.setItem("keys", on.checked ? "on" : "off"));
  byId("help-button").addEventListener("click", () => help.showModal());
  byId("help-close").addEventListener("click", () => help.close());
  help.addEventListener("click", event => {
    if (event.target === help) help.close();
  });

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open || !station.model) return;
    const { target, key } = event;
    if (target.matches(TEXT) || target.closest("[contenteditable]")) {
      if (key === "Escape") target.blur();
      return;
    }
    // Arrows belong to sliders, radio buttons and regions that scroll while these have the focus.
    if (key.startsWith("Arrow") && target.matches("input, .scroll, summary")) return;
    if (!on.checked && key.length === 1) return;
    if (!byId("login").hidden) return;
    const action = { "?": () => help.showModal(), "/": search }[key] ?? view()?.keys[key];
    if (action && action(key) !== false) event.preventDefault();
  });
}

function search() {
  const focus = () => byId("search").focus();
  const [address, ...query] = location.hash.split("?");
  if (address === "#/history") return void focus();
  addEventListener("hashchange", focus, { once: true }); // after the router's, which makes the field visible
  location.hash = address.startsWith("#/history/") ? ["#/history", ...query].join("?") : "#/history";
}
