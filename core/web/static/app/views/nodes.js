// Shows nodes as a map with a cell for each node, which is darker if the node is fuller, and grouped by racks or zones on
// request. It is drawn on one canvas, so that thousands of nodes cost almost nothing.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { DataTable } from "../data_table.js";
import { blank, colour, el, freshCanvas, inNextFrame, setAttribute, setText } from "../dom.js";
import { badge } from "../explain.js";
import { link, openDetails, setLink } from "../links.js";
import { meter, setMeter } from "../meter.js";
import { Poller } from "../poller.js";
import { typeChoice, typeChooser } from "../type_choice.js";
import { amount, bare, count, counted, headOf, inUnit, moment, nameOf, percent, share, typesIn, typesOf, unitOf } from "../units.js";

const FIELDS = "nodeID,schedulable,isReserved,capacity,allocated,occupied,drainedBy,drainedSince,domains";
const GAP = 2;
const SMALLEST = 9;
const LARGEST = 104;
/** Cells of at least this size have room for a name. */
const NAMED = 72;
/** The name above the nodes of a domain, and the space around them. */
const LABEL = { width: 96, height: 18, gap: 12 };
/** The width of a letter of a label, roughly. */
const LETTER = 6;
const STEPS = [0, 0.2, 0.4, 0.6, 0.8, 0.95];

export class NodesView {
  #nodes = null;
  #known = null;
  #shown = [];
  #layout = { size: SMALLEST, places: [] };
  #active = "";
  #hover = -1;

  constructor() {
    const chosen = (name, box) => () => address.set({ [name]: box().value });
    this.table = new DataTable({
      label: "Nodes",
      noun: "node",
      sort: "name",
      height: 34,
      keyOf: (node) => node.nodeID,
      open: (node) => openDetails("node", node.nodeID),
      describe: nodeWords,
      columns: nodeColumns([]),
    });
    this.filter = this.table.filter;
    this.type = el("select", { "aria-label": "Utilisation of", on: { change: chosen("of", () => this.type) } }, el("option", { value: "", text: "Dominant share" }));
    this.order = el("select", { "aria-label": "Order", on: { change: chosen("order", () => this.order) } }, el("option", { value: "", text: "By name" }), el("option", { value: "full", text: "Fullest first" }), el("option", { value: "free", text: "Emptiest first" }));
    this.by = el("select", { "aria-label": "Group", on: { change: chosen("by", () => this.by) } }, el("option", { value: "", text: "Not grouped" }));
    this.which = el("select", { "aria-label": "State", on: { change: chosen("state", () => this.which) } }, el("option", { value: "", text: "All nodes" }), el("option", { value: "open", text: "Open" }), el("option", { value: "closed", text: "Closed" }), el("option", { value: "drained", text: "Drained by operators" }), el("option", { value: "kept", text: "Kept for an ask" }));
    this.how = el("button", { type: "button", on: { click: () => address.set({ as: address.get("as") === "list" ? "" : "list" }) } });
    this.types = typeChooser();
    this.count = el("span", { class: "count", role: "status" });
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.option = el("div", { role: "option", id: "node-active", class: "hidden", "aria-selected": "true", hidden: true });
    this.map = el("div", { class: "node-map", role: "listbox", tabindex: "0", "aria-label": "Nodes by utilisation; arrow keys move, Enter shows details" }, this.canvas, this.option);
    this.tip = el("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.none = blank("No nodes", "They appear as soon as the resource manager reports them.");
    this.bands = el("div", { class: "bands", role: "img", hidden: true });
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Nodes" }), this.filter, this.which, this.type, this.by, this.order, this.types, this.count, el("span", { class: "space" }), this.how, this.table.csv, (this.legend = legend())),
      el("div", { class: "card sheet" }, this.bands, this.map, this.table.root, this.none),
      this.tip,
    );
    this.none.hidden = this.by.hidden = true;
    this.draw = inNextFrame(() => this.#draw());
    this.poller = new Poller((signal) => this.#fetch(signal), 1_500);
    new ResizeObserver(this.draw).observe(this.map);
    window.addEventListener("themechange", this.draw);
    cluster.addEventListener("partition", () => {
      this.#nodes = null;
      if (this.root.isConnected) this.poller.now();
    });
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#point(null));
    this.canvas.addEventListener("click", (event) => this.#open(this.#at(event)));
    this.map.addEventListener("keydown", (event) => this.#key(event));
    for (const event of ["focus", "blur"]) this.map.addEventListener(event, this.draw);
  }

  show() {
    this.follow();
    this.poller.start();
  }

  follow() {
    const list = address.get("as") === "list";
    this.list = list;
    setText(this.how, list ? "Show as map" : "Show as list");
    this.order.hidden = this.legend.hidden = list;
    this.by.hidden = list || this.by.options.length < 2;
    this.types.hidden = !list || typeChoice.all.length < 2;
    this.order.value = address.get("order");
    this.by.value = address.get("by");
    this.which.value = address.get("state");
    this.type.value = address.get("of");
    this.table.follow();
    this.#arrange();
  }

  hide() {
    this.poller.stop();
    this.tip.hidden = true;
  }

  async #fetch(signal) {
    const known = cluster.name ? await api.again(inPartition(`nodes?summary=true&fields=${FIELDS}`), signal, this.#known) : { document: [] };
    if (known === this.#known && this.#nodes) return;
    this.#known = known;
    this.#nodes = known.document;
    const types = typesIn(this.#nodes.map((node) => node.capacity));
    if (types.join() !== [...this.type.options].slice(1).map((option) => option.value).join()) {
      this.type.replaceChildren(this.type.options[0], ...types.map((type) => el("option", { value: type, text: nameOf(type) })));
      this.type.value = address.get("of");
      typeChoice.offer(types);
    }
    this.#offerLevels();
    this.#arrange();
  }

  /** Lets the reader group the nodes by the levels of the topology at which any node is in a domain. */
  #offerLevels() {
    const levels = levelsOf(this.#nodes);
    if (levels.join() === [...this.by.options].slice(1).map((option) => option.value).join()) return;
    this.by.replaceChildren(this.by.options[0], ...levels.map((level) => el("option", { value: level, text: `By ${level}` })));
    this.by.value = address.get("by");
    this.by.hidden = this.list || !levels.length;
  }

  #arrange() {
    if (!this.#nodes) return;
    const wanted = address.get("q").toLowerCase();
    const type = address.get("of");
    const fits = { open: (node) => node.schedulable, closed: (node) => !node.schedulable, drained: (node) => Boolean(node.drainedBy), kept: (node) => node.isReserved }[address.get("state")];
    const nodes = fits ? this.#nodes.filter(fits) : this.#nodes;
    this.#shown = nodes.filter((node) => !wanted || node.nodeID.toLowerCase().includes(wanted));
    for (const node of this.#shown) node.load = load(node, type);
    const order = { full: (a, b) => b.load - a.load, free: (a, b) => a.load - b.load }[address.get("order")] ?? (() => 0);
    const level = this.by.value;
    this.#shown.sort((a, b) => (level ? compareDomains(domainOf(a, level), domainOf(b, level)) : 0) || order(a, b) || compare(a.nodeID, b.nodeID));
    const closed = this.#shown.filter((node) => !node.schedulable).length;
    setText(this.count, `${this.#shown.length === this.#nodes.length ? "" : `${count(this.#shown.length)} of `}${counted(this.#nodes.length, "node")}${closed ? `, ${count(closed)} closed` : ""}`);
    this.none.hidden = this.#shown.length > 0;
    setText(this.none.firstChild, this.#nodes.length ? "No such node" : "No nodes");
    setText(this.none.lastChild, this.#nodes.length ? "No node matches the filters above." : "They appear as soon as the resource manager reports them.");
    this.table.root.hidden = !this.list || !this.#shown.length;
    this.map.hidden = this.list || !this.#shown.length;
    this.bands.hidden = !this.#shown.length;
    this.table.setColumns(nodeColumns(typeChoice.chosen, levelsOf(this.#nodes)));
    this.table.show(nodes);
    this.#drawBands();
    this.draw();
  }

  #drawBands() {
    const counts = STEPS.map((from, step) => this.#shown.filter((node) => node.load >= from && (step === STEPS.length - 1 || node.load < STEPS[step + 1])).length);
    while (this.bands.childElementCount < counts.length) this.bands.append(el("i"));
    counts.forEach((number, step) => {
      const band = this.bands.children[step];
      band.style.flexGrow = number;
      band.style.background = `var(--heat-${step})`;
      band.hidden = !number;
      band.title = `${bandName(step)}: ${counted(number, "node")}`;
    });
    setAttribute(this.bands, "aria-label", counts.map((number, step) => `${bandName(step)}: ${counted(number, "node")}`).join(", "));
  }

  #draw() {
    const width = this.map.clientWidth - 28;
    const room = this.map.clientHeight - 24;
    if (!this.root.isConnected || width <= 0 || !this.#shown.length) return;
    const { size, places, labels, height } = (this.#layout = fitted(this.#shown, this.by.value, address.get("of") || typesOf(this.#shown[0].capacity)[0], width, room));
    const paint = freshCanvas(this.canvas, width, height);
    const shades = STEPS.map((_, place) => colour(`--heat-${place}`));
    const [text, ground, mark] = ["--text", "--surface", "--over"].map(colour);
    const corner = Math.min(4, size / 5);
    for (const { x, y, room, label, long } of labels) writeLabel(paint, x, y, room, long.length * LETTER <= room ? long : label, text);
    setAttribute(this.map, "aria-description", labels.map(({ long }) => long).join("; ") || null);
    this.#shown.forEach((node, at) => {
      const { x, y } = places[at];
      paint.fillStyle = shades[shade(node.load)];
      paint.beginPath();
      paint.roundRect(x, y, size, size, corner);
      paint.fill();
      if (!node.schedulable) {
        paint.strokeStyle = colour("--bad");
        paint.lineWidth = Math.max(1.25, size / 14);
        paint.beginPath();
        paint.moveTo(x + size * 0.25, y + size * 0.25);
        paint.lineTo(x + size * 0.75, y + size * 0.75);
        paint.moveTo(x + size * 0.75, y + size * 0.25);
        paint.lineTo(x + size * 0.25, y + size * 0.75);
        paint.stroke();
      }
      if (node.isReserved) {
        paint.fillStyle = mark;
        paint.beginPath();
        paint.arc(x + size - size / 5, y + size / 5, Math.max(1.5, size / 9), 0, 7);
        paint.fill();
      }
      if (size >= NAMED) write(paint, node, x, y, size, shades);
      if (at === this.#hover) outline(paint, x, y, size, corner, text, ground);
    });
    const active = this.#index();
    if (active >= 0 && this.map.matches(":focus-visible, :has(:focus-visible)")) {
      outline(paint, places[active].x, places[active].y, size, corner, text, ground);
    }
    this.#say();
  }

  #index() {
    return this.#shown.findIndex((node) => node.nodeID === this.#active);
  }

  #say() {
    const node = this.#shown[this.#index()];
    setAttribute(this.map, "aria-activedescendant", node ? "node-active" : null);
    this.option.hidden = !node;
    setText(this.option, node ? nodeWords(node) : "");
  }

  #at(event) {
    const { size, places } = this.#layout;
    return places.findIndex(({ x, y }) => event.offsetX >= x && event.offsetX < x + size + GAP && event.offsetY >= y && event.offsetY < y + size + GAP);
  }

  #point(event) {
    const at = event ? this.#at(event) : -1;
    const node = this.#shown[at];
    this.tip.hidden = !node;
    if (node) {
      setText(this.tip, nodeWords(node));
      this.tip.style.transform = `translate(${Math.min(event.clientX + 14, innerWidth - 320)}px, ${Math.min(event.clientY + 14, innerHeight - 60)}px)`;
    }
    if (at !== this.#hover) {
      this.#hover = at;
      this.draw();
    }
  }

  #key(event) {
    const at = this.#index();
    const { size, places } = this.#layout;
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: neighbour(places, at, 1), ArrowUp: neighbour(places, at, -1), Home: 0, End: this.#shown.length - 1 };
    if (event.key in moves) {
      const to = at < 0 ? 0 : Math.max(0, Math.min(moves[event.key], this.#shown.length - 1));
      this.#active = this.#shown[to]?.nodeID ?? "";
      const top = places[to]?.y ?? 0;
      if (top < this.map.scrollTop) this.map.scrollTop = top;
      else if (top + size + 24 > this.map.scrollTop + this.map.clientHeight) this.map.scrollTop = top + size + 24 - this.map.clientHeight;
      this.draw();
    } else if ((event.key === "Enter" || event.key === " ") && at >= 0) this.#open(at);
    else return;
    event.preventDefault();
  }

  #open(at) {
    const node = this.#shown[at];
    if (!node) return;
    this.#active = node.nodeID;
    this.draw();
    openDetails("node", node.nodeID);
  }
}

const compare = new Intl.Collator("en", { numeric: true }).compare;

/** Returns how full a node is: of one type, or of the type of which it has the smallest part left. */
function load(node, type) {
  const of = (one) => share((node.allocated?.[one] ?? 0) + (node.occupied?.[one] ?? 0), node.capacity?.[one] ?? 0);
  return type ? of(type) : Math.max(0, ...Object.keys(node.capacity ?? {}).map(of));
}

function shade(load) {
  let step = 0;
  while (step + 1 < STEPS.length && load >= STEPS[step + 1]) step += 1;
  return load <= 0 ? 0 : Math.max(step, 1);
}

/**
 * Finds the largest square cells that fit. Returns their `size`, the `places` of the nodes, the `labels` of domains, and the
 * `height` of all. If there are very many nodes, the cells are small and the map scrolls.
 */
function fitted(nodes, level, type, width, height) {
  const groups = level ? groupsOf(nodes, level, type) : [{ label: "", long: "", count: nodes.length }];
  let size = LARGEST;
  let flow = flowOf(groups, width, size);
  while (flow.height > height && size > SMALLEST) flow = flowOf(groups, width, (size -= 1));
  const step = size + GAP;
  const places = flow.blocks.flatMap(({ x, y, columns, count }) => Array.from({ length: count }, (_, at) => ({ x: x + (at % columns) * step, y: y + Math.floor(at / columns) * step })));
  const labels = level ? flow.blocks.map(({ x, y, room, label, long }) => ({ x, y: y - LABEL.height, room, label, long })) : [];
  return { size, places, labels, height: flow.height };
}

/** Returns the domains of *nodes*, which are sorted by domain: of each the label, a longer one that says how much is free,
    and the number of nodes. */
function groupsOf(nodes, level, type) {
  const groups = [];
  for (const node of nodes) {
    const domain = domainOf(node, level);
    if (groups.at(-1)?.domain !== domain) groups.push({ domain, count: 0, load: 0, free: 0, capacity: 0 });
    const group = groups.at(-1);
    group.count += 1;
    group.load += node.load;
    group.capacity += node.capacity?.[type] ?? 0;
    group.free += node.schedulable ? Math.max(0, (node.capacity?.[type] ?? 0) - (node.allocated?.[type] ?? 0) - (node.occupied?.[type] ?? 0)) : 0;
  }
  return groups.map(({ domain, count, load, free, capacity }) => {
    const label = `${domain || `no ${level}`}: ${percent(load / count)}`;
    return { label, long: `${label}, ${bare(type, free)} of ${amount(type, capacity)}${unitOf(type) ? "" : ` ${type}`} free`, count };
  });
}

/** Returns where blocks of cells are drawn: one that fills the width, or one for each domain, side by side, each below its
    label. */
function flowOf(groups, width, size) {
  const step = size + GAP;
  const most = Math.max(1, Math.floor((width + GAP) / step));
  let [x, y, lowest] = [0, 0, 0];
  const blocks = groups.map(({ label, long, count }) => {
    const columns = label ? Math.min(most, Math.max(Math.floor(LABEL.width / step), Math.ceil(Math.sqrt(count * 1.6)), 1)) : most;
    const room = Math.max(LABEL.width, columns * step);
    if (x > 0 && x + room > width) [x, y] = [0, lowest + LABEL.gap];
    const block = { x, y: y + (label ? LABEL.height : 0), columns, room, label, long, count };
    lowest = Math.max(lowest, block.y + Math.ceil(count / columns) * step);
    x += room + LABEL.gap;
    return block;
  });
  return { blocks, height: Math.max(step, lowest) };
}

/** Returns the node nearest to the one at *at* in the next row below (*way* 1) or above (-1); *at* itself if there is none. */
function neighbour(places, at, way) {
  const from = places[at];
  if (!from) return 0;
  let best = at;
  let nearest = [Infinity, Infinity];
  places.forEach(({ x, y }, other) => {
    const distance = [(y - from.y) * way, Math.abs(x - from.x)];
    if (distance[0] <= 0 || distance[0] > nearest[0] || (distance[0] === nearest[0] && distance[1] >= nearest[1])) return;
    [best, nearest] = [other, distance];
  });
  return best;
}

/** Returns the name of the domain of *level* in which a node is; empty: it is in none. */
const domainOf = (node, level) => node.domains?.find((domain) => domain.level === level)?.name ?? "";

/** Orders domains by name; nodes that are in none come last. */
const compareDomains = (one, other) => (one && other ? compare(one, other) : Number(!one) - Number(!other));

/** Returns the levels of the topology at which any of *nodes* is in a domain, the outermost first. */
function levelsOf(nodes) {
  const deepest = nodes.reduce((found, node) => ((node.domains?.length ?? 0) > found.length ? node.domains : found), []);
  return deepest.map((domain) => domain.level);
}

function writeLabel(paint, x, y, room, label, text) {
  paint.fillStyle = text;
  paint.textBaseline = "top";
  paint.font = "11px ui-sans-serif, system-ui, sans-serif";
  const most = Math.floor(room / LETTER);
  paint.fillText(label.length > most ? `…${label.slice(1 - most)}` : label, x, y + 2, room);
}

function write(paint, node, x, y, size, shades) {
  const name = node.nodeID.length > 12 ? `…${node.nodeID.slice(-11)}` : node.nodeID;
  paint.fillStyle = legible(shades[shade(node.load)]);
  paint.textBaseline = "top";
  paint.font = "11px ui-sans-serif, system-ui, sans-serif";
  paint.fillText(name, x + 8, y + 8, size - 16);
  paint.font = "600 18px ui-sans-serif, system-ui, sans-serif";
  paint.textBaseline = "alphabetic";
  paint.fillText(percent(node.load), x + 8, y + size - 10, size - 16);
}

/** Returns black or white, whichever is easier to read on a colour such as #3b62d6. */
function legible(hex) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#10141a" : "#ffffff";
}

/** Draws two rings, so that one is visible on light cells and the other on dark ones. */
function outline(paint, x, y, size, corner, outer, inner) {
  paint.lineWidth = 2;
  paint.strokeStyle = outer;
  paint.beginPath();
  paint.roundRect(x, y, size, size, corner);
  paint.stroke();
  paint.lineWidth = 1.5;
  paint.strokeStyle = inner;
  paint.beginPath();
  paint.roundRect(x + 1.75, y + 1.75, size - 3.5, size - 3.5, Math.max(corner - 1, 0));
  paint.stroke();
}

/** Returns the innermost domain in which a node is, such as "rack a/r7"; empty: it is in none. */
function innermost(node) {
  const domain = node.domains?.at(-1);
  return domain ? `${domain.level} ${domain.name}` : "";
}

function nodeWords(node) {
  const types = typesOf(node.capacity).slice(0, 3);
  const full = types.map((type) => `${nameOf(type)} ${percent(load(node, type))}`).join(", ");
  return `${node.nodeID}: ${full}${node.schedulable ? "" : ", closed"}${node.isReserved ? ", kept for an ask" : ""}${innermost(node) ? `, in ${innermost(node)}` : ""}`;
}

const bandName = (step) => (step === STEPS.length - 1 ? "95 % and above" : `${Math.round(STEPS[step] * 100)} to ${Math.round(STEPS[step + 1] * 100)} %`);

function legend() {
  return el(
    "span",
    { class: "legend heat-legend", "aria-label": "Legend: the fuller a node, the stronger its colour" },
    "0 %",
    el("span", { class: "heat" }, ...STEPS.map((_, step) => el("i", { class: `heat-${step}`, title: bandName(step) }))),
    "100 %",
    el("span", {}, el("i", { class: "reserved" }), "kept for an ask"),
    el("span", {}, el("b", { class: "closed", text: "×" }), "closed"),
  );
}

/** Returns the columns of the list, with a bar for each chosen type. */
function nodeColumns(types, levels = []) {
  const used = (node, type) => (node.allocated?.[type] ?? 0) + (node.occupied?.[type] ?? 0);
  return [
    { key: "name", title: "Node", value: (node) => node.nodeID, draw: drawName, width: "minmax(120px, 1.4fr)" },
    { key: "state", title: "State", value: stateWords, draw: drawState, width: "minmax(84px, 0.7fr)" },
    { key: "full", title: "Fullest", value: (node) => node.load ?? 0, text: (node) => percent(node.load ?? 0), saved: [["Fullest, %", (node) => Math.round(1000 * (node.load ?? 0)) / 10]], number: true, width: "72px" },
    ...types.map((type) => ({
      key: type,
      title: headOf(type),
      value: (node) => share(used(node, type), node.capacity?.[type] ?? 0),
      saved: [[headOf(type, "used"), (node) => inUnit(type, used(node, type))], [headOf(type, "there"), (node) => inUnit(type, node.capacity?.[type] ?? 0)]],
      draw: (cell, node) => drawUse(cell, type, used(node, type), node.capacity?.[type] ?? 0),
      number: true,
      wide: true,
      width: "minmax(120px, 1fr)",
    })),
    ...levels.slice(-1).map((level) => ({ key: "domain", title: level[0].toUpperCase() + level.slice(1), value: (node) => domainOf(node, level), width: "minmax(80px, 0.7fr)", wide: true })),
    { key: "drained", title: "Drained by", value: (node) => node.drainedBy ?? "", text: (node) => (node.drainedBy ? `${node.drainedBy}, ${moment(node.drainedSince)}` : ""), saved: [["Drained by", (node) => node.drainedBy], ["Drained since", (node) => node.drainedBy && moment(node.drainedSince)]], width: "minmax(90px, 1fr)", wide: true },
  ];
}

const stateWords = (node) => [node.drainedBy ? "drained" : node.schedulable ? "open" : "closed", node.isReserved && "kept"].filter(Boolean).join(", ");

function drawName(cell, node) {
  if (!cell.firstChild) cell.append(link("node", node.nodeID));
  setLink(cell.firstChild, "node", node.nodeID);
}

function drawState(cell, node) {
  const text = stateWords(node);
  if (cell.dataset.state === text) return;
  cell.dataset.state = text;
  cell.replaceChildren(badge(text, node.schedulable ? (node.isReserved ? "warn" : "good") : "bad"));
}

function drawUse(cell, type, used, whole) {
  if (!cell.bar) {
    cell.bar = meter();
    cell.words = el("span", {});
    cell.replaceChildren(cell.words, cell.bar);
    cell.classList.add("use");
  }
  setMeter(cell.bar, { used, whole });
  setText(cell.words, `${bare(type, used)} of ${bare(type, whole)}`);
  setAttribute(cell, "title", `${nameOf(type)}: ${amount(type, used)} of ${amount(type, whole)}`);
}
