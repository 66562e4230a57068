// One event.

import { CHANGES, DETAILS, TYPES } from "../codes.js";
import { blank, el } from "../dom.js";
import { facts } from "../explain.js";
import { link } from "../links.js";
import { events } from "../tails.js";
import { amounts, moment } from "../units.js";

/** Returns the kind of an event in words. */
export function eventWords(event) {
  return [TYPES[event.type] ?? "", DETAILS[event.eventChangeDetail] ?? CHANGES[event.eventChangeType] ?? ""].filter(Boolean).join(" ");
}

/** The kinds of things that an event of each type is about. */
const ABOUT = { 1: "ask", 2: "application", 3: "node", 4: "queue", 5: "user" };

export const amountsOf = (event) => amounts(Object.fromEntries(Object.entries(event.resource?.resources ?? {}).map(([type, { value = 0 }]) => [type, value])));

/** Returns a link to the object of an event; null: it has none. */
export function objectLink(event) {
  return event.objectID ? link(ABOUT[event.type] ?? "ask", event.objectID) : null;
}

export async function event(id) {
  const found = await events.find(Number(id));
  if (!found) return [blank("Not remembered", "The core keeps the latest events, this tab the last 5,000 of them.")];
  return [
    facts([
      ["When", moment(found.timestampNano)],
      ["About", TYPES[found.type]],
      ["What", eventWords(found)],
      ["Object", objectLink(found)],
      ["Reference", found.referenceID && (found.type === 2 || found.type === 3 ? link("ask", found.referenceID) : el("span", { class: "mono", text: found.referenceID }))],
      ["Amount", amountsOf(found)],
      ["Says", found.message],
    ]),
  ];
}
