// The queue tree.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { saveAs, csvLine } from "../csv.js";
import { blank, el, setAttribute, setText, settled } from "../dom.js";
import { openDetails } from "../links.js";
import { meter, meterWords, setMeter } from "../meter.js";
import { Poller } from "../poller.js";
import { typeChoice, typeChooser } from "../type_choice.js";
import { amount, bare, count, counted, headOf, inUnit, nameOf, typesOf } from "../units.js";
import { VirtualList } from "../virtual_list.js";

const NARROW_PX = 640;
const ORDERS = { "": "By name", used: "Most used first", pending: "Most pending first", over: "Furthest above guarantee" };
const OPEN_AT_FIRST = 60;
const INDENT_PX = 18;
const LONGEST_OPEN = 1_500;

export class QueuesView {
  #tree = null;
  #open = null;
  #types = [];

  constructor() {
    this.filter = el("input", { type: "search", placeholder: "Filter by path", "aria-label": "Filter queues by path", on: { input: settled(() => address.set({ q: this.filter.value.trim() }, { replace: true }), 120) } });
    this.order = el("select", { "aria-label": "Order of queues", on: { change: () => address.set({ sort: this.order.value }) } }, ...Object.entries(ORDERS).map(([value, text]) => el("option", { value, text })), (this.byColumn = el("option", { value: "column", text: "By column", disabled: true, hidden: true })));
    this.count = el("span", { class: "count" });
    this.head = el("div", { class: "rows-head queue-grid", role: "group", "aria-label": "Sort queues within their parents" });
    this.list = new VirtualList({
      role: "tree",
      rowRole: "treeitem",
      label: "Queues",
      height: 40,
      key: (item) => item.queue.queuename,
      create: queueRow,
      update: (row, item) => this.#update(row, item),
      open: (item) => openDetails("queue", item.queue.queuename),
      click: (event, item) => event.target.closest(".twist") && (this.#toggle(item), true),
      key_down: (event, item) => this.#arrow(event, item),
    });
    this.none = blank("No queues", "They come with the configuration of a resource manager.");
    this.root = el(
      "div",
      { class: "view" },
      el(
        "div",
        { class: "tools" },
        el("h1", { text: "Queues" }),
        this.filter,
        this.order,
        typeChooser(),
        el("button", { type: "button", text: "Expand all", on: { click: () => this.#all(true) } }),
        el("button", { type: "button", text: "Collapse all", on: { click: () => this.#all(false) } }),
        this.count,
        el("span", { class: "space" }),
        el("button", { type: "button", text: "CSV", "aria-label": "Save these queues as CSV", on: { click: () => this.#save() } }),
        legend(),
      ),
      el("div", { class: "card sheet" }, el("div", { class: "sideways" }, el("div", { class: "queue-sheet" }, this.head, this.list.root, this.none))),
    );
    this.none.hidden = true;
    this.poller = new Poller((signal) => this.#fetch(signal), 1_000);
    typeChoice.addEventListener("change", () => this.root.isConnected && this.#show());
    new ResizeObserver(() => this.root.isConnected && this.#show()).observe(this.root);
    cluster.addEventListener("partition", () => {
      this.#tree = this.#open = null;
      if (this.root.isConnected) this.poller.now();
    });
  }

  show() {
    this.follow();
    this.poller.start();
  }

  follow() {
    if (document.activeElement !== this.filter) this.filter.value = address.get("q");
    const sort = address.get("sort");
    this.byColumn.hidden = sort in ORDERS;
    this.order.value = sort in ORDERS ? sort : "column";
    const open = address.get("open");
    this.#open = open ? new Set(open.split(",")) : this.#tree && opened(this.#tree);
    this.#show();
  }

  hide() {
    this.poller.stop();
  }

  async #fetch(signal) {
    if (cluster.name) this.#tree = await api.get(inPartition("queues"), signal);
    if (this.#tree) {
      this.#open ??= opened(this.#tree);
      const { maxResource, allocatedResource, guaranteedResource, pendingResource } = this.#tree;
      typeChoice.offer(typesOf(maxResource, allocatedResource, guaranteedResource, pendingResource));
    }
    this.#show();
  }

  #show() {
    this.none.hidden = this.#tree !== null;
    this.list.root.hidden = this.head.hidden = this.#tree === null;
    if (!this.#tree) return;
    const wanted = address.get("q").toLowerCase();
    const all = { queues: 0 };
    const { chosen } = typeChoice;
    this.#types = this.root.clientWidth && this.root.clientWidth < NARROW_PX ? chosen.slice(0, 1) : chosen;
    const items = flat(this.#tree, wanted ? null : this.#open, wanted, all, ordering(address.get("sort"), chosen[0]));
    this.root.style.setProperty("--types", Math.max(1, this.#types.length));
    this.#drawHead();
    setText(this.count, wanted ? `${count(items.filter((item) => item.match).length)} of ${count(all.queues)} queues` : `${count(all.queues)} queues`);
    this.list.show(items);
  }

  /** Makes a button for each column; queues are sorted among those of the same parent. */
  #drawHead() {
    const columns = [["name", "Queue", false], ...this.#types.map((type) => [`type:${type}`, headOf(type), true]), ["apps", "Apps", true]];
    const sort = address.get("sort");
    const shown = columns.map(([key]) => key).join() + sort;
    if (shown === this.headed) return;
    this.headed = shown;
    this.head.replaceChildren(
      ...columns.map(([key, title, number], at) => {
        const direction = sort === key ? "up" : sort === `-${key}` ? "down" : "";
        const [first, other] = number ? [`-${key}`, key] : [key, `-${key}`];
        const words = { "": "", up: ", the smallest first", down: ", the greatest first" }[direction];
        return el("button", { type: "button", class: `head${at === columns.length - 1 ? " number" : ""}`, "data-sorted": direction || null, "aria-label": `Sort by ${title}${words}`, text: title, on: { click: () => address.set({ sort: sort === first ? other : first }, { replace: true }) } });
      }),
    );
  }

  #update(row, { queue, level, open, dim, place, siblings, bound }) {
    const path = queue.queuename;
    const name = path.slice(path.lastIndexOf(".") + 1);
    row.name.style.paddingLeft = `${(level - 1) * INDENT_PX}px`;
    setText(row.label, name);
    setAttribute(row.name, "title", path);
    row.twist.classList.toggle("none", !queue.children);
    setAttribute(row.twist, "data-open", open ? "" : null);
    row.classList.toggle("dim", dim);
    row.status.hidden = queue.status === "Active" && !queue.isQuotaPreemptionRunning;
    setText(row.status, queue.status === "Active" ? "enforcing max" : queue.status);
    setText(row.apps, count(queue.runningApps));
    while (row.cells.length < this.#types.length) row.insertBefore(meterCell(row), row.apps);
    while (row.cells.length > this.#types.length) row.cells.pop().remove();
    const said = this.#types.map((type, at) => setCell(row.cells[at], type, queue, bound[type]));
    setAttribute(row, "aria-level", level);
    setAttribute(row, "aria-posinset", place);
    setAttribute(row, "aria-setsize", siblings);
    setAttribute(row, "aria-expanded", queue.children ? open : null);
    setAttribute(row, "aria-label", `${name}: ${said.join("; ")}; ${counted(queue.runningApps ?? 0, "application")} running`);
  }

  #toggle({ queue }) {
    const path = queue.queuename;
    if (!this.#open.delete(path)) this.#open.add(path);
    this.#keepOpen();
  }

  /** The open queues are in the address, unless they are those that are open at first, or too many for an address. */
  #keepOpen() {
    const text = [...this.#open].sort().join();
    const atFirst = [...opened(this.#tree)].sort().join();
    if (text.length < LONGEST_OPEN) address.set({ open: text === atFirst ? "" : text }, { replace: true });
    this.#show();
  }

  #save() {
    if (!this.#tree) return;
    const { all } = typeChoice;
    const fields = { used: "allocatedResource", guaranteed: "guaranteedResource", max: "maxResource", pending: "pendingResource" };
    const lines = [["Queue", "Status", "Applications", ...all.flatMap((type) => Object.keys(fields).map((name) => headOf(type, name)))]];
    const wanted = address.get("q").toLowerCase();
    for (const { queue, match } of flat(this.#tree, null, wanted, { queues: 0 }, ordering(address.get("sort"), typeChoice.chosen[0]))) {
      if (match) lines.push([queue.queuename, queue.status, queue.runningApps ?? 0, ...all.flatMap((type) => Object.values(fields).map((field) => inUnit(type, queue[field]?.[type])))]);
    }
    saveAs("queues.csv", lines.map(csvLine).join(""));
  }

  #all(open) {
    if (!this.#tree) return;
    this.#open = new Set(["root"]);
    if (open) walk(this.#tree, (queue) => queue.children && this.#open.add(queue.queuename));
    this.#keepOpen();
  }

  /** Handles arrow keys like other trees: right opens a queue, then goes to its first child; left closes it, then goes to
      its parent. */
  #arrow(event, item) {
    if (!item || (event.key !== "ArrowRight" && event.key !== "ArrowLeft")) return false;
    const isOpen = item.open;
    if (event.key === "ArrowRight" && item.queue.children) {
      if (isOpen) this.list.select(this.list.index + 1);
      else this.#toggle(item);
    } else if (event.key === "ArrowLeft") {
      if (isOpen && !address.get("q")) this.#toggle(item);
      else this.list.select(this.list.items.findIndex((other) => other.queue.queuename === item.queue.parent));
    }
    return true;
  }
}

function opened(tree) {
  const open = new Set(["root"]);
  let shown = 1 + (tree.children?.length ?? 0);
  let level = tree.children ?? [];
  while (level.length) {
    const below = level.flatMap((queue) => queue.children ?? []);
    shown += below.length;
    if (shown > OPEN_AT_FIRST) break;
    for (const queue of level) if (queue.children) open.add(queue.queuename);
    level = below;
  }
  return open;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Returns how the children of a queue are compared; null: they keep their order. `type`: the type for orders that name
    none. */
function ordering(sort, type) {
  const [, descending, name, of = ""] = /^(-?)([a-z]*):?(.*)$/.exec(sort);
  if (name === "name") return (a, b) => (descending ? -1 : 1) * collator.compare(a.queuename, b.queuename);
  const used = (queue) => queue.allocatedResource?.[type] ?? 0;
  const value = {
    used: (queue) => -used(queue),
    pending: (queue) => -(queue.pendingResource?.[type] ?? 0),
    over: (queue) => (queue.guaranteedResource?.[type] ?? 0) - used(queue),
    type: (queue) => queue.allocatedResource?.[of] ?? 0,
    apps: (queue) => queue.runningApps ?? 0,
  }[name];
  return value ? (a, b) => (descending ? -1 : 1) * (value(a) - value(b)) : null;
}

function walk(queue, act) {
  act(queue);
  for (const child of queue.children ?? []) walk(child, act);
}

/** Returns the visible rows: all children of open queues or, with a filter, the queues that match and those above them. */
function flat(tree, open, wanted, all, order) {
  const items = [];
  const visit = (queue, level, place, siblings, seen, above) => {
    const bound = smaller(above, queue.maxResource);
    all.queues += 1;
    const match = !wanted || queue.queuename.toLowerCase().includes(wanted);
    const isOpen = open ? open.has(queue.queuename) : true;
    const at = items.length;
    const item = { queue, level, open: isOpen && Boolean(queue.children), place, siblings, match, dim: !match, bound };
    if (seen) items.push(item);
    const below = order ? [...(queue.children ?? [])].sort(order) : (queue.children ?? []);
    below.forEach((child, number) => visit(child, level + 1, number + 1, below.length, seen && isOpen, bound));
    if (wanted && !match && items.length === at + 1) items.pop();
  };
  visit(tree, 1, 1, 1, true, {});
  return items;
}

/** Returns, by type, the smaller of two bounds. */
function smaller(above, own = {}) {
  const least = { ...above };
  for (const type in own) if (!(own[type] >= least[type])) least[type] = own[type];
  return least;
}

function queueRow() {
  const row = el("div", { class: "queue-grid" });
  row.twist = el("span", { class: "twist", "aria-hidden": "true" });
  row.label = el("span", { class: "cut" });
  row.status = el("span", { class: "badge", "data-tone": "warn" });
  row.name = el("span", { class: "queue-name" }, row.twist, row.label, row.status);
  row.apps = el("span", { class: "number" });
  row.cells = [];
  row.append(row.name, row.apps);
  return row;
}

function meterCell(row) {
  const cell = el("span", { class: "queue-cell" });
  cell.bar = meter();
  cell.text = el("span", { class: "cut" });
  cell.more = el("span", { class: "faint" });
  cell.append(el("span", { class: "queue-numbers" }, cell.text, cell.more), cell.bar);
  row.cells.push(cell);
  return cell;
}

/** Fills a cell. `bound`: the smallest max from the root to the queue, for which the full width stands, whoever has it. */
function setCell(cell, type, queue, bound) {
  const used = queue.allocatedResource?.[type] ?? 0;
  const pending = queue.pendingResource?.[type] ?? 0;
  const max = queue.maxResource?.[type] ?? null;
  const guaranteed = queue.guaranteedResource?.[type] ?? null;
  const whole = Math.max(bound ?? 0, used);
  setMeter(cell.bar, { used, pending, guaranteed, whole });
  setText(cell.text, `${bare(type, used)}${max === null ? "" : ` / ${bare(type, max)}`}`);
  setText(cell.more, [guaranteed ? `${bare(type, guaranteed)} guar.` : "", pending ? `+${bare(type, pending)}` : ""].filter(Boolean).join("  "));
  const words = meterWords(type, { used, pending, guaranteed, max }) + (bound === undefined || bound === max ? "" : `; the queues above it allow ${amount(type, bound)}`);
  setAttribute(cell, "title", `${nameOf(type)}: ${words}`);
  return `${nameOf(type)} ${words}`;
}

function legend() {
  return el(
    "span",
    { class: "legend", "aria-label": "Legend" },
    el("span", {}, el("i", { class: "used" }), "used"),
    el("span", {}, el("i", { class: "over" }), "above guarantee"),
    el("span", {}, el("i", { class: "wait" }), "pending"),
    el("span", {}, el("i", { class: "tick" }), "guarantee"),
  );
}
