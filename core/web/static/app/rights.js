// Knows who the reader is, as the core records it, and what the reader may change from this page.

import { api } from "./api.js";

/** Emits `change` when somebody else is asked for. */
class Rights extends EventTarget {
  #asked = null;
  #caller = null;

  /** Who asks: name, permissions, and why nothing can be changed from here (`refusal`). Asked once for each token. */
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

  /** Why the caller may not do what takes `permission`, in a sentence; empty: they may. To be asked after `load`. */
  refusal(permission) {
    const caller = this.#caller;
    if (!caller) return "The core has not said yet who you are.";
    if (!caller.permissions.includes(permission)) return `You are ${caller.name}, who does not have the permission "${permission}".`;
    return caller.refusal ? `Nothing can be changed from here: ${caller.refusal}.` : "";
  }

  /** Who will be recorded, in a sentence. */
  get recorded() {
    return `You will be recorded as ${this.#caller?.name ?? "nobody yet"}.`;
  }
}

export const rights = new Rights();
