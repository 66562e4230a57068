// The laws of preemption in words. Decisions and explanations name them by number.

import { address } from "./address.js";
import { el } from "./dom.js";

export const LAWS = {
  "law 1": "Tasks that do not wish to be preempted go last, but they go.",
  "law 2": "No queue ends below its guarantee, on any level.",
  "law 3": "No ask preempts allocations of its own application.",
  "law 4": "The ask's queue must be below its guarantee for what the ask wants.",
  "law 5": "The victim's queue must be above its guarantee.",
  "law 6": "A victim's priority is at most the ask's, as both appear where their queues meet.",
  "law 7": "An ask inside a fenced queue takes nothing from outside.",
  "law 8": "No allocation is preempted without need.",
};

const NAMED = /law \d+/g;

/** Shows a text of the core, in which each law that is named is a link to its text. */
export function lawText(text) {
  if (!text) return null;
  const parts = [];
  let done = 0;
  for (const { 0: name, index } of text.matchAll(NAMED)) {
    if (!LAWS[name]) continue;
    parts.push(text.slice(done, index), el("a", { class: "word", href: address.href("laws", { word: `laws.${name}` }), title: LAWS[name], text: name }));
    done = index + name.length;
  }
  const rest = text.slice(done);
  // Where a text has only the number, the law itself is added.
  if (!rest.trim() && parts.length === 2 && !parts[0]) rest || parts.push(`: ${LAWS[text.trim()] ?? ""}`);
  return el("span", {}, ...parts, rest);
}
