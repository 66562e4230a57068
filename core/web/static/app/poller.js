// Asking again and again, politely: never twice at once, not while nobody looks, and less often if answers take long.

const SLOWEST_MS = 15_000;

export class Poller {
  #act;
  #every;
  #timer = 0;
  #stop = null;
  #failures = 0;

  /** `act(signal)` is awaited; `every` in ms. The pause is at least five times what the answer took. */
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

  /** Ask at once, and forget an answer under way. */
  now() {
    this.stop();
    this.#failures = 0;
    this.#begin();
  }

  #begin() {
    this.#stop = new AbortController();
    this.#run(this.#stop);
  }

  async #run(stop) {
    const began = performance.now();
    try {
      await this.#act(stop.signal);
      this.#failures = 0;
    } catch (error) {
      if (stop.signal.aborted) return;
      this.#failures += 1;
      if (error.status === undefined) console.error(error);
    }
    if (stop.signal.aborted) return;
    const took = performance.now() - began;
    const pause = Math.max(this.#every, 5 * took) * 2 ** Math.min(this.#failures, 4);
    this.#timer = setTimeout(() => (document.hidden ? undefined : this.#run(stop)), Math.min(pause, SLOWEST_MS));
  }
}
