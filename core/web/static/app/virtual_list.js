// A list of any length in which only the rows in sight are elements. One tab stop; arrows move the selection.

import { el, inNextFrame, setAttribute } from "./dom.js";

const SPARE = 6;
let lists = 0;

export class VirtualList {
  items = [];
  selected = null;
  #rows = new Map();
  #spare = [];
  #prefix = `list${(lists += 1)}`;

  /**
   * role, rowRole   ARIA roles
   * label           accessible name
   * height          of a row, in pixels
   * key(item)       what tells items apart
   * create()        an empty row
   * update(row, item, position)
   * open(item)      Enter or click
   */
  constructor(options) {
    this.options = { role: "listbox", rowRole: "option", open: () => {}, ...options };
    this.space = el("div", { class: "rows-space", role: "presentation" });
    this.root = el("div", { class: "rows", role: this.options.role, tabindex: "0", "aria-label": this.options.label }, this.space);
    this.draw = inNextFrame(() => this.#draw());
    this.root.addEventListener("scroll", this.draw, { passive: true });
    this.root.addEventListener("keydown", (event) => this.#key(event));
    this.root.addEventListener("click", (event) => this.#click(event));
    new ResizeObserver(this.draw).observe(this.root);
  }

  get index() {
    const { key } = this.options;
    return this.selected === null ? -1 : this.items.findIndex((item) => key(item) === this.selected);
  }

  get current() {
    return this.items[this.index] ?? null;
  }

  /** Show `items`. `grown`: how many were added at the front; a reader who has scrolled down keeps the same rows in sight. */
  show(items, grown = 0) {
    this.items = items;
    this.space.style.height = `${items.length * this.options.height}px`;
    if (grown && this.root.scrollTop > this.options.height) this.root.scrollTop += grown * this.options.height;
    this.draw();
  }

  /** Make all rows again, because rows have to look different. */
  renew() {
    this.space.replaceChildren();
    this.#rows.clear();
    this.#spare = [];
    this.draw();
  }

  select(index) {
    if (!this.items.length) return;
    const place = Math.max(0, Math.min(index, this.items.length - 1));
    this.selected = this.options.key(this.items[place]);
    this.reveal(place);
    this.#draw();
  }

  reveal(index) {
    const { height } = this.options;
    const top = index * height;
    const { scrollTop, clientHeight } = this.root;
    if (top < scrollTop) this.root.scrollTop = top;
    else if (top + height > scrollTop + clientHeight) this.root.scrollTop = top + height - clientHeight;
  }

  #draw() {
    const { height, key, create, update, rowRole } = this.options;
    const first = Math.max(0, Math.floor(this.root.scrollTop / height) - SPARE);
    const last = Math.min(this.items.length, Math.ceil((this.root.scrollTop + this.root.clientHeight) / height) + SPARE);
    const wanted = new Map();
    for (let at = first; at < last; at += 1) wanted.set(key(this.items[at]), at);
    for (const [known, row] of this.#rows) {
      if (!wanted.has(known)) {
        this.#rows.delete(known);
        this.#spare.push(row);
        row.hidden = true;
      }
    }
    this.root.parentElement?.style.setProperty("--scrollbar", `${this.root.offsetWidth - this.root.clientWidth}px`);
    let active = null;
    for (const [id, at] of wanted) {
      let row = this.#rows.get(id);
      if (!row) {
        row = this.#spare.pop() ?? this.#make(create(), rowRole);
        this.#rows.set(id, row);
      }
      row.hidden = false;
      row.item = this.items[at];
      row.style.transform = `translateY(${at * height}px)`;
      if (rowRole === "row") setAttribute(row, "aria-rowindex", at + 1);
      else {
        setAttribute(row, "aria-setsize", this.items.length);
        setAttribute(row, "aria-posinset", at + 1);
      }
      setAttribute(row, "aria-selected", id === this.selected);
      update(row, row.item, at);
      if (id === this.selected) active = row;
    }
    setAttribute(this.root, "aria-activedescendant", active?.id ?? null);
  }

  #make(row, role) {
    row.classList.add("row");
    row.setAttribute("role", role);
    row.style.height = `${this.options.height}px`;
    row.id = `${this.#prefix}-${this.#rows.size + this.#spare.length}-${this.space.childElementCount}`;
    this.space.append(row);
    return row;
  }

  #key(event) {
    if (event.target !== this.root || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.index;
    const screen = Math.max(1, Math.floor(this.root.clientHeight / this.options.height) - 1);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + screen, PageUp: at - screen, Home: 0, End: Infinity };
    if (event.key in moves) this.select(at < 0 && event.key !== "End" ? 0 : moves[event.key]);
    else if ((event.key === "Enter" || event.key === " ") && at >= 0) this.options.open(this.items[at]);
    else if (!this.options.key_down?.(event, this.items[at])) return;
    event.preventDefault();
  }

  #click(event) {
    const row = event.target.closest(".row");
    if (!row || event.target.closest("a, button")) return;
    this.select(this.items.indexOf(row.item));
    if (!this.options.click?.(event, row.item)) this.options.open(row.item);
  }
}
