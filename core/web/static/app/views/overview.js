// The cluster at a glance.

import { address } from "../address.js";
import { api } from "../api.js";
import { ClaimTable } from "../claims.js";
import { cluster, inPartition } from "../cluster.js";
import { blank, el, inNextFrame, reconcile, setAttribute, setText } from "../dom.js";
import { badge, kindMark } from "../explain.js";
import { joinPlans } from "../gang_plans.js";
import { holds } from "../holds.js";
import { meter, meterWords, setMeter } from "../meter.js";
import { Poller } from "../poller.js";
import { events, preemptions } from "../tails.js";
import { timeChart } from "../time_chart.js";
import { amount, bare, clock, count, counted, nameOf, percent, share, since, span, typesOf, unitOf } from "../units.js";
import { outcomeBadge, servedWords, taken, victimWords } from "../decisions.js";
import { eventWords, objectLink } from "../details/event.js";
import { openDetails } from "../links.js";
import { typeChoice, typeChooser } from "../type_choice.js";

const SPANS_MS = [60_000, 2 * 60_000, 5 * 60_000, 10 * 60_000];
const LISTS_EVERY = 3;
const MOST_CLAIMS = 500;
const KINDS_REFUSED = ["ask", "application", "node", "configuration"];
const LATEST = 7;
const STATES = ["New", "Accepted", "Running", "Resuming", "Completing", "Failing", "Completed", "Failed", "Rejected", "Expired"];

export class OverviewView {
  #pending = {};
  #health = null;
  #refused = null;
  #rounds = 0;
  #plot = null;
  #plotted = "";

  constructor() {
    this.tiles = Object.fromEntries(
      ["Nodes", "Applications", "Allocations", "Preempted", "Refused", "Events", "Health"].map((name) => [name, tile(name)]),
    );
    this.capacity = el("div", { class: "capacity" });
    this.chart = el("div", { class: "plot live" });
    this.series = el("div", { class: "legend" });
    this.states = el("ul", { class: "states" });
    this.checks = el("ul", { class: "checks" });
    this.latestDecisions = el("ul", { class: "feed" });
    this.latestEvents = el("ul", { class: "feed" });
    this.claims = new ClaimTable();
    this.claimCard = card("Room kept for waiting asks", "full", this.claims.table.root, el("span", { class: "aside-tools" }, ...this.claims.table.tools));
    this.claimCard.hidden = true;
    this.body = el(
      "div",
      { class: "overview" },
      el("section", { class: "tiles", "aria-label": "Counts" }, ...Object.values(this.tiles).map((one) => one.root)),
      el(
        "div",
        { class: "column wide" },
        card("Capacity", "", this.capacity, el("span", { class: "aside-tools" }, legend(), typeChooser())),
        card("Utilisation", "grows", this.chart, this.series),
      ),
      el("div", { class: "column" }, card("Health", "", this.checks, (this.manager = el("span", { class: "cut" }))), card("Applications", "grows", this.states)),
      card("Latest preemptions", "half", this.latestDecisions, el("a", { href: "#/preemption", text: "All" })),
      card("Latest events", "half", this.latestEvents, el("a", { href: "#/events", text: "All" })),
      this.claimCard,
    );
    this.empty = blank(
      "No resource manager has registered yet",
      "The core is up and waits for a shim. Queues, nodes and applications appear here as soon as one registers.",
      "kornel-shim-mock run guarantee",
    );
    this.root = el("div", { class: "view scrolls" }, el("h1", { class: "hidden", text: "Overview" }), this.body, this.empty);
    this.empty.hidden = true;
    this.draw = inNextFrame(() => this.#draw());
    this.poller = new Poller((signal) => this.#fetch(signal), 2_000);
    for (const source of [events, preemptions]) source.addEventListener("more", this.draw);
    holds.addEventListener("change", this.draw);
    for (const what of ["change", "partition"]) cluster.addEventListener(what, this.draw);
    cluster.addEventListener("partition", () => (this.#rounds = 0));
    window.addEventListener("themechange", () => {
      this.#plotted = "";
      this.draw();
    });
    new ResizeObserver(this.draw).observe(this.root);
  }

  follow() {
    this.claims.table.follow();
    this.draw();
  }

  show() {
    this.poller.start();
    events.hold();
    preemptions.hold();
    this.draw();
  }

  hide() {
    this.poller.stop();
    events.release();
    preemptions.release();
  }

  async #fetch(signal) {
    if (!cluster.name) return;
    const [root, health] = await Promise.all([
      api.get(inPartition("queue/root"), signal),
      api.get("scheduler/healthcheck", signal).catch((error) => (error.status === 404 ? null : Promise.reject(error))),
    ]);
    if (this.#rounds % LISTS_EVERY === 0) {
      const [{ counts }, claims] = await Promise.all([api.get("scheduler/refusals?limit=1", signal), api.get(inPartition(`claims?limit=${MOST_CLAIMS}`), signal)]);
      this.#refused = counts;
      this.claimCard.hidden = !claims.length;
      this.claims.show(claims);
    }
    this.#rounds += 1;
    this.#pending = root.pendingResource ?? {};
    this.#health = health;
    this.draw();
  }

  #draw() {
    if (!this.root.isConnected) return;
    const { partition, partitions } = cluster;
    this.empty.hidden = partitions === null || partition !== null;
    this.body.hidden = partitions !== null && partition === null;
    if (!partition) return;
    this.#drawTiles(partition);
    this.#drawCapacity(partition.capacity);
    this.#drawHealth();
    this.#drawStates(partition.applications);
    typeChoice.offer(typesOf(partition.capacity.capacity));
    const types = typeChoice.chosen;
    this.#drawChart(types);
    reconcile(
      this.series,
      [...types, "preempted"],
      (type) => type,
      (type) => el("span", {}, el("i", { class: type === "preempted" ? "mark" : `series-${(types.indexOf(type) % 3) + 1}` }), type === "preempted" ? "preemption" : nameOf(type)),
      () => {},
    );
    this.#feed(this.latestDecisions, joinPlans(preemptions.entries), decisionRow, "No recent preemptions.");
    this.#feed(this.latestEvents, events.entries, eventRow, "No events yet.");
  }

  /** Draws shares of the cluster's capacity over time. A new plot is made only if its appearance has to change. */
  async #drawChart(types) {
    const { samples } = cluster;
    const now = (samples.at(-1)?.at ?? Date.now()) / 1000;
    const long = spanOf(samples) / 1000;
    const data = {
      range: [now - long, now],
      x: samples.map((one) => one.at / 1000),
      values: types.map((type) => samples.map((one) => (one.shares[type] === undefined ? null : 100 * one.shares[type]))),
      marks: preemptions.entries.filter(taken).map((one) => one.time / 1e9),
    };
    const last = samples.at(-1)?.shares ?? {};
    const label = `Utilisation over the last ${span(long * 1000)}. Now: ${types.map((type) => `${nameOf(type)} ${percent(last[type] ?? 0)}`).join(", ")}`;
    const wanted = types.join("\n");
    if (wanted === this.#plotted) return this.#plot?.update(data, label);
    this.#plotted = wanted;
    this.#plot?.destroy();
    this.#plot = null;
    const series = types.map((type, at) => ({ label: nameOf(type), colour: `--series-${(at % 3) + 1}`, values: data.values[at] }));
    const plot = await timeChart(this.chart, { ...data, series, label, format: (value) => `${Math.round(value)} %`, most: 100, legend: false, height: () => this.chart.clientHeight });
    if (wanted !== this.#plotted) return plot.destroy();
    this.#plot = plot;
  }

  #drawTiles({ totalNodes, applications, totalContainers = 0 }) {
    const { total, Running = 0, Accepted = 0, Rejected = 0 } = applications;
    this.tiles.Nodes.set(count(totalNodes), totalNodes ? "registered" : "none registered");
    this.tiles.Applications.set(count(Running), `running of ${count(total)}${Accepted ? ` · ${count(Accepted)} accepted` : ""}${Rejected ? ` · ${count(Rejected)} rejected` : ""}`);
    this.tiles.Allocations.set(count(totalContainers), Object.keys(this.#pending).length ? `pending: ${pendingWords(this.#pending)}` : "nothing pending");
    const lost = preemptions.entries.reduce((sum, one) => sum + (taken(one) ? one.victims.length : 0), 0);
    this.tiles.Preempted.set(count(lost), `by ${counted(preemptions.entries.filter(taken).length, "decision")}`);
    const refused = this.#refused;
    const kinds = KINDS_REFUSED.filter((kind) => refused?.[kind]);
    this.tiles.Refused.set(refused ? count(kinds.reduce((sum, kind) => sum + refused[kind], 0)) : "–", kinds.length ? kinds.map((kind) => counted(refused[kind], kind)).join(", ") : "nothing since the start");
    this.tiles.Events.set(`${count(events.perSecond)}`, "a second");
    const health = this.#health;
    const wrong = health?.HealthChecks.filter((check) => !check.Succeeded).length ?? 0;
    this.tiles.Health.set(health === null ? "–" : health.Healthy ? "Good" : counted(wrong, "problem"), health === null ? "not checked yet" : `${count(health.HealthChecks.length)} checks`);
    setAttribute(this.tiles.Health.root, "data-tone", health === null ? null : health.Healthy ? "good" : "bad");
  }

  #drawCapacity({ capacity = {}, usedCapacity = {} }) {
    const types = typeChoice.chosen.filter((type) => capacity[type] > 0);
    reconcile(this.capacity, types, (type) => type, capacityRow, (row, type) => {
      const used = usedCapacity[type] ?? 0;
      const pending = this.#pending[type] ?? 0;
      setMeter(row.bar, { used, pending, whole: capacity[type] });
      setText(row.share, percent(share(used, capacity[type])));
      setText(row.used, `${bare(type, used)} of ${amount(type, capacity[type])} used`);
      setText(row.pending, pending ? `${amount(type, pending)} pending` : "nothing pending");
      setAttribute(row, "aria-label", `${nameOf(type)}: ${meterWords(type, { used, pending, max: capacity[type] })}`);
    });
    if (!types.length && !this.capacity.childElementCount) this.capacity.dataset.empty = "No node has any capacity yet.";
    else delete this.capacity.dataset.empty;
  }

  #drawHealth() {
    const { manager } = holds;
    setText(this.manager, manager ? `${manager.rmID} ${manager.gone ? "is gone" : `is there, ${counted(manager.openStreams, "stream")} open`}` : "no resource manager");
    const checks = (this.#health?.HealthChecks ?? []).map((check, place) => ({ ...check, place }));
    reconcile(
      this.checks,
      checks,
      (check) => check.place,
      checkRow,
      (row, check) => {
        setAttribute(row, "data-tone", check.Succeeded ? "good" : "bad");
        setAttribute(row, "title", `${check.Description ?? ""} ${check.Succeeded ? "" : (check.DiagnosisMessage ?? "")}`.trim());
        setText(row.children[1].firstChild, check.Name);
        setText(row.children[1].lastChild, (check.Succeeded ? check.Description : check.DiagnosisMessage) ?? "");
        setText(row.children[2], check.Succeeded ? "passed" : "failed");
        row.more.hidden = check.Succeeded || !REFUSED_CHECKS[check.Name];
        row.more.href = address.href("refusals", { kind: REFUSED_CHECKS[check.Name] });
      },
    );
  }

  #drawStates({ total, ...states }) {
    const found = STATES.filter((state) => states[state]).map((state) => ({ state, number: states[state] }));
    reconcile(
      this.states,
      found.length ? found : [{ state: "", number: 0 }],
      (one) => one.state,
      ({ state }) => (state ? el("li", {}, el("a", { href: address.href("applications", { state: stateOf(state) }) }, badge(state)), el("strong"), meter()) : el("li", { class: "muted", text: "None yet." })),
      (row, { state, number }) => {
        if (!state) return;
        setText(row.children[1], count(number));
        setMeter(row.children[2], { used: number, whole: total });
      },
    );
  }

  #feed(list, entries, make, otherwise) {
    const latest = entries.slice(0, LATEST);
    reconcile(list, latest.length ? latest : [{ id: "none" }], (one) => one.id, (one) => (one.id === "none" ? el("li", { class: "muted", text: otherwise }) : make(one)), () => {});
  }
}

/** Returns the shortest span that shows all samples, or the longest span. */
function spanOf(samples) {
  const long = (samples.at(-1)?.at ?? 0) - (samples[0]?.at ?? 0);
  return SPANS_MS.find((span) => span >= long) ?? SPANS_MS.at(-1);
}

function pendingWords(pending) {
  return typesOf(pending).slice(0, 2).map((type) => (unitOf(type) ? amount(type, pending[type]) : `${bare(type, pending[type])} ${type}`)).join(", ");
}

/** Returns the filter of the list of applications for a state: the name of an active state, otherwise how the applications
    ended. */
const stateOf = (state) => (["Completed", "Failed", "Expired"].includes(state) ? "completed" : state === "Rejected" ? "rejected" : `active/${state}`);

const TILE_VIEWS = { Nodes: "nodes", Applications: "applications", Allocations: "queues", Preempted: "preemption", Refused: "refusals", Events: "events" };

function tile(name) {
  const value = el("strong", { text: "–" });
  const note = el("span", { class: "cut", text: " " });
  const root = el("div", { class: "tile" }, TILE_VIEWS[name] ? el("a", { class: "name", href: address.href(TILE_VIEWS[name]), text: name }) : el("span", { class: "name", text: name }), value, note);
  return {
    root,
    set: (text, more) => {
      setText(value, text);
      setText(note, more);
      note.title = more;
    },
  };
}

function card(title, size, content, aside) {
  return el(
    "section",
    { class: `card ${size}`, "aria-label": title },
    el("header", {}, el("h2", { text: title }), aside && el("div", { class: "aside" }, aside)),
    el("div", { class: "body" }, content),
  );
}

function legend() {
  return el("span", { class: "legend" }, el("span", {}, el("i", { class: "used" }), "used"), el("span", {}, el("i", { class: "wait" }), "pending"));
}

/** The checks that fail because something was refused, each with the kind of what was refused. */
const REFUSED_CHECKS = { "Scheduling errors": "ask", "Failed nodes": "node" };

function checkRow() {
  const row = el("li", {}, el("i", { "aria-hidden": "true" }), el("span", { class: "cut" }, el("b"), " ", el("span", { class: "muted" })), el("span", { class: "hidden" }));
  row.more = el("a", { text: "What was refused", hidden: true });
  row.append(row.more);
  return row;
}

function capacityRow(type) {
  const row = el("div", { class: "capacity-row", role: "group" });
  row.share = el("strong");
  row.used = el("span", { class: "cut" });
  row.pending = el("span", { class: "muted number" });
  row.bar = meter();
  row.append(el("span", { class: "name", text: nameOf(type) }), row.share, row.bar, row.used, row.pending);
  return row;
}

function decisionRow(one) {
  return el(
    "li",
    {},
    el("time", { class: "faint", text: clock(one.time) }),
    kindMark(one.kind),
    el("button", { class: "plain cut", type: "button", title: `${victimWords(one)} → ${servedWords(one)}`, text: `${victimWords(one)} → ${servedWords(one)}`, on: { click: () => openDetails("decision", String(one.id)) } }),
    outcomeBadge(one),
  );
}

function eventRow(one) {
  return el(
    "li",
    { title: since(one.timestampNano) },
    el("time", { class: "faint", text: clock(one.timestampNano) }),
    el("span", { class: "muted", text: eventWords(one) }),
    el("span", { class: "cut" }, objectLink(one), one.referenceID && el("span", { class: "mono muted", text: `  ${one.referenceID}` })),
  );
}
