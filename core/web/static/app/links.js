// Knows where each kind of object is shown, and makes links to it.

import { address } from "./address.js";
import { el } from "./dom.js";

/** The view beside which the details of each kind are shown. Asks have none: they are explained beside any view. */
const HOMES = { queue: "queues", node: "nodes", user: "users", group: "users", ask: "applications", decision: "preemption", event: "events" };

export const hrefOf = (kind, name) =>
  kind === "application" ? address.href("application", { id: name }) : address.href(HOMES[kind], { details: `${kind}:${name}` });

/** Makes a link to an object; without an object, a dash. */
export function link(kind, name, text = name) {
  if (!name) return el("span", { class: "faint", text: "–" });
  return el("a", { class: "mono name", href: hrefOf(kind, name), title: name === text ? null : name, text, data: { kind, name } });
}

/** Set the target and the text of a link, so that rows of a list can use it again. */
export function setLink(anchor, kind, name, text = name) {
  if (anchor.dataset.kind === kind && anchor.dataset.name === name && anchor.textContent === text) return;
  anchor.dataset.kind = kind;
  anchor.dataset.name = name;
  anchor.textContent = text;
  anchor.title = name;
  anchor.href = hrefOf(kind, name);
}

/** Show the details of an object: beside the present view if they belong to it, otherwise beside their own. */
export function openDetails(kind, name) {
  if (kind === "application") address.go("application", { id: name });
  else if (kind === "ask" || HOMES[kind] === address.view) address.set({ details: `${kind}:${name}` });
  else location.hash = hrefOf(kind, name);
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[data-kind]");
  if (!anchor || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  openDetails(anchor.dataset.kind, anchor.dataset.name);
});
