// Events as they happen, the newest on top.

import { address } from "../address.js";
import { CHANGES, DETAILS, TYPES } from "../codes.js";
import { DataTable } from "../data_table.js";
import { el, inNextFrame, setAttribute, setText } from "../dom.js";
import { amountsOf, objectLink } from "../details/event.js";
import { openDetails } from "../links.js";
import { events } from "../tails.js";
import { clock, count, moment, plural, words } from "../units.js";

/** The details of events that made an allocation leave. */
const PREEMPTED = [407, 501];

export class EventsView {
  #paused = null;

  constructor() {
    this.type = el("select", { "aria-label": "About", on: { change: () => address.set({ about: this.type.value }) } }, el("option", { value: "", text: "About anything" }), ...Object.entries(TYPES).map(([value, name]) => el("option", { value, text: words(plural(name)) })));
    this.pause = el("button", { type: "button", text: "Pause", "aria-pressed": "false", on: { click: () => this.#toggle() } });
    this.pace = el("span", { class: "count" });
    this.table = new DataTable({
      label: "Events, the newest first",
      noun: "event",
      height: 28,
      empty: "Nothing has happened yet.",
      keyOf: (event) => event.id,
      open: (event) => openDetails("event", String(event.id)),
      columns: COLUMNS,
    });
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Events" }), this.table.filter, this.type, this.pause, el("a", { href: "#/refusals", text: "What was refused" }), el("span", { class: "space" }), this.pace, this.table.count, this.table.csv),
      el("div", { class: "card sheet" }, this.table.root),
    );
    const more = inNextFrame(() => this.root.isConnected && this.#show(this.grown));
    events.addEventListener("more", ({ detail }) => {
      this.grown = (this.grown ?? 0) + detail;
      more();
    });
  }

  show() {
    events.hold();
    this.follow();
  }

  follow() {
    this.type.value = address.get("about");
    this.table.follow();
    this.#show(0);
  }

  hide() {
    events.release();
  }

  #toggle() {
    this.#paused = this.#paused ? null : events.entries;
    setText(this.pause, this.#paused ? "Go on" : "Pause");
    setAttribute(this.pause, "aria-pressed", String(this.#paused !== null));
    this.#show(0);
  }

  #show(grown) {
    const type = Number(address.get("about"));
    const all = this.#paused ?? events.entries;
    const items = type ? all.filter((event) => event.type === type) : all;
    const fresh = this.#paused ? 0 : type ? events.entries.slice(0, grown).filter((event) => event.type === type).length : grown;
    this.grown = 0;
    this.table.show(items, { grown: fresh, problem: events.problem });
    const skipped = events.skipped ? `${count(events.skipped)} missed · ` : "";
    setText(this.pace, `${skipped}${count(events.perSecond)} a second ·`);
  }
}

const whatOf = (event) => [CHANGES[event.eventChangeType], DETAILS[event.eventChangeDetail]].filter(Boolean).join(" · ");

const COLUMNS = [
  { key: "number", title: "Number", value: (event) => event.id, number: true, width: "72px", wide: true },
  { key: "time", title: "Time", value: (event) => event.timestampNano, text: (event) => clock(event.timestampNano, { millis: true }), saved: [["Time", (event) => moment(event.timestampNano, { millis: true })]], width: "96px" },
  { key: "about", title: "About", value: (event) => TYPES[event.type] ?? "", width: "84px", wide: true },
  { key: "what", title: "What", value: whatOf, draw: drawWhat, width: "minmax(110px, 0.8fr)" },
  { key: "object", title: "Object", value: (event) => event.objectID ?? "", draw: drawObject, width: "minmax(110px, 1fr)" },
  { key: "reference", title: "Reference", value: (event) => event.referenceID ?? "", mono: true, width: "minmax(100px, 1fr)", wide: true },
  { key: "says", title: "Says", value: (event) => event.message || amountsOf(event), width: "minmax(100px, 1.4fr)", wide: true },
  { key: "date", title: "Date", value: (event) => moment(event.timestampNano).slice(0, 10), width: "92px", wide: true },
];

function drawWhat(cell, event) {
  setText(cell, whatOf(event));
  setAttribute(cell, "title", whatOf(event));
  setAttribute(cell, "data-detail", PREEMPTED.includes(event.eventChangeDetail) ? "preempt" : null);
}

function drawObject(cell, event) {
  if (cell.shown === event) return;
  cell.shown = event;
  cell.replaceChildren(...[objectLink(event)].filter(Boolean));
}
