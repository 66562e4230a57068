// Words of the core, such as "node-full" or "no-queue", as links to their meanings.

import { address } from "./address.js";
import { el } from "./dom.js";
import { MEANINGS } from "./meanings.js";
import { words } from "./units.js";

/** What a word of a group means, in a sentence; empty: it has none of its own. */
export const meaningOf = (group, word) => MEANINGS[group]?.[word] ?? "";

/** A word that leads to what it means. `text`: how it is written. */
export function wordLink(group, word, text = words(word)) {
  const meaning = meaningOf(group, word);
  if (!meaning) return el("span", { text });
  return el("a", { class: "word", href: address.href("laws", { word: `${group}.${word}` }), title: meaning, text });
}
