// A list of any length with columns: sorted by any of them, filtered by any text, and saved as CSV. The reader's choices
// are in the address.

import { address } from "./address.js";
import { csvLine, saveAs } from "./csv.js";
import { el, setAttribute, setText, settled } from "./dom.js";
import { count, counted, plural } from "./units.js";
import { VirtualList } from "./virtual_list.js";

const NARROW_PX = 720;
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export class DataTable {
  #items = [];
  #found = [];
  #narrow = null;

  /**
   * name      of the parameters in the address, where a view has several tables; empty: the only one
   * label     accessible name
   * noun      what a row is, such as "node"
   * columns   a list of { key, title, value(item), text(item), draw(cell, item), width, number, wide }:
   *           value   what is sorted by
   *           saved   what the CSV has: a list of titles, each with a function of the item; absent: title and value
   *           text    what is shown; absent: the value
   *           draw    shows it in a cell instead
   *           wide    left out where there is little room
   * keyOf     what tells items apart
   * describe  a row in words; absent: the texts of its columns
   * open      Enter or click
   * sort      column at first, with "-" the greatest first; empty: as the items come
   * remote    the core sorts and filters: `onChange` is called instead
   * all       fetches every item for the CSV; absent: those that are shown
   */
  constructor(options) {
    this.options = { name: "", sort: "", height: 32, noun: "row", open: () => {}, onChange: () => {}, ...options };
    this.columns = this.options.columns;
    const { label, noun, height, keyOf, open } = this.options;
    this.filter = el("input", {
      type: "search",
      placeholder: `Filter ${plural(noun)}`,
      "aria-label": `Filter ${plural(noun)} by any text`,
      value: address.get(this.#parameter("q")),
      on: { input: settled(() => this.#choose("q", this.filter.value.trim()), 120) },
    });
    this.count = el("span", { class: "count", role: "status" });
    this.csv = el("button", { type: "button", text: "CSV", title: `Save these ${plural(noun)} as CSV`, "aria-label": `Save these ${plural(noun)} as CSV`, on: { click: () => this.#save() } });
    this.head = el("div", { class: "rows-head data-grid", role: "group", "aria-label": `Sort ${plural(noun)}` });
    this.list = new VirtualList({ role: "grid", rowRole: "row", label, height, key: keyOf, create: () => this.#makeRow(), update: (row, item) => this.#fillRow(row, item), open });
    this.none = el("p", { class: "none muted", hidden: true });
    this.root = el("div", { class: "data-table" }, this.head, this.list.root, this.none);
    new ResizeObserver(() => this.#measure()).observe(this.root);
    this.#makeHead();
  }

  /** The elements above the table. */
  get tools() {
    return [this.filter, this.count, this.csv];
  }

  /** The column and direction of the order: "-name" begins with the greatest. */
  get order() {
    const wanted = address.get(this.#parameter("sort"));
    return this.columns.some((column) => column.key === wanted.replace(/^-/, "")) ? wanted : this.options.sort;
  }

  get text() {
    return address.get(this.#parameter("q"));
  }

  /** Follow the address, after other code has changed it. */
  follow() {
    if (document.activeElement !== this.filter) this.filter.value = this.text;
    this.#markOrder();
    this.show(this.#items);
  }

  setColumns(columns) {
    if (columns.map((column) => column.key).join() === this.columns.map((column) => column.key).join()) return;
    this.columns = columns;
    this.#makeHead();
  }

  /** Show `items`. `total`: their number if the core filters them; `problem`: why there is nothing to show. */
  show(items, { grown = 0, total = null, problem = "" } = {}) {
    this.#items = items;
    setAttribute(this.root, "aria-busy", null);
    const found = this.options.remote ? items : this.#sorted(this.#filtered(items));
    this.#found = found;
    const before = grown && found !== items ? found.filter((item) => items.indexOf(item, 0) < grown).length : grown;
    this.list.show(found, before);
    this.list.root.hidden = !found.length;
    this.none.hidden = found.length > 0;
    setText(this.none, problem || (this.text && (items.length || this.options.remote) ? `No ${this.options.noun} has "${this.text}" in it.` : (this.options.empty ?? `No ${plural(this.options.noun)}.`)));
    const all = total ?? items.length;
    setText(this.count, found.length === all ? counted(all, this.options.noun) : `${count(found.length)} of ${counted(all, this.options.noun)}`);
    setAttribute(this.list.root, "aria-rowcount", found.length);
  }

  #filtered(items) {
    const wanted = this.text.toLowerCase();
    if (!wanted) return items;
    return items.filter((item) => this.columns.some((column) => textOf(column, item).toLowerCase().includes(wanted)) || this.options.keyOf(item).toString().toLowerCase().includes(wanted));
  }

  #sorted(items) {
    const key = this.order.replace(/^-/, "");
    const column = this.columns.find((one) => one.key === key);
    if (!column) return items;
    const sign = this.order.startsWith("-") ? -1 : 1;
    const { keyOf } = this.options;
    return [...items].sort((a, b) => sign * compare(column.value(a), column.value(b)) || sign * compare(keyOf(a), keyOf(b)));
  }

  #parameter(name) {
    return this.options.name ? `${this.options.name}.${name}` : name;
  }

  #choose(name, value) {
    address.set({ [this.#parameter(name)]: value }, { replace: true });
    this.#markOrder();
    if (this.options.remote) {
      setAttribute(this.root, "aria-busy", "true");
      this.options.onChange();
    } else this.show(this.#items);
  }

  #makeHead() {
    const shown = this.#shown();
    this.head.replaceChildren(
      ...shown.map((column) =>
        el("button", { type: "button", class: `head${column.number ? " number" : ""}`, data: { key: column.key }, text: column.title, on: { click: () => this.#sortBy(column) } }),
      ),
    );
    this.root.style.setProperty("--columns", shown.map((column) => column.width ?? "minmax(80px, 1fr)").join(" "));
    this.#markOrder();
    this.list.renew();
  }

  #markOrder() {
    const key = this.order.replace(/^-/, "");
    for (const button of this.head.children) {
      const direction = button.dataset.key !== key ? "" : this.order.startsWith("-") ? "down" : "up";
      setAttribute(button, "data-sorted", direction || null);
      const words = { "": "", up: ", the smallest first", down: ", the greatest first" }[direction];
      setAttribute(button, "aria-label", `Sort by ${button.textContent}${words}`);
    }
  }

  #sortBy(column) {
    const first = column.number ? `-${column.key}` : column.key;
    const other = column.number ? column.key : `-${column.key}`;
    this.#choose("sort", this.order === first ? other : first);
  }

  #shown() {
    return this.#narrow ? this.columns.filter((column) => !column.wide) : this.columns;
  }

  #measure() {
    const narrow = this.root.clientWidth < NARROW_PX;
    if (narrow === this.#narrow || !this.root.clientWidth) return;
    this.#narrow = narrow;
    this.#makeHead();
  }

  #makeRow() {
    return el("div", { class: "data-grid" }, ...this.#shown().map((column) => el("span", { role: "gridcell", class: `cut${column.number ? " number" : ""}${column.mono ? " mono" : ""}` })));
  }

  #fillRow(row, item) {
    this.#shown().forEach((column, place) => {
      const cell = row.children[place];
      if (column.draw) column.draw(cell, item);
      else {
        const text = textOf(column, item);
        setText(cell, text);
        setAttribute(cell, "title", text.length > 12 ? text : null);
      }
    });
    for (const anchor of row.querySelectorAll("a, button")) anchor.tabIndex = -1;
    setAttribute(row, "aria-label", this.options.describe?.(item) ?? this.columns.map((column) => textOf(column, item)).filter(Boolean).join(", "));
  }

  async #save() {
    const columns = this.columns.flatMap((column) => column.saved ?? [[column.title, column.value]]);
    let items = this.#found;
    try {
      items = (await this.options.all?.()) ?? items;
    } catch (error) {
      return setText(this.count, error.message);
    }
    const rows = [columns.map(([title]) => title), ...items.map((item) => columns.map(([, value]) => value(item) ?? ""))];
    saveAs(`${plural(this.options.noun).replaceAll(" ", "-")}.csv`, rows.map(csvLine).join(""));
  }
}

const textOf = (column, item) => String((column.text ? column.text(item) : column.value(item)) ?? "");

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(a ?? "", b ?? "");
}
