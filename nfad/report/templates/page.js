// The style sheet does the hiding and fading; the script only says what was chosen.
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const cards = all(".card");
  const place = new Map(cards.map((card, index) => [card, index]));
  const count = () => {
    const shown = root.dataset.show || "all";
    const number = shown === "all" ? cards.length : cards.filter(card => card.classList.contains(shown)).length;
    const told = number === cards.length ? "" : `${number} of ${cards.length} shown`;
    all("[role=status]").forEach(status => status.textContent = told);
  };
  all(".choice button").forEach(button => button.addEventListener("click", () => {
    all("button", button.parentElement).forEach(other => other.setAttribute("aria-pressed", other === button));
    Object.assign(root.dataset, button.dataset);
    count();
  }));
  // A card without a score (failed, or not a number) comes last in both directions.
  const score = card => card.dataset.score === "" ? NaN : Number(card.dataset.score);
  const orders = {
    given: (a, b) => place.get(a) - place.get(b),
    high: (a, b) => score(b) - score(a),
    low: (a, b) => score(a) - score(b),
  };
  const missingLast = (a, b) => Number.isNaN(score(a)) - Number.isNaN(score(b));
  document.querySelector("#sort")?.addEventListener("change", event => {
    const chosen = event.target.value;
    const last = chosen === "given" ? () => 0 : missingLast;
    const compare = (a, b) => last(a, b) || orders[chosen](a, b) || orders.given(a, b);
    all(".items").forEach(items => items.append(...all(".card", items).sort(compare)));
  });
  document.querySelector("#fade")?.addEventListener("input", event =>
    root.style.setProperty("--heat", event.target.value / 100));
  root.classList.add("live");
})();
