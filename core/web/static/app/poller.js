// Repeats a request: never twice at once, not while the page is hidden, and less often if answers take long. The requests
// that every view makes take a quarter of a percent of the core's time, and no poller takes more than half a percent, so
// that an open page takes at most one percent.

import { api } from "./api.js";

const SLOWEST_MS = 30_000;
const PAUSE_PER_WORK = 200;

export class Poller {
  #act;
  #every;
  #timer = 0;
  #stop = null;
  #failures = 0;
  #paid = 0;

  /** Makes a poller that awaits `act(signal)` again and again, `every` so many ms. The pause is at least two hundred times
      as long as the core worked. */
  constructor(act, every) {
    this.#act = act;
    this.#every = every;
    document.addEventListener("visibilitychange", () => {
      if (this.#stop && !document.hidden) this.now();
    });
  }

  start() {
    if (!this.#stop) this.#begin();
  }

  stop() {
    clearTimeout(this.#timer);
    this.#stop?.abort();
    this.#stop = null;
  }

  /** Ask at once, and ignore an answer that is under way. */
  now() {
    this.stop();
    this.#failures = 0;
    this.#begin();
  }

  /** Ask at once if this poller is running. */
  wake() {
    if (this.#stop) this.now();
  }

  #begin() {
    this.#stop = new AbortController();
    this.#paid = 0;
    this.#run(this.#stop);
  }

  async #run(stop) {
    try {
      await this.#act(stop.signal);
      this.#failures = 0;
    } catch (error) {
      if (stop.signal.aborted) return;
      this.#failures += 1;
      if (error.status === undefined) console.error(error);
    }
    if (stop.signal.aborted) return;
    const work = api.costOf(stop.signal) - this.#paid;
    this.#paid = api.costOf(stop.signal);
    const pause = Math.max(this.#every, PAUSE_PER_WORK * work) * 2 ** Math.min(this.#failures, 4);
    this.#timer = setTimeout(() => (document.hidden ? undefined : this.#run(stop)), Math.min(pause, SLOWEST_MS));
  }
}
