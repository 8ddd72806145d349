// The history's filters: the fields of a form, repeated behind the address's "?" so that they can be kept and sent.

import { byId, el } from "./dom.js";

const PAUSE = 250; // milliseconds without a further letter
const TYPED = ["search", "date"]; // fields in which every letter is a change

// A day of the operator's, as the moments the service wants; `until` is exclusive, so it is the next day's start.
const dayStart = (day, plus = 0) => {
  if (!day) return "";
  const [year, month, date] = day.split("-").map(Number);
  return new Date(year, month - 1, date + plus).toISOString();
};

const isSet = field => (field.type === "checkbox" ? field.checked : field.value !== "") && field.validity.valid;

// Addresses are also written by hand: what a field cannot hold leaves it empty.
function put(field, value) {
  if (field.type === "checkbox") {
    field.checked = value === field.value;
    return;
  }
  field.value = value;
  const tooLong = field.maxLength >= 0 && value.length > field.maxLength;
  if (field.value !== value || tooLong || !field.validity.valid) field.value = "";
}

// `apply` hears of every change once it stands in the address.
export function filterForm(apply) {
  const [form, folded, model] = ["filters", "filter-more", "filter-model"].map(byId);
  const fields = [...form.elements].filter(field => field.name);
  let timer = 0;
  let typing = null; // the field whose letters come one after another
  let step = false; // whether Back shall lead to before this change

  const given = () => fields.filter(isSet).map(field => [field.name, field.value]);
  const query = () => new URLSearchParams(given()).toString();

  // Of the list, or of one inspection in it.
  const address = id => ["#/history", id && `/${id}`, query() && `?${query()}`].filter(Boolean).join("");

  // As the service wants them.
  function asked() {
    const { since, until, ...same } = Object.fromEntries(given());
    return { ...same, since: dayStart(since), until: dayStart(until, 1) };
  }

  function forget() {
    clearTimeout(timer);
    typing = null;
    step = false;
  }

  function read(query, models) {
    forget();
    model.replaceChildren(
      el("option", { value: "" }, "any"),
      ...models.map(({ name }) => el("option", { value: name }, name)),
    );
    const told = new URLSearchParams(query);
    for (const field of fields) put(field, told.get(field.name) ?? "");
    if (fields.some(field => isSet(field) && folded.contains(field))) folded.open = true; // nothing filters unseen
  }

  function write() {
    if (address() !== location.hash) history[step ? "pushState" : "replaceState"](null, "", address());
    step = false;
    apply();
  }

  // A word is one step back, not each of its letters.
  function changed(field) {
    const letter = TYPED.includes(field?.type);
    step ||= !letter || field !== typing;
    typing = letter ? field : null;
    clearTimeout(timer);
    timer = setTimeout(write, PAUSE);
  }

  folded.open = !matchMedia("(max-width: 560px)").matches; // a phone shows the pictures first
  form.addEventListener("input", event => changed(event.target));
  form.addEventListener("reset", () => setTimeout(changed));
  form.addEventListener("submit", event => {
    event.preventDefault();
    changed(byId("search"));
  });
  return { address, asked, query, read, forget };
}
