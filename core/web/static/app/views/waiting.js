// Who waits, for how long and for what; and what is free on nodes but stranded, because nothing that waits fits there.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { DataTable } from "../data_table.js";
import { el, setText } from "../dom.js";
import { link, openDetails, setLink } from "../links.js";
import { Poller } from "../poller.js";
import { amount, amounts, bare, count, counted, headOf, inUnit, momentOrNone, since, typesOf, unitOf, words } from "../units.js";

const MOST = { waits: 20, nodes: 5_000 };

export class WaitingView {
  constructor() {
    this.by = el("select", { "aria-label": "Sum up", on: { change: () => address.set({ by: this.by.value }) } }, ...["application", "queue", "user"].map((one) => el("option", { value: one === "application" ? "" : one, text: `By ${one}` })));
    this.waits = new DataTable({
      label: "Who waits, the longest first",
      noun: "entry",
      empty: "Nobody waits.",
      keyOf: (one) => one.name,
      open: (one) => openDetails("ask", one.askKey),
      columns: WAITS,
    });
    this.stranded = new DataTable({
      name: "stranded",
      label: "What is stranded, by node",
      noun: "node",
      keyOf: (one) => one.nodeId,
      open: (one) => openDetails("node", one.nodeId),
      columns: [],
    });
    this.sums = el("p", { role: "status" });
    this.domains = el("ul", { class: "plain" });
    this.root = el(
      "div",
      { class: "view scrolls" },
      el("div", { class: "tools" }, el("h1", { text: "Waiting" }), this.by, this.waits.filter, el("span", { class: "space" }), this.waits.count, this.waits.csv),
      el("div", { class: "card sheet within-view" }, this.waits.root),
      el("section", { class: "card", "aria-label": "Stranded" }, el("header", {}, el("h2", { text: "Free, but nothing that waits fits" })), el("div", { class: "body stack" }, el("div", { class: "tools" }, ...this.stranded.tools), this.sums, this.domains, this.stranded.root)),
    );
    this.stranded.root.classList.add("within");
    this.stranded.root.hidden = true;
    this.poller = new Poller((signal) => this.#fetch(signal), 5_000);
    cluster.addEventListener("partition", () => this.root.isConnected && this.poller.now());
  }

  show() {
    this.follow();
  }

  follow() {
    this.by.value = address.get("by");
    this.waits.follow();
    this.stranded.follow();
    this.poller.now();
  }

  hide() {
    this.poller.stop();
  }

  async #fetch(signal) {
    if (!cluster.name) return this.waits.show([]);
    const { waits, waitCount } = await api.get(inPartition(`waits?limit=${MOST.waits}&by=${address.get("by")}`), signal);
    this.waits.show(waits);
    this.by.title = waitCount > waits.length ? `The first ${count(waits.length)} of ${count(waitCount)}` : "";
    const { nodes } = await api.get(inPartition(`stranded?pageSize=${MOST.nodes}`), signal);
    this.#showStranded(nodes);
  }

  #showStranded(nodes) {
    const found = nodes.filter((node) => typesOf(node.stranded).length);
    const sums = summed(found.map((node) => node.stranded));
    const free = summed(nodes.filter((node) => node.schedulable).map((node) => node.available));
    const types = typesOf(sums);
    setText(this.sums, types.length ? `Of what is free, ${types.map((type) => `${bare(type, sums[type])} of ${amount(type, free[type])}${unitOf(type) ? "" : ` ${type}`}`).join(", ")} on ${counted(found.length, "node")}.` : "Wherever something is free that a waiting ask wants, one of these asks fits.");
    const domains = [...new Set(found.map((node) => node.domain))].filter(Boolean).sort();
    this.domains.replaceChildren(...domains.map((domain) => el("li", { text: `${domain}: ${amounts(summed(found.filter((node) => node.domain === domain).map((node) => node.stranded)))}` })));
    this.stranded.root.hidden = !found.length;
    this.stranded.root.style.setProperty("--rows", Math.min(found.length, 8));
    this.stranded.setColumns(nodeColumns(types));
    this.stranded.show(found);
  }
}

const WAITS = [
  { key: "name", title: "Who", value: (one) => one.name, width: "minmax(64px, 1.2fr)" },
  { key: "applications", title: "Applications", value: (one) => one.applicationCount, number: true, width: "96px", wide: true },
  { key: "asks", title: "Asks", value: (one) => one.askCount, number: true, width: "52px" },
  { key: "waited", title: "Waited", value: (one) => -one.oldestAskNs, text: (one) => since(one.oldestAskNs), saved: [["Since", (one) => momentOrNone(one.oldestAskNs)]], number: true, width: "84px" },
  { key: "ask", title: "Oldest ask", value: (one) => one.askKey, draw: (cell, one) => drawLink(cell, "ask", one.askKey), width: "minmax(80px, 1fr)", wide: true },
  { key: "queue", title: "Its queue", value: (one) => one.queue, draw: (cell, one) => drawLink(cell, "queue", one.queue), width: "minmax(80px, 1fr)", wide: true },
  { key: "user", title: "Its user", value: (one) => one.user, draw: (cell, one) => drawLink(cell, "user", one.user), width: "minmax(70px, 0.7fr)", wide: true },
  { key: "obstacle", title: "First obstacle", value: (one) => obstacleWords(one.obstacle), width: "minmax(84px, 1.6fr)" },
];

function obstacleWords(obstacle) {
  if (!obstacle) return "–";
  return obstacle.nodes > 1 ? `${words(obstacle.kind)} on ${counted(obstacle.nodes, "node")}` : `${words(obstacle.kind)} ${obstacle.name}`;
}

function nodeColumns(types) {
  return [
    { key: "node", title: "Node", value: (one) => one.nodeId, draw: (cell, one) => drawLink(cell, "node", one.nodeId), width: "minmax(90px, 1.2fr)" },
    { key: "domain", title: "Domain", value: (one) => one.domain, width: "minmax(70px, 1fr)", wide: true },
    ...types.map((type) => ({ key: type, title: headOf(type), value: (one) => one.stranded[type] ?? 0, text: (one) => bare(type, one.stranded[type] ?? 0), saved: [[headOf(type), (one) => inUnit(type, one.stranded[type] ?? 0)]], number: true, width: "minmax(80px, 1fr)" })),
  ];
}

function summed(maps) {
  const sums = {};
  for (const map of maps) for (const [type, value] of Object.entries(map)) sums[type] = (sums[type] ?? 0) + Math.max(0, value);
  return sums;
}

function drawLink(cell, kind, name) {
  if (!cell.firstChild) cell.append(link(kind, name || " "));
  setLink(cell.firstChild, kind, name);
}
