// Knows who the reader is, as the core records it, and what the reader may change from this page.

import { api } from "./api.js";

/** Emits `change` when the caller has changed. */
class Rights extends EventTarget {
  #asked = null;
  #caller = null;

  /** The caller: name, permissions, and why nothing can be changed from here (`refusal`). The core is asked once for each
      token. */
  async load() {
    this.#asked ??= api.get("caller");
    try {
      this.#caller = await this.#asked;
    } catch (error) {
      this.#asked = null;
      throw error;
    }
    return this.#caller;
  }

  forget() {
    this.#asked = this.#caller = null;
    this.dispatchEvent(new Event("change"));
  }

  /** Returns a sentence about why the caller lacks `permission`; empty: the caller has it. It is called after `load`. */
  refusal(permission) {
    const caller = this.#caller;
    if (!caller) return "The core has not said yet who you are.";
    if (!caller.permissions.includes(permission)) return `You are ${caller.name}, who does not have the permission "${permission}".`;
    return caller.refusal ? `Nothing can be changed from here: ${caller.refusal}.` : "";
  }

  /** Returns a sentence about who will be recorded. */
  get recorded() {
    return `You will be recorded as ${this.#caller?.name ?? "nobody yet"}.`;
  }
}

export const rights = new Rights();
