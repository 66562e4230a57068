// Finds everything whose name contains a text: applications (also ended ones), queues, nodes, users, asks and allocations.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { DataTable } from "../data_table.js";
import { el, setText } from "../dom.js";
import { badge } from "../explain.js";
import { link, openDetails, setLink } from "../links.js";
import { plural } from "../units.js";

const MOST = 200;
const KINDS = { application: "application", ended: "ended application", queue: "queue", node: "node", user: "user", ask: "ask", allocation: "allocation" };
const LINKS = { ended: "application", allocation: "ask" };

const kindOf = (one) => LINKS[one.kind] ?? one.kind;

export class SearchView {
  #asked = "";

  constructor() {
    this.title = el("h1", { text: "Search" });
    this.said = el("span", { class: "muted", role: "status" });
    this.kind = el("select", { "aria-label": "Kind", on: { change: () => address.set({ kind: this.kind.value }) } }, el("option", { value: "", text: "Everything" }), ...Object.entries(KINDS).map(([value, text]) => el("option", { value, text: plural(text) })));
    this.table = new DataTable({
      label: "What was found",
      noun: "find",
      empty: "No name contains this text.",
      height: 34,
      keyOf: (one) => `${one.kind}:${one.name}:${one.place ?? ""}`,
      open: (one) => openDetails(kindOf(one), one.name),
      columns: [
        { key: "kind", title: "What", value: (one) => KINDS[one.kind], width: "minmax(84px, 0.6fr)" },
        { key: "name", title: "Name", value: (one) => one.name, draw: (cell, one) => drawLink(cell, kindOf(one), one.name), width: "minmax(110px, 2fr)" },
        { key: "place", title: "Where", value: (one) => one.place ?? "", draw: drawPlace, width: "minmax(90px, 1.2fr)" },
        { key: "state", title: "State", value: (one) => one.state ?? "", draw: drawState, width: "minmax(90px, 1fr)", wide: true },
      ],
    });
    this.root = el("div", { class: "view" }, el("div", { class: "tools" }, this.title, this.kind, this.said, el("span", { class: "space" }), ...this.table.tools), el("div", { class: "card sheet" }, this.table.root));
    cluster.addEventListener("partition", () => this.root.isConnected && this.follow());
  }

  show() {
    this.#asked = "";
    this.follow();
  }

  follow() {
    const text = address.get("text");
    setText(this.title, text ? `Search for "${text}"` : "Search");
    this.kind.value = address.get("kind");
    this.table.follow();
    if (!cluster.name || !text) return;
    const wanted = `${cluster.name}\n${text}`;
    if (wanted !== this.#asked) this.#ask(wanted, text);
    else this.#show();
  }

  hide() {}

  async #ask(wanted, text) {
    this.#asked = wanted;
    this.answer = { found: [], more: [] };
    try {
      this.answer = await api.get(inPartition(`search?limit=${MOST}&text=${encodeURIComponent(text)}`));
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    }
    if (wanted === this.#asked) this.#show();
  }

  #show() {
    if (!this.answer) return;
    const kind = address.get("kind");
    const { found, more } = this.answer;
    this.table.show(kind ? found.filter((one) => one.kind === kind) : found, { problem: this.problem });
    setText(this.said, more.length ? `the first ${MOST} of each kind; there are more ${more.map((one) => plural(KINDS[one])).join(", ")}` : "");
  }
}

function drawLink(cell, kind, name) {
  if (!cell.firstChild) cell.append(link(kind, name || " "));
  setLink(cell.firstChild, kind, name);
}

function drawPlace(cell, one) {
  const kind = { application: "queue", ended: "queue", ask: "application", allocation: "application" }[one.kind];
  if (kind && one.place) cell.replaceChildren(link(kind, one.place));
  else cell.replaceChildren();
}

function drawState(cell, one) {
  if (!one.state) cell.replaceChildren();
  else cell.replaceChildren(one.kind === "allocation" ? link("node", one.state) : badge(one.state));
}
