// Explanations: why work waits, and who took whose room.

import { api } from "./api.js";
import { tone } from "./codes.js";
import { blank, el } from "./dom.js";
import { kinds } from "./kinds.js";
import { meter, setMeter } from "./meter.js";
import { panel } from "./panel.js";
import { amount, amounts, clock, count, counted, moment, nameOf, readable, since, words } from "./units.js";

const VICTIMS_SHOWN = 50;

let partition = () => "default";

/** Which partition questions are about. */
export function explainIn(name) {
  partition = name;
}

/** Ask the core about a key and show its answer in the panel. */
export function explain(key) {
  return panel.open([el("span", { class: "faint", text: "Explain " }), el("span", { class: "mono", text: key })], async () => {
    const path = `partition/${encodeURIComponent(partition())}/explain?key=${encodeURIComponent(key)}`;
    const [found] = await Promise.all([api.get(path), kinds.load()]);
    if (found.ask) return askReport(found.ask);
    if (found.application) return applicationReport(found.application);
    return found.lost ? [lossReport(found.lost)] : [blank("Nothing to show")];
  });
}

/** A key that can be asked about. */
export function keyButton(key, text = key) {
  if (!key) return el("span", { class: "faint", text: "–" });
  return el("button", {
    class: "plain mono cut",
    type: "button",
    title: `Explain ${key}`,
    text,
    on: {
      click: (event) => {
        event.stopPropagation();
        explain(key);
      },
    },
  });
}

export function badge(word, kind = tone(word)) {
  return el("span", { class: "badge", "data-tone": kind || null, text: words(word) });
}

export function kindMark(kind) {
  return el("span", { class: "kind", "data-colour": kinds.colour(kind), text: words(kind) });
}

export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "" || value === false) continue;
    list.append(el("dt", { text: name }), el("dd", {}, value));
  }
  return list;
}

export function section(title, ...children) {
  return el("section", {}, el("h3", { text: title }), ...children);
}

/** Victims as a table. */
export function victimTable(victims) {
  const rows = victims.slice(0, VICTIMS_SHOWN).map((victim) =>
    el(
      "tr",
      {},
      el("td", {}, keyButton(victim.allocationKey)),
      el("td", { title: victim.queueName, text: victim.queueName }),
      el("td", { title: victim.nodeID, text: victim.nodeID }),
      el("td", { class: "number", text: amounts(victim.resource) }),
    ),
  );
  const table = el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ...["Allocation", "Queue", "Node"].map((text) => el("th", { text })), el("th", { class: "number", text: "Holds" }))),
    el("tbody", {}, ...rows),
  );
  const more = victims.length - rows.length;
  return el("div", {}, table, more > 0 && el("p", { class: "muted", text: `and ${count(more)} more` }));
}

function askReport(ask) {
  const waits = ask.state !== "Allocated";
  const parts = [
    facts([
      ["State", badge(ask.state)],
      ["Application", keyButton(ask.applicationID)],
      ["Queue", el("span", { class: "mono", text: ask.queueName })],
      ["Node", ask.nodeID && el("span", { class: "mono", text: ask.nodeID })],
      [waits ? "Asks for" : "Holds", amounts(ask.resource)],
      ["Priority", String(ask.priority)],
      [waits ? "Waiting" : "Since", ask.requestTime ? (waits ? `${since(ask.requestTime)}, since ${clock(ask.requestTime)}` : moment(ask.requestTime)) : ""],
    ]),
  ];
  if (ask.preempted) parts.push(lossReport(ask.preempted));
  if (ask.state === "Pending" || ask.blockers) parts.push(blockerList(ask));
  if (ask.preemption) parts.push(outlook(ask.preemption));
  if (ask.position) parts.push(position(ask.position));
  if (ask.failures) parts.push(failures(ask.failures));
  return parts;
}

function blockerList(ask) {
  const blockers = ask.blockers ?? [];
  const list = el("ol", { class: "blockers" }, ...blockers.map(blocker));
  const fitting = ask.fittingNodes ? `${counted(ask.fittingNodes, "node")} would have room.` : "";
  if (!blockers.length) return section("Why it waits", el("p", { text: `Nothing stands in the way. ${fitting}` }));
  return section("Why it waits", list, fitting && el("p", { class: "muted", text: fitting }));
}

function blocker(found) {
  const nodes = found.nodes > 1 ? ` · ${counted(found.nodes, "node")}, closest` : "";
  return el(
    "li",
    { class: "blocker" },
    el(
      "div",
      { class: "blocker-head" },
      el("strong", { text: words(found.kind) }),
      el("span", { class: "badge", text: found.level }),
      found.permanent && el("span", { class: "badge", "data-tone": "bad", text: "waiting does not help" }),
      found.until && el("span", { class: "badge", "data-tone": "accent", text: `until ${clock(found.until)}` }),
    ),
    (found.name || nodes) && el("div", { class: "mono muted" }, `${nodes ? `${nodes.slice(3)} ` : ""}${found.name}`),
    found.detail && el("div", { text: readable(found.detail) }),
    ...(found.shortages ?? []).map(shortage),
  );
}

function shortage(short) {
  const bar = meter();
  setMeter(bar, { used: Math.max(short.used, 0), pending: short.asked, whole: Math.max(short.limit, short.used + short.asked), guaranteed: null });
  bar.parts.tick.hidden = false;
  bar.parts.tick.style.setProperty("--share", short.limit / Math.max(short.limit, short.used + short.asked, 1));
  return el(
    "div",
    { class: "shortage" },
    el("span", { class: "muted", text: nameOf(short.type) }),
    bar,
    el("span", { text: `${amount(short.type, short.asked)} asked, ${amount(short.type, short.used)} of ${amount(short.type, short.limit)} used` }),
    el("strong", { text: `${amount(short.type, short.short)} short` }),
  );
}

function outlook(found) {
  return section(
    "Can preemption help",
    facts([
      ["Answer", badge(found.verdict)],
      ["Because", readable(found.detail)],
      ["Blocked by", found.blockedBy],
      ["Outcome", found.outcome && words(found.outcome)],
      ["Not before", found.notBefore && clock(found.notBefore)],
      ["Node", found.nodeID && el("span", { class: "mono", text: found.nodeID })],
    ]),
    found.victims && el("div", { class: "spaced" }, el("h3", { text: "Would have to leave" }), victimTable(found.victims)),
    found.protections &&
      el(
        "div",
        { class: "spaced" },
        el("h3", { text: "What protects the others" }),
        ...found.protections.map((law) =>
          el("p", { text: `${law.law}: ${counted(law.allocations, "allocation")} in ${counted(law.queues, "queue")}, such as ${law.example}` }),
        ),
      ),
  );
}

function position(place) {
  const line = (at, all) => (at === 1 ? `first of ${count(all)}` : `${count(at)} of ${count(all)}`);
  return section(
    "Place in line",
    facts([
      ["Application", line(place.application, place.applicationOf)],
      ["Queue", line(place.queue, place.queueOf)],
      ["Partition", line(place.partition, place.partitionOf)],
    ]),
  );
}

function failures(found) {
  const rows = found.map((entry) =>
    el("tr", {}, el("td", { title: entry.message, text: entry.message }), el("td", { class: "number narrow", text: `${count(entry.count)} ×` }), el("td", { class: "number narrow", text: clock(entry.lastOccurrence) })),
  );
  return section("What stopped it before", el("table", {}, el("tbody", {}, ...rows)));
}

/** Why an allocation was preempted. */
export function lossReport(lost) {
  return section(
    "Told to leave",
    facts([
      ["When", `${clock(lost.time)}, ${since(lost.time)} ago`],
      ["Kind", kindMark(lost.kind)],
      ["For", lost.takenBy ? keyButton(lost.takenBy) : "its queue's sake"],
      ["Application", lost.takenByApplicationID && keyButton(lost.takenByApplicationID)],
      ["Queue", lost.takenByQueue && el("span", { class: "mono", text: lost.takenByQueue })],
      ["Law", lost.law],
      ["Reason", readable(lost.reason)],
      ["Alternatives", lost.alternatives],
      ["It held", amounts(lost.victim.resource)],
      ["On node", el("span", { class: "mono", text: lost.victim.nodeID })],
      ["In queue", el("span", { class: "mono", text: lost.victim.queueName })],
    ]),
  );
}

function applicationReport(app) {
  const parts = [
    facts([
      ["State", badge(app.state)],
      ["Queue", el("span", { class: "mono", text: app.queueName })],
      ["User", app.user],
      ["Running", `${counted(app.allocations, "allocation")}, ${amounts(app.usedResource) || "nothing"}`],
      ["Pending", counted(app.pendingAsks, "ask")],
    ]),
  ];
  for (const group of app.groups ?? []) {
    const head = `${counted(group.size, group.size === 1 ? "ask" : "equal ask")} of ${amounts(group.first.resource)}`;
    parts.push(
      el(
        "details",
        { class: "group", open: (app.groups ?? []).length === 1 },
        el("summary", {}, el("strong", { text: head }), el("span", { class: "muted", text: blockerWords(group.first) })),
        el("div", { class: "group-body" }, facts([["First", keyButton(group.first.allocationKey)]]), ...askReport(group.first).slice(1)),
      ),
    );
  }
  const hidden = app.groupCount - (app.groups ?? []).length;
  if (hidden > 0) parts.push(el("p", { class: "muted", text: `and ${counted(hidden, "more kind")} of asks` }));
  if (!app.pendingAsks) parts.push(el("p", { class: "muted", text: "Nothing of it waits." }));
  if (app.preempted) {
    const rows = app.preempted.map((lost) =>
      el(
        "tr",
        {},
        el("td", { class: "narrow", text: clock(lost.time) }),
        el("td", {}, keyButton(lost.victim.allocationKey)),
        el("td", {}, kindMark(lost.kind)),
        el("td", {}, lost.takenBy ? keyButton(lost.takenBy) : "its queue"),
      ),
    );
    parts.push(
      section(
        "Lost to preemption",
        el("table", {}, el("thead", {}, el("tr", {}, ...["When", "Allocation", "Kind", "For"].map((text) => el("th", { text })))), el("tbody", {}, ...rows)),
      ),
    );
  }
  return parts;
}

function blockerWords(ask) {
  const first = ask.blockers?.[0];
  return first ? `${words(first.kind)}${first.name ? ` ${first.name}` : ""}` : words(ask.state);
}
