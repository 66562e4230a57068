// The laws of preemption.

import { el } from "../dom.js";
import { LAWS } from "../laws.js";

export class LawsView {
  constructor() {
    this.root = el(
      "div",
      { class: "view scrolls" },
      el("div", { class: "tools" }, el("h1", { text: "The laws of preemption" })),
      el("div", { class: "card prose" }, el("p", { text: "Every plan is checked against them before it is carried out. Decisions and explanations name them by number." }), el("dl", { class: "facts" }, ...Object.entries(LAWS).flatMap(([name, text]) => [el("dt", { text: name }), el("dd", { text })]))),
    );
  }

  show() {}

  hide() {}
}
