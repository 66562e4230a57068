// Fields of forms with their labels.

import { el } from "./dom.js";

export function field(name, label, { required = false, placeholder = "", type = "text", value = "", ...more } = {}) {
  return el("label", { class: "field" }, el("span", { text: label }), el("input", { name, type, required, placeholder, value, autocomplete: "off", spellcheck: "false", ...more }));
}
