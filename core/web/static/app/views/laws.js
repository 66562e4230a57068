// What the words of the core mean: the laws of preemption, why asks wait, why something was refused, how it ended.

import { address } from "../address.js";
import { documentation } from "../documentation.js";
import { el } from "../dom.js";
import { LAWS } from "../laws.js";
import { MEANINGS } from "../meanings.js";
import { words } from "../units.js";

const TITLES = {
  refusal: ["Refusals", "Why an entry was refused."],
  waiting: ["Why an ask waits", "What keeps an ask waiting, as explanations say."],
  verdict: ["Whether preemption can help", "What explanations say about it."],
  outcome: ["How a try to preempt ended", "The words of decisions, events and the history."],
  state: ["States of an application", ""],
};

export class LawsView {
  constructor() {
    this.filter = el("input", { type: "search", placeholder: "Filter words", "aria-label": "Filter words and meanings by any text", on: { input: () => address.set({ q: this.filter.value.trim() }, { replace: true }) } });
    this.groups = [
      group("laws", "The laws of preemption", "The core checks every plan against these laws before carrying it out. Decisions and explanations name them by number.", LAWS),
      ...Object.entries(TITLES).map(([name, [title, text]]) => group(name, title, text, MEANINGS[name])),
    ];
    this.terms = el("a", { target: "_blank", rel: "noreferrer", text: "The glossary of the documentation" });
    this.root = el("div", { class: "view scrolls" }, el("div", { class: "tools" }, el("h1", { text: "Laws and words" }), this.filter, this.terms), ...this.groups.map((one) => one.root));
    documentation.addEventListener("change", () => this.#link());
    this.#link();
  }

  show() {
    this.follow();
  }

  follow() {
    if (document.activeElement !== this.filter) this.filter.value = address.get("q");
    const wanted = address.get("q").toLowerCase();
    const word = address.get("word");
    let marked = null;
    for (const { root, rows } of this.groups) {
      let shown = 0;
      for (const { key, text, parts } of rows) {
        const fits = !wanted || text.includes(wanted);
        shown += fits;
        for (const part of parts) {
          part.hidden = !fits;
          part.toggleAttribute("data-marked", key === word);
        }
        if (key === word) [marked] = parts;
      }
      root.hidden = !shown;
    }
    marked?.scrollIntoView({ block: "center" });
  }

  hide() {}

  #link() {
    this.terms.href = documentation.about("terms");
    this.terms.hidden = !documentation.about("terms");
    for (const { name, more } of this.groups) {
      more.href = documentation.about(name);
      more.hidden = !documentation.about(name);
    }
  }
}

function group(name, title, text, meanings) {
  const more = el("a", { target: "_blank", rel: "noreferrer", text: "In the documentation" });
  const rows = Object.entries(meanings).map(([word, meaning]) => {
    const shown = name === "laws" ? word : words(word);
    return { key: `${name}.${word}`, text: `${word} ${shown} ${meaning}`.toLowerCase(), parts: [el("dt", {}, el("strong", { text: shown }), name !== "laws" && shown !== word && el("span", { class: "mono muted", text: ` ${word}` })), el("dd", { text: meaning })] };
  });
  const root = el("section", { class: "card", "aria-label": title }, el("header", {}, el("h2", { text: title }), el("span", { class: "aside" }, more)), el("div", { class: "body stack" }, text && el("p", { class: "muted", text }), el("dl", { class: "facts meanings" }, ...rows.flatMap((row) => row.parts))));
  return { name, root, rows, more };
}
