// Links to the documentation and to Grafana. The core says where they are: `kornel serve --docs-url`, `--grafana-url`.

import { api } from "./api.js";

/** The page and section of the documentation about each view and each group of words. */
export const PAGES = {
  overview: "web",
  queues: "queues",
  applications: "reasons#states-of-an-application",
  application: "explain",
  nodes: "operations",
  users: "limits",
  preemption: "preemption",
  history: "history",
  events: "events",
  configuration: "configuration",
  "what-if": "explain",
  search: "web",
  refusals: "reasons#refusals",
  laws: "preemption#the-laws",
  terms: "glossary",
  refusal: "reasons#refusals",
  waiting: "reasons#why-an-ask-waits",
  outcome: "reasons#how-a-try-to-preempt-ended",
  verdict: "reasons#how-a-try-to-preempt-ended",
  state: "reasons#states-of-an-application",
};

/** Emits `change` once the core has said where the documentation is. */
class Documentation extends EventTarget {
  #links = {};

  async load() {
    try {
      this.#links = await api.get("scheduler/links");
    } catch {
      this.#links = {};
    }
    this.dispatchEvent(new Event("change"));
  }

  /** The address of Grafana; empty: none. */
  get grafana() {
    return this.#links.grafana ?? "";
  }

  /** Returns the address of the section about `name`, one of `PAGES`; empty: this core knows of no documentation. */
  about(name) {
    const { documentation } = this.#links;
    const [page, section = ""] = (PAGES[name] ?? "").split("#");
    return documentation && page ? documentation.replaceAll("{page}", page) + (section && `#${section}`) : "";
  }
}

export const documentation = new Documentation();
