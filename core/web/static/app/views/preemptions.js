// Preemption over time: who had to leave, for whom, by which kind of decision and law, and what came of it.

import { blank, colour, el, freshCanvas, inNextFrame, setAttribute, setText, settled } from "../dom.js";
import { facts, keyButton, section, victimTable } from "../explain.js";
import { kinds } from "../kinds.js";
import { panel } from "../panel.js";
import { preemptions } from "../tails.js";
import { clock, count, counted, moment, readable, span, words } from "../units.js";
import { VirtualList } from "../virtual_list.js";

const LANE = 26;
const LEFT = 112;
const AXIS = 20;
const SHORTEST_MS = 60_000;

export class PreemptionsView {
  #points = [];

  constructor() {
    const again = () => this.#show(0);
    this.filter = el("input", { type: "search", placeholder: "Filter by any name", "aria-label": "Filter decisions", on: { input: settled(again, 120) } });
    this.kind = el("select", { "aria-label": "Kind", on: { change: again } }, el("option", { value: "", text: "Every kind" }));
    const choose = () => this.#choices();
    kinds.addEventListener("change", choose);
    choose();
    this.effect = el("label", { class: "check" }, el("input", { type: "checkbox", on: { change: again } }), "effective only");
    this.count = el("span", { class: "count" });
    this.canvas = el("canvas", { role: "img", on: { click: (event) => this.#click(event) } });
    this.head = el("div", { class: "rows-head decision-grid", "aria-hidden": "true" }, ...["Time", "Kind", "Who leaves", "For whom", "Law", "Outcome"].map((text) => el("span", { text })));
    this.list = new VirtualList({
      label: "Decisions to preempt, the newest first",
      height: 48,
      key: (one) => one.id,
      create: decisionRow,
      update: updateRow,
      open: openDecision,
    });
    this.none = blank("Nobody was preempted", "Decisions appear here as they are made. The core remembers the last 10,000.");
    this.timeline = el("div", { class: "card timeline" }, this.canvas);
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Preemption" }), this.filter, this.kind, this.effect, el("span", { class: "space" }), this.count),
      this.timeline,
      el("div", { class: "card sheet" }, this.head, this.list.root, this.none),
    );
    const more = inNextFrame(() => this.root.isConnected && this.#show(this.grown));
    preemptions.addEventListener("more", ({ detail }) => {
      this.grown = (this.grown ?? 0) + detail;
      more();
    });
    this.draw = inNextFrame(() => this.#draw());
    new ResizeObserver(this.draw).observe(this.timeline);
    window.addEventListener("themechange", this.draw);
  }

  show() {
    preemptions.hold();
    this.#show(0);
    this.ticking = setInterval(this.draw, 1_000);
  }

  hide() {
    preemptions.release();
    clearInterval(this.ticking);
  }

  #show(grown) {
    const wanted = this.filter.value.trim().toLowerCase();
    const kind = this.kind.value;
    const effective = this.effect.firstChild.checked;
    const fits = (one) => (!kind || one.kind === kind) && (!effective || taken(one)) && (!wanted || JSON.stringify(one).toLowerCase().includes(wanted));
    const items = preemptions.entries.filter(fits);
    const fresh = preemptions.entries.slice(0, grown).filter(fits).length;
    this.grown = 0;
    this.list.show(items, fresh);
    this.none.hidden = items.length > 0;
    this.list.root.hidden = this.head.hidden = !items.length;
    if (preemptions.problem) setText(this.none.lastChild, preemptions.problem);
    const victims = items.filter(taken).reduce((sum, one) => sum + one.victims.length, 0);
    setText(this.count, `${counted(items.length, "decision")}, ${counted(victims, "victim")}`);
    this.draw();
  }

  /** The kinds to choose from are those that the core has. */
  #choices() {
    const chosen = this.kind.value;
    const named = kinds.list.map(({ name }) => el("option", { value: name, text: words(name) }));
    this.kind.replaceChildren(this.kind.firstChild, ...named);
    this.kind.value = chosen;
  }

  #draw() {
    const items = this.list.items;
    const lanes = kinds.list.map(({ name }) => name);
    const width = this.timeline.clientWidth - 28;
    if (!this.root.isConnected || width <= LEFT) return;
    const height = lanes.length * LANE + AXIS;
    const paint = freshCanvas(this.canvas, width, height);
    const now = Date.now();
    const oldest = items.length ? items.at(-1).time / 1e6 : now;
    const spanMs = Math.max(SHORTEST_MS, (now - oldest) * 1.04);
    const x = (ns) => LEFT + ((ns / 1e6 - now + spanMs) / spanMs) * (width - LEFT - 10);
    paint.font = "12px ui-sans-serif, system-ui, sans-serif";
    paint.textBaseline = "middle";
    const [line, muted] = [colour("--line"), colour("--muted")];
    kinds.list.forEach(({ name, laws }, lane) => {
      const level = lane * LANE + LANE / 2 + 0.5;
      paint.strokeStyle = line;
      paint.beginPath();
      paint.moveTo(LEFT, level);
      paint.lineTo(width, level);
      paint.stroke();
      // Who only bounds the others stands back until it has decided something.
      paint.fillStyle = laws.length || items.some((one) => one.kind === name) ? muted : colour("--faint");
      paint.fillText(words(name), 0, level);
    });
    this.#points = [];
    for (const one of [...items].reverse()) {
      const lane = Math.max(0, lanes.indexOf(one.kind));
      const size = one.victims ? Math.min(10, 3.5 + Math.sqrt(one.victims.length) * 1.5) : 3;
      const at = { x: x(one.time), y: lane * LANE + LANE / 2, size, one };
      paint.beginPath();
      paint.arc(at.x, at.y, size, 0, 7);
      const shade = colour(`--kind-${kinds.colour(one.kind)}`);
      if (taken(one)) {
        paint.globalAlpha = 0.75;
        paint.fillStyle = shade;
        paint.fill();
        paint.globalAlpha = 1;
      } else {
        paint.fillStyle = colour("--surface");
        paint.fill();
        paint.strokeStyle = shade;
        paint.lineWidth = 1.5;
        paint.stroke();
        paint.lineWidth = 1;
      }
      this.#points.push(at);
    }
    paint.fillStyle = colour("--faint");
    paint.font = "11px ui-sans-serif, system-ui, sans-serif";
    for (let part = 0; part <= 4; part += 1) {
      paint.textAlign = part === 4 ? "right" : part ? "center" : "left";
      const left = LEFT + (part / 4) * (width - LEFT - 10);
      paint.fillText(part === 4 ? "now" : `${span(spanMs * (1 - part / 4))} ago`, left, height - 7);
    }
    paint.textAlign = "left";
    setAttribute(this.canvas, "aria-label", `${counted(items.length, "decision")} over the last ${span(spanMs)}; the list below has them all`);
  }

  #click(event) {
    const near = this.#points
      .map((point) => ({ point, far: Math.hypot(point.x - event.offsetX, point.y - event.offsetY) - point.size }))
      .sort((a, b) => a.far - b.far)[0];
    if (!near || near.far > 8) return;
    this.list.select(this.list.items.indexOf(near.point.one));
    openDecision(near.point.one);
  }
}

/** Whether somebody really had to leave: notices, shadows and what was withdrawn name victims too. */
export const taken = (one) => Boolean(one.victims) && kinds.ending(one).leaves;

export function outcomeBadge(one) {
  const word = one.outcome === "TRIGGERED" ? "Preempted" : words(one.outcome);
  return el("span", { class: "badge", "data-tone": kinds.ending(one).tone || null, text: word });
}

/** Who leaves, in a line. */
export function victimWords(one) {
  const victims = one.victims ?? [];
  if (!victims.length) return "nobody";
  const queues = [...new Set(victims.map((victim) => victim.queueName))];
  const first = victims.length === 1 ? victims[0].allocationKey : counted(victims.length, "allocation");
  return `${first} of ${queues.length === 1 ? queues[0] : counted(queues.length, "queue")}`;
}

/** For whom, in a line. */
export function servedWords(one) {
  return one.allocationKey ? `${one.allocationKey} of ${one.queueName}` : "its queue's sake";
}

function decisionRow() {
  const row = el("div", { class: "decision-grid" });
  const pair = () => el("span", { class: "pair" }, el("span", { class: "cut" }), el("span", { class: "muted cut" }));
  row.append(el("time", { class: "faint" }), el("span", { class: "kind" }), pair(), pair(), el("span", { class: "muted clamp" }), el("span", {}));
  return row;
}

function updateRow(row, one) {
  if (row.shown === one) return;
  row.shown = one;
  const [time, kind, who, whom, law, outcome] = row.children;
  const victims = one.victims ?? [];
  const apps = [...new Set(victims.map((victim) => victim.applicationID))];
  setText(time, clock(one.time, { millis: true }));
  setText(kind, words(one.kind));
  setAttribute(kind, "data-colour", kinds.colour(one.kind));
  setText(who.children[0], victims.length ? (victims.length === 1 ? victims[0].allocationKey : counted(victims.length, "allocation")) : "nobody");
  setText(who.children[1], victims.length ? `${apps.length === 1 ? apps[0] : counted(apps.length, "application")} in ${[...new Set(victims.map((victim) => victim.queueName))].join(", ")}` : "");
  setText(whom.children[0], one.allocationKey ?? "its queue");
  setText(whom.children[1], [one.applicationID, one.queueName && `in ${one.queueName}`, one.nodeID && `on ${one.nodeID}`].filter(Boolean).join(" "));
  setText(law, one.law ?? readable(one.detail));
  setAttribute(law, "title", one.law ?? readable(one.detail));
  outcome.replaceChildren(outcomeBadge(one));
  setAttribute(row, "aria-label", `${clock(one.time)}, ${words(one.kind)}: ${victimWords(one)} for ${servedWords(one)}, ${words(one.outcome)}`);
}

/** Everything about one decision, in the panel. */
export function openDecision(one) {
  const [reason, alternatives] = (one.detail ?? "").split("; weighed: ");
  return panel.open(
    [el("span", { class: "faint", text: "Preemption " }), `${words(one.kind)} at ${clock(one.time)}`],
    () =>
      [
        facts([
          ["Outcome", outcomeBadge(one)],
          ["When", moment(one.time)],
          ["For", one.allocationKey ? keyButton(one.allocationKey) : "its queue's sake"],
          ["Application", one.applicationID && keyButton(one.applicationID)],
          ["Queue", one.queueName && el("span", { class: "mono", text: one.queueName })],
          ["Node", one.nodeID && el("span", { class: "mono", text: one.nodeID })],
          ["Law", one.law],
          ["Reason", readable(reason)],
          ["Alternatives", alternatives],
        ]),
        one.victims && section(`Who leaves: ${count(one.victims.length)}`, victimTable(one.victims)),
      ].filter(Boolean),
  );
}
