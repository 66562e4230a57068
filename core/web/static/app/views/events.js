// Events as they happen, the newest on top.

import { CHANGES, DETAILS, TYPES } from "../codes.js";
import { blank, el, inNextFrame, setAttribute, setText, settled } from "../dom.js";
import { explain, facts, keyButton } from "../explain.js";
import { panel } from "../panel.js";
import { events } from "../tails.js";
import { amounts, clock, count, moment, words } from "../units.js";
import { VirtualList } from "../virtual_list.js";

export class EventsView {
  #paused = null;

  constructor() {
    const again = () => this.#show(0);
    this.filter = el("input", { type: "search", placeholder: "Filter by any text", "aria-label": "Filter events", on: { input: settled(again, 120) } });
    this.type = el("select", { "aria-label": "About", on: { change: again } }, el("option", { value: "", text: "About anything" }), ...Object.entries(TYPES).map(([value, name]) => el("option", { value, text: `${words(name)}s` })));
    this.pause = el("button", { type: "button", text: "Pause", "aria-pressed": "false", on: { click: () => this.#toggle() } });
    this.count = el("span", { class: "count" });
    this.head = el("div", { class: "rows-head event-grid", "aria-hidden": "true" }, ...["Number", "Time", "About", "What", "Object", "Reference", "Says"].map((text) => el("span", { text })));
    this.list = new VirtualList({
      label: "Events, the newest first",
      height: 28,
      key: (event) => event.id,
      create: eventRow,
      update: updateRow,
      open: openEvent,
    });
    this.none = blank("No events", "Nothing has happened yet, or nothing matches.");
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Events" }), this.filter, this.type, this.pause, el("span", { class: "space" }), this.count),
      el("div", { class: "card sheet" }, this.head, this.list.root, this.none),
    );
    const more = inNextFrame(() => this.root.isConnected && this.#show(this.grown));
    events.addEventListener("more", ({ detail }) => {
      this.grown = (this.grown ?? 0) + detail;
      more();
    });
  }

  show() {
    events.hold();
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
    const wanted = this.filter.value.trim().toLowerCase();
    const type = Number(this.type.value);
    const all = this.#paused ?? events.entries;
    const plain = !wanted && !type;
    const fits = (event) => (!type || event.type === type) && (!wanted || text(event).includes(wanted));
    const fresh = this.#paused ? 0 : plain ? grown : events.entries.slice(0, grown).filter(fits).length;
    const items = plain ? all : all.filter(fits);
    this.grown = 0;
    this.list.show(items, fresh);
    this.none.hidden = items.length > 0;
    setText(this.none.lastChild, events.problem || "Nothing has happened yet, or nothing matches.");
    this.list.root.hidden = this.head.hidden = !items.length;
    const skipped = events.skipped ? `, ${count(events.skipped)} passed by unseen` : "";
    setText(this.count, `${count(items.length)} kept${skipped} · ${count(events.perSecond)} a second`);
  }
}

/** What kind of event it is, in words. */
export function eventWords(event) {
  return [TYPES[event.type] ?? "", DETAILS[event.eventChangeDetail] ?? CHANGES[event.eventChangeType] ?? ""].filter(Boolean).join(" ");
}

function text(event) {
  event.text ??= [eventWords(event), event.objectID, event.referenceID, event.message].join(" ").toLowerCase();
  return event.text;
}

function eventRow() {
  const row = el("div", { class: "event-grid" });
  for (const name of ["faint", "", "muted", "", "mono cut", "mono cut", "muted cut"]) row.append(el("span", { class: name }));
  return row;
}

function updateRow(row, event) {
  if (row.shown === event) return;
  row.shown = event;
  const held = amountsOf(event);
  const what = [CHANGES[event.eventChangeType], DETAILS[event.eventChangeDetail]].filter(Boolean).join(" · ");
  const values = [String(event.id), clock(event.timestampNano, { millis: true }), TYPES[event.type] ?? "", what, event.objectID ?? "", event.referenceID ?? "", event.message || held];
  values.forEach((value, at) => setText(row.children[at], value));
  setAttribute(row, "data-detail", [407, 501].includes(event.eventChangeDetail) ? "preempt" : null);
  setAttribute(row, "aria-label", values.slice(1).filter(Boolean).join(", "));
}

function amountsOf(event) {
  const plain = Object.fromEntries(Object.entries(event.resource?.resources ?? {}).map(([type, { value = 0 }]) => [type, value]));
  return amounts(plain);
}

function openEvent(event) {
  if (event.type === 2 && event.eventChangeType === 0) return explain(event.objectID);
  return panel.open(`Event ${event.id}`, () => [
    facts([
      ["When", moment(event.timestampNano)],
      ["About", TYPES[event.type]],
      ["What", eventWords(event)],
      ["Object", event.type <= 2 ? keyButton(event.objectID) : event.objectID && el("span", { class: "mono", text: event.objectID })],
      ["Reference", event.referenceID && keyButton(event.referenceID)],
      ["Amount", amountsOf(event)],
      ["Says", event.message],
    ]),
  ]);
}
