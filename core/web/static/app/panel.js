// Details at the side. One at a time; Escape closes them and gives the focus back.

import { blank } from "./dom.js";

class Panel {
  /** Called when the reader closes it. */
  onClose = () => {};
  #root = document.getElementById("panel");
  #title = document.getElementById("panel-title");
  #body = document.getElementById("panel-body");
  #before = null;
  #turn = 0;

  constructor() {
    document.getElementById("panel-close").addEventListener("click", () => this.onClose());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !this.#root.hidden && !document.querySelector("dialog[open]")) this.onClose();
    });
  }

  /** Show `title` and the list of elements that `make` returns or resolves to. The focus moves there unless it is there
      already. */
  async open(title, make) {
    const turn = (this.#turn += 1);
    if (this.#root.hidden) this.#before = document.activeElement;
    this.#title.replaceChildren(...[title].flat());
    this.#root.hidden = false;
    if (!this.#root.contains(document.activeElement)) this.#root.focus({ preventScroll: true });
    this.#root.setAttribute("aria-busy", "true");
    let content;
    try {
      content = await make();
    } catch (error) {
      if (error.status === undefined) console.error(error);
      content = [blank("Nothing to show", error.message)];
    }
    if (turn !== this.#turn) return;
    this.#root.removeAttribute("aria-busy");
    this.#body.replaceChildren(...content.filter(Boolean));
    this.#body.scrollTop = 0;
  }

  hide() {
    if (this.#root.hidden) return;
    this.#turn += 1;
    this.#root.hidden = true;
    this.#body.replaceChildren();
    if (this.#before?.isConnected) this.#before.focus({ preventScroll: true });
  }
}

export const panel = new Panel();
