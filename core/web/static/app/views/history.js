// How full queues were, how long work waited and what was preempted, over hours and weeks: from the stored history, so it is
// there after a reload and a restart. A part that is marked with the pointer is enlarged; its range is in the address.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster } from "../cluster.js";
import { el, setText } from "../dom.js";
import { PARTIES, SumsTable, pastSums } from "../preemption_sums.js";
import { timeChart } from "../time_chart.js";
import { typeChoice, typeChooser } from "../type_choice.js";
import { bare, count, counted, moment, nameOf, shortMoment, span, typesOf, unitOf } from "../units.js";

const HOUR_MS = 3_600_000;
const RANGES_MS = { "1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": 24 * HOUR_MS, "7d": 7 * 24 * HOUR_MS, "30d": 30 * 24 * HOUR_MS };
const RANGE_NAMES = { "1h": "Last hour", "6h": "Last 6 hours", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days" };
const USUAL = "24h";
const POINTS = 400;
const BARS = 60;
const PAGE = 1_000;
const MOST_RECORDS = 10_000;

export class HistoryView {
  #turn = 0;
  #asked = "";
  #charts = [];

  constructor() {
    this.queue = el("input", { type: "search", placeholder: "Queue: root", "aria-label": "Queue", list: "history-queues", on: { change: () => address.set({ queue: this.queue.value.trim() }) } });
    this.range = el("select", { "aria-label": "Range", on: { change: () => address.set({ range: this.range.value === USUAL ? "" : this.range.value, from: "", to: "" }) } }, ...Object.entries(RANGE_NAMES).map(([value, text]) => el("option", { value, text })), el("option", { value: "own", text: "As marked", disabled: true }));
    this.day = el("input", { type: "date", "aria-label": "One day", on: { change: () => this.#chooseDay() } });
    this.said = el("span", { class: "muted", role: "status" });
    this.charts = el("div", { class: "charts" });
    this.sums = new SumsTable("sums");
    this.by = el("select", { "aria-label": "Sums by", on: { change: () => address.set({ by: this.by.value }) } }, ...Object.entries(PARTIES).map(([value, [text]]) => el("option", { value, text })));
    this.root = el(
      "div",
      { class: "view scrolls" },
      el("div", { class: "tools" }, el("h1", { text: "History" }), this.queue, this.range, this.day, typeChooser(), this.said, el("span", { class: "space" }), (this.out = el("button", { type: "button", text: "Show the whole range", on: { click: () => address.set({ from: "", to: "" }) } }))),
      this.charts,
      (this.sumCard = el(
        "section",
        { class: "card", "aria-label": "Preemptions between queues", hidden: true },
        el("header", { class: "tools" }, el("h2", { text: "Preemptions between queues" }), this.by, (this.all = el("a", { text: "Every decision" })), el("span", { class: "space" }), ...this.sums.table.tools),
        this.sums.table.root,
      )),
    );
    typeChoice.addEventListener("change", () => this.root.isConnected && this.#drawUsage());
    window.addEventListener("themechange", () => this.root.isConnected && this.#draw());
    cluster.addEventListener("partition", () => this.root.isConnected && this.follow());
  }

  show() {
    this.#asked = "";
    this.follow();
  }

  hide() {
    this.#turn += 1;
    for (const chart of this.#charts) chart.destroy();
    this.#charts = [];
  }

  follow() {
    const own = address.get("from") && address.get("to");
    this.queue.value = address.get("queue");
    this.range.value = own ? "own" : address.get("range") || USUAL;
    this.by.value = address.get("by");
    this.sums.table.follow();
    this.out.hidden = !own;
    this.day.value = own ? wholeDay(Number(address.get("from")), Number(address.get("to"))) : "";
    this.all.href = address.href("preemption", { range: { "6h": "24h" }[address.get("range")] ?? (address.get("range") || USUAL), q: address.get("queue") });
    const asked = ["queue", "range", "from", "to", "by"].map(address.get, address).join("\n") + cluster.name;
    if (!cluster.name || asked === this.#asked) return;
    this.#asked = asked;
    this.#load();
  }

  /** Set the range to the chosen day, from midnight to midnight in the reader's time zone. */
  #chooseDay() {
    const [year, month, day] = this.day.value.split("-").map(Number);
    if (!day) return address.set({ from: "", to: "" });
    const [from, to] = [0, 1].map((more) => String(new Date(year, month - 1, day + more).getTime()));
    address.set({ from, to });
  }

  async #load() {
    const turn = (this.#turn += 1);
    const now = Date.now();
    const until = Number(address.get("to")) || now;
    const since = Number(address.get("from")) || now - (RANGES_MS[address.get("range")] ?? RANGES_MS[USUAL]);
    const times = { sinceNs: ns(since), untilNs: ns(until) };
    const queue = address.get("queue");
    setText(this.said, "Reading the history …");
    try {
      const { enabled } = await api.call("HistoryService/GetHistoryStatus");
      if (!enabled) throw new Error("This core keeps no history: it was started with --history off, or it could not create one.");
      const [usage, waits, sums] = await Promise.all([
        api.call("HistoryService/ListUsage", { ...times, partition: cluster.name, queue, pointCount: POINTS }),
        everyRecord("HistoryService/ListPastApplications", "applications", { partition: cluster.name, queue: queue === "root" ? "" : queue, state: "Running" }, times),
        pastSums(address.get("by"), { partition: cluster.name, queue: queue === "root" ? "" : queue, times }),
      ]);
      const preempted = await everyRecord("HistoryService/ListPreemptions", "preemptions", { partition: cluster.name, queue: queue === "root" ? "" : queue }, times);
      if (turn !== this.#turn) return;
      this.found = { since, until, queue: queue || "root", usage: usage.points, waits, preempted };
      setText(this.said, `${shortMoment(since * 1e6)} to ${shortMoment(until * 1e6)}`);
      typeChoice.offer(typesOf(cluster.partition?.capacity?.capacity, ...usage.points.slice(-3).flatMap((point) => [point.used, point.max])));
      await this.#draw();
      this.sumCard.hidden = false;
      this.sums.show(sums, address.get("by"));
    } catch (error) {
      if (turn === this.#turn) setText(this.said, error.message);
    }
  }

  async #draw() {
    if (!this.found) return;
    const turn = this.#turn;
    for (const chart of this.#charts) chart.destroy();
    this.#charts = [];
    const { since, until, waits, preempted } = this.found;
    const width = Math.max(1, (until - since) / BARS);
    const bucket = (atMs) => Math.min(BARS - 1, Math.max(0, Math.floor((atMs - since) / width)));
    const at = Array.from({ length: BARS }, (_, place) => (since + (place + 0.5) * width) / 1000);
    const mean = Array.from({ length: BARS }, () => ({ sum: 0, number: 0, most: 0 }));
    for (const one of waits) {
      if (!one.submittedNs) continue;
      const seconds = Math.max(0, (one.atNs - one.submittedNs) / 1e9);
      const place = mean[bucket(one.atNs / 1e6)];
      place.sum += seconds;
      place.number += 1;
      place.most = Math.max(place.most, seconds);
    }
    const victims = new Array(BARS).fill(null);
    for (const one of preempted) if (one.victim && one.outcome === "TRIGGERED") victims[bucket(one.atNs / 1e6)] += 1;
    const lost = victims.reduce((sum, one) => sum + (one ?? 0), 0);
    const cards = [
      (this.usageCard = chartCard("Use", "wide")),
      chartCard(`Waiting until an application ran: ${counted(waits.length, "application")}`),
      chartCard(`Preempted: ${counted(lost, "allocation")}`),
    ];
    this.charts.replaceChildren(...cards);
    const zoom = (from, to) => address.set({ from: String(Math.round(from * 1000)), to: String(Math.round(to * 1000)) });
    const range = [since / 1000, until / 1000];
    const made = await Promise.all([
      timeChart(cards[1].lastChild, { range, zoom, label: "Waiting time", x: at, series: [{ label: "mean", colour: "--series-1", values: mean.map((one) => (one.number ? one.sum / one.number : null)), points: true }, { label: "longest", colour: "--series-3", values: mean.map((one) => (one.number ? one.most : null)), points: true }], format: (seconds) => (seconds < 10 ? `${Math.round(seconds * 10) / 10} s` : span(seconds * 1000)) }),
      timeChart(cards[2].lastChild, { range, zoom, label: "Preempted allocations", x: at, series: [{ label: "victims", colour: "--over", values: victims, bars: true }], format: count }),
    ]);
    if (turn !== this.#turn) return made.forEach((chart) => chart.destroy());
    this.#charts = made;
    await this.#drawUsage();
  }

  async #drawUsage() {
    if (!this.found || !this.usageCard) return;
    const turn = this.#turn;
    const { since, until, usage, queue } = this.found;
    const types = typeChoice.chosen;
    // The share of the max is drawn where there is a max, so that types with different units have one scale.
    const share = (point, field, type) => {
      const whole = point.max[type] ?? cluster.partition?.capacity?.capacity?.[type] ?? 0;
      return whole ? (100 * (point[field][type] ?? 0)) / whole : null;
    };
    const series = types.flatMap((type, place) => [
      { label: `${nameOf(type)} used`, colour: `--series-${(place % 3) + 1}`, values: usage.map((point) => share(point, "used", type)) },
      { label: `${nameOf(type)} used and pending`, colour: `--series-${(place % 3) + 1}`, dash: true, values: usage.map((point) => share({ both: sum(point.used, point.pending), max: point.max }, "both", type)) },
    ]);
    const last = usage.at(-1);
    const words = last ? types.map((type) => `${nameOf(type)} ${bare(type, last.used[type] ?? 0)}${last.max[type] === undefined ? "" : ` of ${bare(type, last.max[type])}`} ${unitOf(type)}`.trim()).join(", ") : "no samples in this range; one is taken every minute";
    setText(this.usageCard.firstChild.firstChild, `How full ${queue} was, in percent`);
    setText(this.usageCard.firstChild.lastChild, last ? `at the end: ${words}` : words);
    this.usage?.destroy();
    const chart = await timeChart(this.usageCard.lastChild, { range: [since / 1000, until / 1000], zoom: (from, to) => address.set({ from: String(Math.round(from * 1000)), to: String(Math.round(to * 1000)) }), label: `Use of ${queue}: ${words}`, x: usage.map((point) => point.atNs / 1e9), series, format: (value) => `${Math.round(value)} %`, most: 100, height: 240 });
    if (turn !== this.#turn) return chart.destroy();
    this.usage = chart;
    this.#charts.push(chart);
  }
}

/** Returns the day of a range in the form of a date field; empty: the range is not exactly one day. */
function wholeDay(from, to) {
  const [begin, next] = [new Date(from), new Date(from)];
  next.setDate(next.getDate() + 1);
  if (begin.getHours() || begin.getMinutes() || next.getTime() !== to) return "";
  return moment(from * 1e6).slice(0, 10);
}

const ns = (ms) => `${Math.round(ms)}000000`;

function sum(...maps) {
  const total = {};
  for (const map of maps) for (const [type, value] of Object.entries(map)) total[type] = (total[type] ?? 0) + value;
  return total;
}

/** Returns all records of a range, up to a bound. */
async function everyRecord(call, field, request, times) {
  const records = [];
  let pageToken = "";
  do {
    const answer = await api.call(call, { ...request, page: { ...times, pageSize: PAGE, pageToken } });
    records.push(...answer[field]);
    pageToken = answer.nextPageToken;
  } while (pageToken && records.length < MOST_RECORDS);
  return records;
}

function chartCard(title, size = "") {
  return el("section", { class: `card ${size}`, "aria-label": title }, el("header", {}, el("h2", { text: title }), el("span", { class: "muted" })), el("div", { class: "body plot" }));
}
