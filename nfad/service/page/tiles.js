// Tiles as one stop of the Tab key: arrows lead from tile to tile, as they are laid out.

const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

// { settle, focus, move(key) }; `settle` after tiles came or went.
export function tiles(grid) {
  const links = () => [...grid.querySelectorAll("a")];
  let last = null; // the one that had the focus last

  const stop = () => (grid.contains(last) ? last : grid.querySelector("a"));
  function settle() {
    const one = stop();
    for (const link of links()) link.tabIndex = link === one ? 0 : -1;
  }

  grid.addEventListener("focusin", event => {
    last = event.target;
    settle();
  });

  // False where the key belongs to the page, which scrolls.
  function move(key) {
    const all = links();
    const at = all.indexOf(document.activeElement);
    if (at < 0) return key in STEPS ? stop()?.focus() : false;
    const row = all.filter(link => link.offsetTop === all[0].offsetTop).length;
    const places = { Home: 0, End: all.length - 1, ArrowUp: at - row, ArrowDown: at + row };
    all[places[key] ?? at + STEPS[key]]?.focus();
  }

  return { settle, move, focus: () => stop()?.focus() };
}
