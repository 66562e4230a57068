// Shows what would happen if asks or a gang came, if a queue had other limits or an ask another priority, or if a node was lost.
// Nothing changes.

import { address } from "../address.js";
import { api } from "../api.js";
import { blank, el } from "../dom.js";
import { field } from "../fields.js";
import { forecastReport } from "../forecast.js";
import { readAmounts } from "../quantities.js";

const lower = (text) => text.trim();

/** The forms by name: the title, the fields, and the request that they make. */
const FORMS = {
  ask: {
    title: "New asks arrive",
    fields: [
      ["queue", "Queue", { placeholder: "root.prod" }],
      ["application", "Or an existing application", {}],
      ["resources", "Each asks for", { placeholder: "vcore=2, memory=4Gi", required: true }],
      ["count", "How many", { type: "number", min: 1, max: 10_000, value: 1 }],
      ["priority", "Priority", { type: "number", value: 0 }],
      ["user", "User", {}],
      ["node", "Only on node", {}],
    ],
    request: (given) => ({ ask: { queue: given.queue, applicationId: given.application, resources: readAmounts(given.resources), count: Number(given.count || 1), priority: Number(given.priority || 0), user: given.user, requiredNode: given.node } }),
  },
  gang: {
    title: "A gang arrives",
    fields: [
      ["queue", "Queue", { placeholder: "root.training" }],
      ["members", "Members", { type: "number", min: 1, max: 1_000, value: 1 }],
      ["resources", "Each member asks for", { placeholder: "vcore=4, memory=16Gi", required: true }],
      ["required", "All in one", { placeholder: "rack" }],
      ["priority", "Priority", { type: "number", value: 0 }],
      ["user", "User", {}],
    ],
    request: (given) => ({ ask: { gang: true, queue: given.queue, resources: readAmounts(given.resources), count: Number(given.members || 1), priority: Number(given.priority || 0), user: given.user, tags: given.required ? { "kornel.topology.required": given.required } : {} } }),
  },
  limits: {
    title: "The limits of a queue change",
    fields: [
      ["queue", "Queue", { placeholder: "root.prod", required: true }],
      ["max", "Max", { placeholder: "vcore=40, memory=100Gi" }],
      ["guaranteed", "Guaranteed", { placeholder: "vcore=20" }],
      ["unlimited", "No limit any more for", { placeholder: "memory" }],
    ],
    request: (given) => ({ quota: { queue: given.queue, max: readAmounts(given.max), guaranteed: readAmounts(given.guaranteed), unlimited: given.unlimited.split(/[,\s]+/).filter(Boolean) } }),
  },
  priority: {
    title: "The priority of an ask changes",
    fields: [
      ["key", "Ask or allocation", { required: true }],
      ["priority", "Priority", { type: "number", value: 0, required: true }],
    ],
    request: (given) => ({ priority: { key: given.key, priority: Number(given.priority) } }),
  },
  node: {
    title: "A node is lost",
    fields: [["node", "Node", { required: true }]],
    request: (given) => ({ nodeLost: { nodeId: given.node } }),
  },
};

export class WhatIfView {
  constructor() {
    this.kinds = el("div", { class: "segments", role: "group", "aria-label": "Suppose that" }, ...Object.entries(FORMS).map(([name, { title }]) => el("button", { type: "button", text: title, data: { form: name }, on: { click: () => address.set({ ...this.#cleared(), suppose: name }) } })));
    this.form = el("form", { class: "inline-form", on: { submit: (event) => this.#submit(event) } });
    this.answer = el("div", { class: "stack", role: "status" });
    this.root = el(
      "div",
      { class: "view scrolls" },
      el("div", { class: "tools" }, el("h1", { text: "What if" }), this.kinds),
      el("section", { class: "card", "aria-label": "Supposition" }, el("div", { class: "body form-body" }, this.form, el("p", { class: "muted", text: "The question changes nothing. The resource manager, which can still refuse a placement, is not asked." }))),
      el("section", { class: "card", "aria-label": "What would happen" }, el("header", {}, el("h2", { text: "What would happen" })), el("div", { class: "body stack" }, this.answer)),
    );
  }

  show() {
    this.follow();
  }

  hide() {}

  follow() {
    const name = address.get("suppose") in FORMS ? address.get("suppose") : "ask";
    for (const button of this.kinds.children) button.setAttribute("aria-pressed", String(button.dataset.form === name));
    if (this.name !== name) {
      this.name = name;
      this.form.replaceChildren(...FORMS[name].fields.map(([key, label, more]) => field(key, label, more)), el("button", { type: "submit", class: "primary", text: "What would happen?" }));
      this.asked = null;
      this.answer.replaceChildren(blank("", "Fill in the change to suppose."));
    }
    for (const [key, , { value = "" }] of FORMS[name].fields) this.form.elements[key].value = address.get(key) || value;
    if (address.get("asked")) this.#ask();
  }

  #cleared() {
    return Object.fromEntries([...Object.values(FORMS).flatMap((form) => form.fields.map(([key]) => key)), "asked", "suppose"].map((key) => [key, ""]));
  }

  #submit(event) {
    event.preventDefault();
    this.asked = null;
    const given = Object.fromEntries(FORMS[this.name].fields.map(([key]) => [key, lower(this.form.elements[key].value)]));
    const before = location.hash;
    address.set({ ...this.#cleared(), suppose: this.name, ...given, asked: "yes" });
    if (location.hash === before) this.#ask();
  }

  async #ask() {
    const { fields, request } = FORMS[this.name];
    const given = Object.fromEntries(fields.map(([key]) => [key, lower(this.form.elements[key].value)]));
    const wanted = JSON.stringify([this.name, given]);
    if (wanted === this.asked) return;
    this.asked = wanted;
    this.answer.setAttribute("aria-busy", "true");
    let content;
    try {
      content = forecastReport(await api.call("ExplainService/WhatIf", { partition: address.get("partition"), ...request(given) }));
    } catch (error) {
      content = [el("p", { class: "verdict bad", text: error.message })];
    }
    if (wanted !== this.asked) return;
    this.answer.removeAttribute("aria-busy");
    this.answer.replaceChildren(...content);
  }
}
