// Holds the kinds of preemption as the core describes them; the page itself knows none by name.

import { api } from "./api.js";

const PLAIN = { tone: "", leaves: false };

/** Emits `change` when the list has changed. `list`: the kinds in the order in which they run, the governor last. */
class Kinds extends EventTarget {
  list = [];
  #byName = new Map();

  /** Asks the core once. Code that shows a decision waits for this first. */
  async load(signal) {
    if (this.list.length) return;
    this.list = (await api.get("preemption-kinds", signal)).kinds;
    this.#byName = new Map(this.list.map((kind) => [kind.name, kind]));
    this.dispatchEvent(new Event("change"));
  }

  /** Forget the kinds, because another core may answer now. */
  forget() {
    this.list = [];
  }

  colour(name) {
    return this.#byName.get(name)?.colour ?? "grey";
  }

  /** Returns how good or bad the outcome of a decision is, and whether its victims were told to leave. */
  ending(one) {
    return this.#byName.get(one.kind)?.outcomes[one.outcome] ?? PLAIN;
  }
}

export const kinds = new Kinds();
