// Keeps the resource types that the reader wants to see. A cluster may have dozens: the first three are shown until the
// reader chooses others. The choice is in the address, and is kept in the browser.

import { address } from "./address.js";
import { el, setText } from "./dom.js";
import { nameOf } from "./units.js";

const FIRST = 3;
const STORE = "kornel.types";

class TypeChoice extends EventTarget {
  #all = [];

  /** Set the existing types. */
  offer(types) {
    if (types.join() === this.#all.join()) return;
    this.#all = types;
    this.dispatchEvent(new Event("change"));
  }

  get all() {
    return this.#all;
  }

  /** Returns the types to show, in their usual order. */
  get chosen() {
    const wanted = new Set((address.get("types") || stored()).split(",").filter(Boolean));
    const found = this.#all.filter((type) => wanted.has(type));
    return found.length ? found : this.#all.slice(0, FIRST);
  }

  toggle(type) {
    const wanted = new Set(this.chosen);
    if (!wanted.delete(type)) wanted.add(type);
    const text = this.#all.filter((one) => wanted.has(one)).join();
    try {
      localStorage.setItem(STORE, text);
    } catch {
      // The choice is in the address.
    }
    address.set({ types: text }, { replace: true });
    this.dispatchEvent(new Event("change"));
  }
}

function stored() {
  try {
    return localStorage.getItem(STORE) ?? "";
  } catch {
    return "";
  }
}

export const typeChoice = new TypeChoice();

/** Makes a button that opens the list of types. */
export function typeChooser() {
  const summary = el("summary", {});
  const list = el("div", { class: "choices" });
  const root = el("details", { class: "chooser" }, summary, list);
  const draw = () => {
    const { all, chosen } = typeChoice;
    setText(summary, `Types: ${chosen.length} of ${all.length}`);
    root.hidden = all.length < 2;
    if ([...list.children].map((label) => label.dataset.type).join() !== all.join()) {
      list.replaceChildren(...all.map((type) => el("label", { class: "check", data: { type } }, el("input", { type: "checkbox", on: { change: () => typeChoice.toggle(type) } }), el("span", { text: nameOf(type) }))));
    }
    for (const label of list.children) {
      const box = label.firstChild;
      box.checked = chosen.includes(label.dataset.type);
      box.disabled = box.checked && chosen.length === 1;
    }
  };
  typeChoice.addEventListener("change", draw);
  document.addEventListener("click", (event) => root.open && !root.contains(event.target) && (root.open = false));
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !root.open) return;
    root.open = false;
    summary.focus();
    event.stopPropagation();
  });
  draw();
  return root;
}
