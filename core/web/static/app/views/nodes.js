// Nodes as a map: a cell each, darker the fuller. Drawn on one canvas, so that thousands cost nothing.

import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { blank, colour, el, freshCanvas, inNextFrame, setAttribute, setText, settled } from "../dom.js";
import { badge, facts, keyButton, section } from "../explain.js";
import { meter, meterWords, setMeter } from "../meter.js";
import { panel } from "../panel.js";
import { Poller } from "../poller.js";
import { amounts, count, counted, moment, nameOf, percent, share, typesOf } from "../units.js";

const FIELDS = "nodeID,schedulable,isReserved,capacity,allocated,occupied";
const GAP = 2;
const SMALLEST = 9;
const LARGEST = 104;
/** Cells of this size and more have room for a name. */
const NAMED = 72;
const STEPS = [0, 0.2, 0.4, 0.6, 0.8, 0.95];
const SHOWN = 300;

export class NodesView {
  #nodes = null;
  #shown = [];
  #grid = { columns: 1, size: SMALLEST };
  #active = "";
  #hover = -1;

  constructor() {
    const again = () => this.#arrange();
    this.filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter nodes by name", on: { input: settled(again, 120) } });
    this.type = el("select", { "aria-label": "Utilisation of", on: { change: again } }, el("option", { value: "", text: "Dominant share" }));
    this.order = el("select", { "aria-label": "Order", on: { change: again } }, el("option", { value: "name", text: "By name" }), el("option", { value: "full", text: "Fullest first" }), el("option", { value: "free", text: "Emptiest first" }));
    this.count = el("span", { class: "count", role: "status" });
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.option = el("div", { role: "option", id: "node-active", class: "hidden", "aria-selected": "true" });
    this.map = el("div", { class: "node-map", role: "listbox", tabindex: "0", "aria-label": "Nodes by utilisation; arrow keys move, Enter shows details" }, this.canvas, this.option);
    this.tip = el("div", { class: "tip", "aria-hidden": "true", hidden: true });
    this.none = blank("No nodes", "They appear as soon as the resource manager reports them.");
    this.bands = el("div", { class: "bands", role: "img" });
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Nodes" }), this.filter, this.type, this.order, this.count, el("span", { class: "space" }), legend()),
      el("div", { class: "card sheet" }, this.bands, this.map, this.none),
      this.tip,
    );
    this.none.hidden = true;
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
    this.poller.start();
  }

  hide() {
    this.poller.stop();
    this.tip.hidden = true;
  }

  async #fetch(signal) {
    this.#nodes = cluster.name ? await api.get(inPartition(`nodes?summary=true&fields=${FIELDS}`), signal) : [];
    const types = typesOf(...this.#nodes.slice(0, 200).map((node) => node.capacity ?? {}));
    if (types.join() !== [...this.type.options].slice(1).map((option) => option.value).join()) {
      this.type.replaceChildren(this.type.options[0], ...types.map((type) => el("option", { value: type, text: nameOf(type) })));
    }
    this.#arrange();
  }

  #arrange() {
    if (!this.#nodes) return;
    const wanted = this.filter.value.trim().toLowerCase();
    const type = this.type.value;
    this.#shown = this.#nodes.filter((node) => !wanted || node.nodeID.toLowerCase().includes(wanted));
    for (const node of this.#shown) node.load = load(node, type);
    const order = { name: (a, b) => compare(a.nodeID, b.nodeID), full: (a, b) => b.load - a.load, free: (a, b) => a.load - b.load }[this.order.value];
    this.#shown.sort((a, b) => order(a, b) || compare(a.nodeID, b.nodeID));
    const closed = this.#shown.filter((node) => !node.schedulable).length;
    setText(this.count, `${this.#shown.length === this.#nodes.length ? "" : `${count(this.#shown.length)} of `}${counted(this.#nodes.length, "node")}${closed ? `, ${count(closed)} closed` : ""}`);
    this.none.hidden = this.#shown.length > 0;
    this.map.hidden = this.bands.hidden = !this.#shown.length;
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
    const { columns, size } = (this.#grid = fitted(this.#shown.length, width, room));
    const step = size + GAP;
    const paint = freshCanvas(this.canvas, width, Math.max(step, Math.ceil(this.#shown.length / columns) * step));
    const shades = STEPS.map((_, place) => colour(`--heat-${place}`));
    const [text, ground, mark] = ["--text", "--surface", "--over"].map(colour);
    const corner = Math.min(4, size / 5);
    this.#shown.forEach((node, at) => {
      const [x, y] = [(at % columns) * step, Math.floor(at / columns) * step];
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
      outline(paint, (active % columns) * step, Math.floor(active / columns) * step, size, corner, text, ground);
    }
    this.#say();
  }

  #index() {
    return this.#shown.findIndex((node) => node.nodeID === this.#active);
  }

  #say() {
    const node = this.#shown[this.#index()];
    setAttribute(this.map, "aria-activedescendant", node ? "node-active" : null);
    setText(this.option, node ? nodeWords(node) : "");
  }

  #at(event) {
    const { columns, size } = this.#grid;
    const column = Math.floor(event.offsetX / (size + GAP));
    return column < columns ? Math.floor(event.offsetY / (size + GAP)) * columns + column : -1;
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
    const { columns, size } = this.#grid;
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns, Home: 0, End: this.#shown.length - 1 };
    if (event.key in moves) {
      const to = at < 0 ? 0 : Math.max(0, Math.min(moves[event.key], this.#shown.length - 1));
      this.#active = this.#shown[to]?.nodeID ?? "";
      const top = Math.floor(to / columns) * (size + GAP);
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
    panel.open([el("span", { class: "faint", text: "Node " }), el("span", { class: "mono", text: node.nodeID })], async () =>
      nodeDetails(await api.get(inPartition(`node/${encodeURIComponent(node.nodeID)}`))),
    );
  }
}

const compare = (a, b) => a.localeCompare(b, "en", { numeric: true });

/** How full a node is: of one type, or of the type it has least left of. */
function load(node, type) {
  const of = (one) => share((node.allocated?.[one] ?? 0) + (node.occupied?.[one] ?? 0), node.capacity?.[one] ?? 0);
  return type ? of(type) : Math.max(0, ...Object.keys(node.capacity ?? {}).map(of));
}

function shade(load) {
  let step = 0;
  while (step + 1 < STEPS.length && load >= STEPS[step + 1]) step += 1;
  return load <= 0 ? 0 : Math.max(step, 1);
}

/** The largest square cells that fit; many nodes get small ones and the map scrolls. */
function fitted(nodes, width, height) {
  for (let size = LARGEST; size > SMALLEST; size -= 1) {
    const columns = Math.floor((width + GAP) / (size + GAP));
    if (Math.ceil(nodes / columns) * (size + GAP) <= height) return { columns, size };
  }
  return { columns: Math.max(1, Math.floor((width + GAP) / (SMALLEST + GAP))), size: SMALLEST };
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

/** Black or white, whichever is easier to read on a colour such as #3b62d6. */
function legible(hex) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#10141a" : "#ffffff";
}

/** Two rings, one for light cells and one for dark ones. */
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

function nodeWords(node) {
  const types = typesOf(node.capacity).slice(0, 3);
  const full = types.map((type) => `${nameOf(type)} ${percent(load(node, type))}`).join(", ");
  return `${node.nodeID}: ${full}${node.schedulable ? "" : ", closed"}${node.isReserved ? ", kept for an ask" : ""}`;
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

function nodeDetails(node) {
  const types = typesOf(node.capacity);
  const rows = types.map((type) => {
    const bar = meter();
    const used = (node.allocated?.[type] ?? 0) + (node.occupied?.[type] ?? 0);
    const whole = node.capacity?.[type] ?? 0;
    setMeter(bar, { used, whole });
    const words = meterWords(type, { used, max: whole });
    return el("div", { class: "capacity-row small", role: "group", "aria-label": `${nameOf(type)}: ${words}` }, el("span", { class: "name", text: nameOf(type) }), el("strong", { text: percent(share(used, whole)) }), bar, el("span", { class: "cut", text: words.replace("at most ", "") }));
  });
  const work = (node.allocations ?? []).slice(0, SHOWN).map((one) =>
    el("tr", {}, el("td", {}, keyButton(one.allocationKey)), el("td", {}, keyButton(one.applicationId)), el("td", { class: "number", text: amounts(one.resource) })),
  );
  const hidden = (node.allocations ?? []).length - work.length;
  const foreign = node.foreignAllocations ?? [];
  return [
    facts([
      ["State", node.schedulable ? badge("open", "good") : badge("closed", "bad")],
      ["Drained by", node.drainedBy && `${node.drainedBy}, since ${moment(node.drainedSince)}`],
      ["Kept for", node.reservations?.join(", ")],
      ["Host", node.hostName],
      ["Rack", node.rackName],
    ]),
    section("Utilisation", ...rows),
    section(
      `${counted((node.allocations ?? []).length, "allocation")}`,
      work.length
        ? el("table", {}, el("thead", {}, el("tr", {}, el("th", { text: "Allocation" }), el("th", { text: "Application" }), el("th", { class: "number", text: "Holds" }))), el("tbody", {}, ...work))
        : el("p", { class: "muted", text: "Nothing runs here." }),
      hidden > 0 && el("p", { class: "muted", text: `and ${count(hidden)} more` }),
    ),
    foreign.length && section("Load of other schedulers", ...foreign.map((one) => el("p", {}, el("span", { class: "mono", text: one.allocationKey }), ` ${amounts(one.resource)}`))),
    Object.keys(node.attributes).length && section("Attributes", facts(Object.entries(node.attributes).map(([name, value]) => [name, el("span", { class: "mono", text: value })]))),
  ].filter(Boolean);
}
