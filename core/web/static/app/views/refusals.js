// What the core refused lately, and why: asks, applications, nodes and configurations.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster } from "../cluster.js";
import { DataTable } from "../data_table.js";
import { el } from "../dom.js";
import { link, openDetails, setLink } from "../links.js";
import { Poller } from "../poller.js";
import { count, moment, plural, readable, shortMoment, words } from "../units.js";
import { wordLink } from "../word_links.js";

const KINDS = ["ask", "application", "node", "configuration"];
const MOST = 2_000;

export class RefusalsView {
  constructor() {
    this.kinds = Object.fromEntries(KINDS.map((kind) => [kind, el("button", { type: "button", text: words(plural(kind)), "aria-pressed": "false", on: { click: () => address.set({ kind: address.get("kind") === kind ? "" : kind }) } })]));
    this.table = new DataTable({
      label: "What was refused, the newest first",
      noun: "refusal",
      sort: "-time",
      height: 40,
      empty: "Nothing has been refused since the core started.",
      keyOf: (one) => one.number,
      open: openRefused,
      describe: (one) => `${moment(one.time)}, ${one.kind} ${one.name}: ${words(one.reason)}, ${one.message ?? ""}`,
      columns: COLUMNS,
    });
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Refused" }), el("span", { class: "segments", role: "group", "aria-label": "Kind" }, ...Object.values(this.kinds)), this.table.filter, el("span", { class: "space" }), this.table.count, this.table.csv),
      el("p", { class: "muted", text: "The latest few hundred of each kind since the core started. Refused applications and configurations are in the history too." }),
      el("div", { class: "card sheet" }, this.table.root),
    );
    this.poller = new Poller((signal) => this.#fetch(signal), 2_000);
    cluster.addEventListener("partition", () => this.root.isConnected && this.poller.now());
  }

  show() {
    this.follow();
  }

  follow() {
    for (const [kind, button] of Object.entries(this.kinds)) button.setAttribute("aria-pressed", String(address.get("kind") === kind));
    this.table.follow();
    this.poller.now();
  }

  hide() {
    this.poller.stop();
  }

  async #fetch(signal) {
    const query = new URLSearchParams({ limit: MOST });
    if (address.get("kind")) query.set("kind", address.get("kind"));
    if (address.get("partition")) query.set("partition", address.get("partition"));
    const { counts, refusals } = await api.get(`scheduler/refusals?${query}`, signal);
    for (const [kind, button] of Object.entries(this.kinds)) button.textContent = `${words(plural(kind))} ${count(counts[kind])}`;
    this.table.show(refusals);
  }
}

/** The state of a refused object is shown where objects of its kind are shown. */
function openRefused(one) {
  if (one.kind === "configuration") address.go("configuration", { version: one.name });
  else if (one.applicationID) openDetails("application", one.applicationID);
  else if (one.reason === "node-exists") openDetails("node", one.name);
}

const COLUMNS = [
  { key: "time", title: "When", value: (one) => one.time, text: (one) => shortMoment(one.time), saved: [["When", (one) => moment(one.time)]], width: "66px" },
  { key: "kind", title: "What", value: (one) => words(one.kind), width: "104px", wide: true },
  { key: "name", title: "Name", value: (one) => one.name, draw: drawName, width: "minmax(80px, 1.2fr)" },
  { key: "application", title: "Application", value: (one) => (one.kind === "ask" ? (one.applicationID ?? "") : ""), draw: (cell, one) => drawLink(cell, "application", one.kind === "ask" ? one.applicationID : ""), width: "minmax(80px, 1fr)", wide: true },
  { key: "queue", title: "Queue", value: (one) => one.queueName ?? "", width: "minmax(60px, 0.8fr)", wide: true },
  { key: "user", title: "By", value: (one) => one.user ?? "", width: "minmax(60px, 0.7fr)", wide: true },
  { key: "manager", title: "Manager", value: (one) => one.rmID ?? "", mono: true, width: "minmax(70px, 0.7fr)", wide: true },
  { key: "reason", title: "Reason", value: (one) => one.reason ?? "", draw: drawReason, width: "minmax(70px, 1fr)" },
  { key: "because", title: "Because", value: (one) => readable(one.message), draw: drawMessage, width: "minmax(90px, 2.2fr)" },
];

function drawName(cell, one) {
  if (cell.shown === one.number) return;
  cell.shown = one.number;
  const shown = one.kind === "configuration" ? el("a", { href: address.href("configuration", { version: one.name }), text: `version ${one.name}` }) : one.kind === "application" ? link("application", one.name) : el("span", { class: "mono", text: one.name, title: one.name });
  cell.replaceChildren(shown);
}

function drawLink(cell, kind, name) {
  if (!cell.firstChild) cell.append(link(kind, name || " "));
  cell.firstChild.hidden = !name;
  setLink(cell.firstChild, kind, name ?? "");
}

function drawReason(cell, one) {
  if (cell.shown === one.number) return;
  cell.shown = one.number;
  cell.replaceChildren(wordLink("refusal", one.reason ?? ""));
}

function drawMessage(cell, one) {
  if (cell.shown === one.number) return;
  cell.shown = one.number;
  cell.replaceChildren(el("span", { class: "clamp", title: readable(one.message), text: readable(one.message) }));
}
