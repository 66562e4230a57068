// Words of the core, such as "node-full" or "no-queue", as links to their meanings.

import { address } from "./address.js";
import { el } from "./dom.js";
import { MEANINGS } from "./meanings.js";
import { words } from "./units.js";

/** Returns the meaning of a word of a group as a sentence; empty: the word has no entry. */
export const meaningOf = (group, word) => MEANINGS[group]?.[word] ?? "";

/** Makes a link from a word to its meaning. `text`: the text of the link. */
export function wordLink(group, word, text = words(word)) {
  const meaning = meaningOf(group, word);
  if (!meaning) return el("span", { text });
  return el("a", { class: "word", href: address.href("laws", { word: `${group}.${word}` }), title: meaning, text });
}
