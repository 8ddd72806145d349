// Looks again and again while somebody sees the page: every few seconds, and less and less often while nothing answers.

const EVERY = 5; // seconds
const LONGEST = 40;
const PATIENCE = 15; // a look that takes longer has failed

// `look(signal)` rejects when nothing answers; `lost` and `found` hear of the first failure and of its end.
export function live(look, { lost, found }) {
  let failures = 0;
  let timer = 0;
  let looking = false;

  async function beat() {
    clearTimeout(timer);
    if (looking || document.hidden) return; // becoming visible again is a beat of its own
    looking = true;
    try {
      await look(AbortSignal.timeout(1000 * PATIENCE));
      if (failures) await found();
      failures = 0;
    } catch (error) {
      if (!failures++) lost(error);
    }
    looking = false;
    timer = setTimeout(beat, 1000 * Math.min(LONGEST, EVERY * 2 ** Math.max(0, failures - 1)));
  }

  document.addEventListener("visibilitychange", beat);
  addEventListener("online", beat);
  timer = setTimeout(beat, 1000 * EVERY);
  return beat;
}
