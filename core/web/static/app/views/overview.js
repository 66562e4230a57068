// The cluster at a glance.

import { address } from "../address.js";
import { api } from "../api.js";
import { drawShares } from "../chart.js";
import { cluster, inPartition } from "../cluster.js";
import { blank, el, inNextFrame, reconcile, setAttribute, setText } from "../dom.js";
import { badge, kindMark } from "../explain.js";
import { meter, meterWords, setMeter } from "../meter.js";
import { Poller } from "../poller.js";
import { events, preemptions } from "../tails.js";
import { amount, bare, clock, count, counted, nameOf, percent, share, since, typesOf, unitOf } from "../units.js";
import { outcomeBadge, servedWords, taken, victimWords } from "../decisions.js";
import { eventWords, objectLink } from "../details/event.js";
import { openDetails } from "../links.js";
import { typeChoice, typeChooser } from "../type_choice.js";

const SPANS_MS = [60_000, 2 * 60_000, 5 * 60_000];
const LATEST = 7;
const STATES = ["New", "Accepted", "Running", "Resuming", "Completing", "Failing", "Completed", "Failed", "Rejected", "Expired"];

export class OverviewView {
  #pending = {};
  #health = null;

  constructor() {
    this.tiles = Object.fromEntries(
      ["Nodes", "Applications", "Allocations", "Preempted", "Events", "Health"].map((name) => [name, tile(name)]),
    );
    this.capacity = el("div", { class: "capacity" });
    this.canvas = el("canvas", { role: "img", "aria-label": "Utilisation over time" });
    this.series = el("div", { class: "legend" });
    this.states = el("ul", { class: "states" });
    this.checks = el("ul", { class: "checks" });
    this.latestDecisions = el("ul", { class: "feed" });
    this.latestEvents = el("ul", { class: "feed" });
    this.body = el(
      "div",
      { class: "overview" },
      el("section", { class: "tiles", "aria-label": "Counts" }, ...Object.values(this.tiles).map((one) => one.root)),
      el(
        "div",
        { class: "column wide" },
        card("Capacity", "", this.capacity, el("span", { class: "aside-tools" }, legend(), typeChooser())),
        card("Utilisation", "grows", el("div", { class: "chart" }, this.canvas), this.series),
      ),
      el("div", { class: "column" }, card("Health", "", this.checks), card("Applications", "grows", this.states)),
      card("Latest preemptions", "half", this.latestDecisions, el("a", { href: "#/preemption", text: "All" })),
      card("Latest events", "half", this.latestEvents, el("a", { href: "#/events", text: "All" })),
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
    for (const what of ["change", "partition"]) cluster.addEventListener(what, this.draw);
    window.addEventListener("themechange", this.draw);
    new ResizeObserver(this.draw).observe(this.root);
  }

  follow() {
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
    const marks = preemptions.entries.filter(taken).map((one) => one.time / 1e6);
    drawShares(this.canvas, cluster.samples, types, { spanMs: spanOf(cluster.samples), marks });
    reconcile(
      this.series,
      [...types, "preempted"],
      (type) => type,
      (type) => el("span", {}, el("i", { class: type === "preempted" ? "mark" : `series-${(types.indexOf(type) % 3) + 1}` }), type === "preempted" ? "preemption" : nameOf(type)),
      () => {},
    );
    this.#feed(this.latestDecisions, preemptions.entries, decisionRow, "Nobody was preempted lately.");
    this.#feed(this.latestEvents, events.entries, eventRow, "No events yet.");
  }

  #drawTiles({ totalNodes, applications, totalContainers = 0 }) {
    const { total, Running = 0, Accepted = 0, Rejected = 0 } = applications;
    this.tiles.Nodes.set(count(totalNodes), totalNodes ? "registered" : "none registered");
    this.tiles.Applications.set(count(Running), `running · ${count(Accepted)} accepted · ${count(total)} in all${Rejected ? ` · ${count(Rejected)} rejected` : ""}`);
    this.tiles.Allocations.set(count(totalContainers), Object.keys(this.#pending).length ? `pending: ${pendingWords(this.#pending)}` : "nothing pending");
    const lost = preemptions.entries.reduce((sum, one) => sum + (taken(one) ? one.victims.length : 0), 0);
    this.tiles.Preempted.set(count(lost), `by ${counted(preemptions.entries.filter(taken).length, "decision")}`);
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
    if (!types.length && !this.capacity.childElementCount) this.capacity.dataset.empty = "No node offers anything yet.";
    else delete this.capacity.dataset.empty;
  }

  #drawHealth() {
    const checks = (this.#health?.HealthChecks ?? []).map((check, place) => ({ ...check, place }));
    reconcile(
      this.checks,
      checks,
      (check) => check.place,
      () => el("li", {}, el("i", { "aria-hidden": "true" }), el("span", { class: "cut" }, el("b"), " ", el("span", { class: "muted" })), el("span", { class: "hidden" })),
      (row, check) => {
        setAttribute(row, "data-tone", check.Succeeded ? "good" : "bad");
        setAttribute(row, "title", `${check.Description ?? ""} ${check.Succeeded ? "" : (check.DiagnosisMessage ?? "")}`.trim());
        setText(row.children[1].firstChild, check.Name);
        setText(row.children[1].lastChild, (check.Succeeded ? check.Description : check.DiagnosisMessage) ?? "");
        setText(row.children[2], check.Succeeded ? "passed" : "failed");
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

/** The shortest span that shows all there is, or the longest. */
function spanOf(samples) {
  const long = (samples.at(-1)?.at ?? 0) - (samples[0]?.at ?? 0);
  return SPANS_MS.find((span) => span >= long) ?? SPANS_MS.at(-1);
}

function pendingWords(pending) {
  return typesOf(pending).slice(0, 2).map((type) => (unitOf(type) ? amount(type, pending[type]) : `${bare(type, pending[type])} ${type}`)).join(", ");
}

/** What the list of applications calls a state: active ones by name, the others by how they ended. */
const stateOf = (state) => (["Completed", "Failed", "Expired"].includes(state) ? "completed" : state === "Rejected" ? "rejected" : `active/${state}`);

const TILE_VIEWS = { Nodes: "nodes", Applications: "applications", Allocations: "queues", Preempted: "preemption", Events: "events" };

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
