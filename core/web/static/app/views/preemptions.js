// Shows preemption over time: which allocations had to leave, for which ask, by which kind of decision and law, and with
// what result. New decisions are shown as they are made; earlier ones, even from before this tab was open, come from the
// stored history.

import { address } from "../address.js";
import { api } from "../api.js";
import { DataTable } from "../data_table.js";
import { outcomeBadge, outcomeWord, servedWords, sumsByQueue, taken, victimWords } from "../decisions.js";
import { cluster } from "../cluster.js";
import { colour, el, freshCanvas, inNextFrame, setAttribute, setText } from "../dom.js";
import { joinPlans, memberWords, victimGroups } from "../gang_plans.js";
import { kinds } from "../kinds.js";
import { lawText } from "../laws.js";
import { link, openDetails } from "../links.js";
import { pastDecisions } from "../past_preemptions.js";
import { Poller } from "../poller.js";
import { PARTIES, SumsTable, pastSums } from "../preemption_sums.js";
import { preemptions } from "../tails.js";
import { clock, counted, moment, momentOrNone, readable, shortMoment, span, words } from "../units.js";

const LANE = 26;
const LEFT = 112;
const AXIS = 20;
const SHORTEST_MS = 60_000;
const HOUR_MS = 3_600_000;
const RANGES_MS = { "1h": HOUR_MS, "24h": 24 * HOUR_MS, "7d": 7 * 24 * HOUR_MS, "30d": 30 * 24 * HOUR_MS };
const RANGE_NAMES = { "": "Since the core started", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days" };

export class PreemptionsView {
  #points = [];
  #shown = [];
  #past = null;
  #asked = "";

  constructor() {
    const choose = (name, box) => () => address.set({ [name]: box().value });
    this.range = el("select", { "aria-label": "Range", on: { change: choose("range", () => this.range) } }, ...Object.entries(RANGE_NAMES).map(([value, text]) => el("option", { value, text })));
    this.kind = el("select", { "aria-label": "Kind", on: { change: choose("kind", () => this.kind) } }, el("option", { value: "", text: "Every kind" }));
    kinds.addEventListener("change", () => this.#choices());
    this.effect = el("input", { type: "checkbox", on: { change: () => address.set({ effective: this.effect.checked ? "yes" : "" }) } });
    this.said = el("span", { class: "muted", role: "status" });
    this.canvas = el("canvas", { role: "img", "aria-label": "Decisions over time", on: { click: (event) => this.#click(event) } });
    this.table = new DataTable({
      label: "Decisions to preempt, the newest first",
      noun: "decision",
      height: 48,
      empty: "No allocation was preempted.",
      keyOf: (one) => one.id,
      open: (one) => openDetails("decision", String(one.id)),
      describe: (one) => `${clock(one.time)}, ${words(one.kind)}: ${victimWords(one)} for ${one.gang ? servedWords(one) : one.allocationKey || one.queueName}, ${outcomeWord(one)}`,
      columns: COLUMNS,
    });
    this.timeline = el("div", { class: "card timeline" }, this.canvas);
    this.sums = new SumsTable("sums");
    this.by = el("select", { "aria-label": "Sums by", on: { change: () => address.set({ by: this.by.value }) } }, ...Object.entries(PARTIES).map(([value, [text]]) => el("option", { value, text })));
    this.sumWords = el("span", { class: "muted" });
    this.sumCard = el(
      "details",
      { class: "card sums", on: { toggle: () => address.set({ sums: this.sumCard.open ? "yes" : "" }, { replace: true }) } },
      el("summary", {}, el("strong", { text: "Preemptions between queues" }), " ", this.sumWords),
      el("div", { class: "tools sums-tools" }, this.by, (this.sumSaid = el("span", { class: "muted", role: "status" })), el("span", { class: "space" }), ...this.sums.table.tools),
      this.sums.table.root,
    );
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Preemption" }), this.table.filter, this.range, this.kind, el("label", { class: "check" }, this.effect, "effective only"), this.said, el("span", { class: "space" }), this.table.count, this.table.csv),
      this.timeline,
      this.sumCard,
      el("div", { class: "card sheet" }, this.table.root),
    );
    const more = inNextFrame(() => this.root.isConnected && !this.#past && this.#show(this.grown));
    preemptions.addEventListener("more", ({ detail }) => {
      this.grown = (this.grown ?? 0) + detail;
      more();
    });
    this.draw = inNextFrame(() => this.#draw());
    new ResizeObserver(this.draw).observe(this.timeline);
    window.addEventListener("themechange", this.draw);
    this.leaving = new Poller((signal) => this.#findLeft(signal), 3_000);
  }

  show() {
    preemptions.hold();
    this.#asked = "";
    this.follow();
    this.ticking = setInterval(this.draw, 1_000);
    this.leaving.start();
  }

  follow() {
    this.#choices();
    this.range.value = address.get("range");
    this.effect.checked = Boolean(address.get("effective"));
    this.by.value = address.get("by");
    this.sumCard.open = Boolean(address.get("sums"));
    this.sums.table.follow();
    this.table.follow();
    const range = address.get("range");
    if (range !== this.#asked) this.#load(range);
    else this.#show(0);
  }

  hide() {
    preemptions.release();
    clearInterval(this.ticking);
    this.leaving.stop();
  }

  /** Load the decisions of a range from the stored history; without a range, those that the core remembers. */
  async #load(range) {
    this.#asked = range;
    this.#past = null;
    setText(this.said, "");
    if (!RANGES_MS[range]) return this.#show(0);
    setText(this.said, "Reading the history …");
    try {
      const now = Date.now();
      await kinds.load();
      const { decisions, cut } = await pastDecisions.load((now - RANGES_MS[range]) * 1e6, (now + 1_000) * 1e6);
      if (range !== this.#asked) return;
      this.#past = decisions;
      setText(this.said, cut ? `The newest ${counted(decisions.length, "decision")} of a longer list.` : "");
    } catch (error) {
      if (range !== this.#asked) return;
      this.#past = [];
      setText(this.said, error.message);
    }
    this.#show(0);
  }

  /** Asks the stored history which victims of the decisions that are shown live have left. */
  async #findLeft(signal) {
    const open = preemptions.entries.filter((one) => taken(one) && one.victims.some((victim) => !victim.leftTime));
    if (this.#past || !open.length || !(await api.call("HistoryService/GetHistoryStatus", {}, signal)).enabled) return;
    const { decisions } = await pastDecisions.load(this.#oldest(open) * 1e6, (Date.now() + 1_000) * 1e6, {}, signal);
    const left = new Map(decisions.flatMap((one) => one.victims.map((victim) => [`${one.time} ${victim.allocationKey}`, victim.leftTime || 0])));
    for (const one of open) for (const victim of one.victims) victim.leftTime ||= left.get(`${one.time} ${victim.allocationKey}`);
    if (!this.#past) this.#show(0);
  }

  #show(grown) {
    const kind = address.get("kind");
    const effective = address.get("effective");
    const fits = (one) => (!kind || one.kind === kind) && (!effective || taken(one));
    const all = joinPlans(this.#past ?? preemptions.entries);
    const plain = !kind && !effective;
    const items = plain ? all : all.filter(fits);
    this.#shown = items;
    const fresh = this.#past || !grown ? 0 : joinPlans(preemptions.entries.slice(0, grown)).filter(fits).length;
    this.grown = 0;
    this.table.show(items, { grown: fresh, problem: this.#past ? "" : preemptions.problem });
    this.#sum(items.filter(taken));
    this.draw();
  }

  /** Sums by queue are computed here from the decisions shown; sums by user or application come from the history. */
  async #sum(decisions) {
    const victims = decisions.reduce((sum, one) => sum + one.victims.length, 0);
    setText(this.sumWords, `${counted(decisions.length, "decision")}, ${counted(victims, "victim")}`);
    this.sumCard.hidden = !decisions.length && !this.#past;
    const party = address.get("by");
    const range = address.get("range");
    const asked = `${party} ${range} ${decisions.length}`;
    if (!party) {
      this.summed = "";
      setText(this.sumSaid, "");
      return this.sums.show(sumsByQueue(decisions), party);
    }
    if (asked === this.summed || !this.sumCard.open) return;
    this.summed = asked;
    try {
      const since = RANGES_MS[range] ? Date.now() - RANGES_MS[range] : this.#oldest(decisions);
      const sums = await pastSums(party, { partition: cluster.name, times: { sinceNs: `${Math.round(since)}000000` } });
      if (asked !== this.summed) return;
      setText(this.sumSaid, "From the history, all kinds.");
      this.sums.show(sums, party);
    } catch (error) {
      if (asked !== this.summed) return;
      setText(this.sumSaid, error.message);
      this.sums.show([], party);
    }
  }

  #oldest(decisions) {
    return decisions.reduce((least, one) => Math.min(least, one.time / 1e6), Date.now()) - 1;
  }

  /** Offers the kinds of preemption that the core has. */
  #choices() {
    const named = kinds.list.map(({ name }) => el("option", { value: name, text: words(name) }));
    this.kind.replaceChildren(this.kind.firstChild, ...named);
    this.kind.value = address.get("kind");
  }

  #draw() {
    const items = this.#shown;
    const lanes = kinds.list.map(({ name }) => name);
    const width = this.timeline.clientWidth - 28;
    if (!this.root.isConnected || width <= LEFT) return;
    const height = lanes.length * LANE + AXIS;
    const paint = freshCanvas(this.canvas, width, height);
    const now = Date.now();
    const oldest = items.reduce((least, one) => Math.min(least, one.time / 1e6), now);
    const spanMs = RANGES_MS[address.get("range")] ?? Math.max(SHORTEST_MS, (now - oldest) * 1.04);
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
      // A source that only bounds the others is not shown until it has decided something.
      paint.fillStyle = laws.length || items.some((one) => one.kind === name) ? muted : colour("--faint");
      paint.fillText(words(name), 0, level);
    });
    this.#points = [];
    for (const one of items) {
      const lane = Math.max(0, lanes.indexOf(one.kind));
      const size = one.victims?.length ? Math.min(10, 3.5 + Math.sqrt(one.victims.length) * 1.5) : 3;
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
    openDetails("decision", String(near.point.one.id));
  }
}

const COLUMNS = [
  { key: "time", title: "Time", value: (one) => one.time, text: (one) => shortMoment(one.time), saved: [["Time", (one) => moment(one.time)]], draw: drawTime, width: "66px" },
  { key: "kind", title: "Kind", value: (one) => words(one.kind), draw: drawKind, width: "116px", wide: true },
  { key: "who", title: "Victims", value: victimWords, draw: drawWho, width: "minmax(84px, 1.1fr)" },
  { key: "whom", title: "For", value: whomWords, draw: drawWhom, width: "minmax(84px, 1.1fr)" },
  { key: "law", title: "Law", value: (one) => one.law ?? readable(one.detail), draw: drawLaw, width: "minmax(140px, 1.5fr)", wide: true },
  { key: "outcome", title: "Outcome", value: outcomeWord, draw: drawOutcome, width: "96px" },
  { key: "left", title: "Left", value: leftCount, text: leftWords, saved: [["Left", leftTime]], number: true, width: "70px", wide: true },
  { key: "victims", title: "Number", value: (one) => (one.victims ?? []).length, number: true, width: "70px", wide: true },
];

function whomWords(one) {
  const parts = one.gang ? [`gang ${one.applicationID}`, memberWords(one), one.gang.domains, one.queueName] : [one.allocationKey, one.applicationID, one.queueName, one.nodeID];
  return parts.filter(Boolean).join(" ");
}

/** Returns how many of the victims are known to have left; -1: only the history knows, and it was not asked. */
function leftCount(one) {
  const victims = one.victims ?? [];
  return victims.some((victim) => victim.leftTime !== undefined) ? victims.filter((victim) => victim.leftTime).length : -1;
}

/** Returns when the last victim was gone; empty: some are not, or nobody had to leave. */
function leftTime(one) {
  const times = taken(one) ? one.victims.map((victim) => victim.leftTime || 0) : [];
  return times.every(Boolean) ? momentOrNone(Math.max(0, ...times)) : "";
}

function leftWords(one) {
  const left = leftCount(one);
  if (left < 0 || !taken(one)) return "–";
  return left === one.victims.length ? "all" : `${left} of ${one.victims.length}`;
}

/** Run `fill` once for each row that a cell shows. */
const once = (cell, one, fill) => {
  if (cell.shown === one) return;
  cell.shown = one;
  cell.replaceChildren(...[fill()].flat());
};

function drawTime(cell, one) {
  once(cell, one, () => el("time", { class: "faint", title: moment(one.time), text: shortMoment(one.time) }));
}

function drawKind(cell, one) {
  once(cell, one, () => el("span", { class: "kind", "data-colour": kinds.colour(one.kind), text: words(one.kind) }));
}

const pair = (first, second) => el("span", { class: "pair" }, el("span", { class: "cut" }, first), el("span", { class: "muted cut", text: second, title: second }));

function drawWho(cell, one) {
  once(cell, one, () => {
    const victims = one.victims ?? [];
    if (!victims.length) return pair("nobody", "");
    const groups = victimGroups(one);
    const apps = groups.map(({ application }) => application);
    const queues = [...new Set(victims.map((victim) => victim.queueName))].join(", ");
    const whole = groups.filter((group) => group.whole);
    if (whole.length && whole.length === groups.length) {
      return pair(whole.length === 1 ? `gang ${apps[0]}` : counted(whole.length, "whole gang"), `all ${counted(victims.length, "member")}, in ${queues}`);
    }
    if (whole.length) return pair(counted(victims.length, "allocation"), `gang ${whole.map(({ application }) => application).join(", ")} as a whole and others in ${queues}`);
    return pair(victims.length === 1 ? link("ask", victims[0].allocationKey) : counted(victims.length, "allocation"), `${apps.length === 1 ? apps[0] : counted(apps.length, "application")} in ${queues}`);
  });
}

function drawWhom(cell, one) {
  if (one.gang) return once(cell, one, () => pair(`gang ${one.applicationID}`, [memberWords(one), one.gang.domains && `in ${one.gang.domains}`, one.queueName && `in ${one.queueName}`].filter(Boolean).join(" ")));
  once(cell, one, () => pair(one.allocationKey ? link("ask", one.allocationKey) : "its queue", [one.applicationID, one.queueName && `in ${one.queueName}`, one.nodeID && `on ${one.nodeID}`].filter(Boolean).join(" ")));
}

function drawLaw(cell, one) {
  once(cell, one, () => el("span", { class: "muted clamp", title: one.law ?? readable(one.detail) }, lawText(one.law ?? readable(one.detail))));
}

function drawOutcome(cell, one) {
  once(cell, one, () => outcomeBadge(one));
}
