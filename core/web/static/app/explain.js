// Shows explanations: why work waits, and which ask took the room of which allocation.

import { tone } from "./codes.js";
import { el } from "./dom.js";
import { kinds } from "./kinds.js";
import { lawText } from "./laws.js";
import { link } from "./links.js";
import { meter, setMeter } from "./meter.js";
import { amount, amounts, clock, count, counted, moment, nameOf, readable, shortMoment, since, words } from "./units.js";
import { wordLink } from "./word_links.js";

const VICTIMS_SHOWN = 50;

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

/** Shows victims as a table, with the user and whether the victim has left where the stored history says so. */
export function victimTable(victims) {
  const past = victims.some((victim) => victim.leftTime !== undefined);
  const supposed = victims.some((victim) => victim.originator !== undefined);
  const rows = victims.slice(0, VICTIMS_SHOWN).map((victim) =>
    el(
      "tr",
      {},
      el("td", {}, link("ask", victim.allocationKey)),
      el("td", {}, link("queue", victim.queueName)),
      el("td", {}, link("node", victim.nodeID)),
      el("td", { class: "number", text: amounts(victim.resource) }),
      (past || supposed) && el("td", {}, victim.user ? link("user", victim.user) : "–"),
      supposed && el("td", { text: `${count(victim.priority)}${victim.originator ? ", originator" : ""}` }),
      past && el("td", { text: victim.leftTime ? shortMoment(victim.leftTime) : "not known", title: victim.leftTime ? moment(victim.leftTime) : null }),
    ),
  );
  const table = el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ...["Allocation", "Queue", "Node"].map((text) => el("th", { text })), el("th", { class: "number", text: "Holds" }), (past || supposed) && el("th", { text: "User" }), supposed && el("th", { text: "Priority" }), past && el("th", { text: "Left" }))),
    el("tbody", {}, ...rows),
  );
  const more = victims.length - rows.length;
  return el("div", {}, table, more > 0 && el("p", { class: "muted", text: `and ${count(more)} more` }));
}

export function askReport(ask) {
  const waits = ask.state !== "Allocated";
  const parts = [
    facts([
      ["State", badge(ask.state)],
      ["Application", link("application", ask.applicationID)],
      ["Queue", link("queue", ask.queueName)],
      ["Node", ask.nodeID && link("node", ask.nodeID)],
      [waits ? "Asks for" : "Holds", amounts(ask.resource)],
      ["Priority", String(ask.priority)],
      [waits ? "Waiting" : "Since", ask.requestTime ? (waits ? `${since(ask.requestTime)}, since ${clock(ask.requestTime)}` : moment(ask.requestTime)) : ""],
    ]),
  ];
  if (ask.preempted) parts.push(lossReport(ask.preempted));
  if (ask.state === "Pending" || ask.blockers?.length) parts.push(blockerList(ask));
  if (ask.preemption) parts.push(outlook(ask.preemption));
  if (ask.position) parts.push(position(ask.position));
  if (ask.failures?.length) parts.push(failures(ask.failures));
  return parts;
}

function blockerList(ask) {
  const blockers = ask.blockers ?? [];
  const list = el("ol", { class: "blockers" }, ...blockers.map(blocker));
  const fitting = ask.fittingNodes ? `${counted(ask.fittingNodes, "node")} would have room.` : "";
  if (!blockers.length) return section("Why it waits", el("p", { text: `Nothing prevents its placement. ${fitting}` }));
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
      el("strong", {}, wordLink("waiting", found.kind)),
      el("span", { class: "badge", text: found.level }),
      found.permanent && el("span", { class: "badge", "data-tone": "bad", text: "waiting will not help" }),
      found.until && el("span", { class: "badge", "data-tone": "accent", text: `until ${clock(found.until)}` }),
    ),
    (found.name || nodes) && el("div", { class: "muted" }, nodes ? `${nodes.slice(3)} ` : "", blockerName(found)),
    found.detail && el("div", { text: readable(found.detail) }),
    ...(found.shortages ?? []).map(shortage),
  );
}

/** Shows an obstacle, as a link if it has a page. */
function blockerName({ level, name }) {
  const kind = { queue: "queue", node: "node", application: "application" }[level];
  return kind && name ? link(kind, name) : el("span", { class: "mono", text: name });
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
    "Whether preemption can help",
    facts([
      ["Answer", el("span", { class: "badge", "data-tone": tone(found.verdict) || null }, wordLink("verdict", found.verdict))],
      ["Because", readable(found.detail)],
      ["Blocked by", found.blockedBy && lawText(found.blockedBy)],
      ["Outcome", found.outcome && wordLink("outcome", found.outcome)],
      ["Not before", found.notBefore && clock(found.notBefore)],
      ["Node", found.nodeID && link("node", found.nodeID)],
    ]),
    found.victims?.length > 0 && el("div", { class: "spaced" }, el("h3", { text: "Would have to leave" }), victimTable(found.victims)),
    found.protections?.length > 0 &&
      el(
        "div",
        { class: "spaced" },
        el("h3", { text: "What protects the others" }),
        ...found.protections.map((law) =>
          el("p", {}, lawText(law.law), `: ${counted(law.allocations, "allocation")} in ${counted(law.queues, "queue")}, such as `, link("queue", law.example)),
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

/** Shows why an allocation was preempted. */
export function lossReport(lost) {
  return section(
    "Release asked for",
    facts([
      ["When", `${clock(lost.time)}, ${since(lost.time)} ago`],
      ["Kind", kindMark(lost.kind)],
      ["For", lost.takenBy ? link("ask", lost.takenBy) : "its queue"],
      ["Application", lost.takenByApplicationID && link("application", lost.takenByApplicationID)],
      ["Queue", lost.takenByQueue && link("queue", lost.takenByQueue)],
      ["Law", lawText(lost.law)],
      ["Reason", readable(lost.reason)],
      ["Alternatives", lost.alternatives],
      ["It held", amounts(lost.victim.resource)],
      ["On node", link("node", lost.victim.nodeID)],
      ["In queue", link("queue", lost.victim.queueName)],
    ]),
  );
}

/** Shows why an application waits: its kinds of asks, each with its obstacles. */
export function waitingReport(app) {
  const parts = (app.remarks ?? []).map((text) => el("p", { text: readable(text) }));
  for (const group of app.groups ?? []) {
    const head = `${counted(group.size, group.size === 1 ? "ask" : "equal ask")} of ${amounts(group.first.resource)}`;
    parts.push(
      el(
        "details",
        { class: "group", open: (app.groups ?? []).length === 1 },
        el("summary", {}, el("strong", { text: head }), el("span", { class: "muted", text: blockerWords(group.first) })),
        el("div", { class: "group-body" }, facts([["First", link("ask", group.first.allocationKey)]]), ...askReport(group.first).slice(1)),
      ),
    );
  }
  const hidden = app.groupCount - (app.groups ?? []).length;
  if (hidden > 0) parts.push(el("p", { class: "muted", text: `and ${counted(hidden, "more kind")} of asks` }));
  if (!app.pendingAsks) parts.push(el("p", { class: "muted", text: "Nothing of it waits." }));
  return parts;
}

/** Shows what an application lost to preemption, as a table; null: nothing. */
export function lossTable(lostOnes) {
  if (!lostOnes?.length) return null;
  const rows = lostOnes.map((lost) =>
    el(
      "tr",
      {},
      el("td", { class: "narrow", text: clock(lost.time), title: moment(lost.time) }),
      el("td", {}, link("ask", lost.victim.allocationKey)),
      el("td", {}, kindMark(lost.kind)),
      el("td", {}, lost.takenBy ? link("ask", lost.takenBy) : "its queue"),
    ),
  );
  return el("table", {}, el("thead", {}, el("tr", {}, ...["When", "Allocation", "Kind", "For"].map((text) => el("th", { scope: "col", text })))), el("tbody", {}, ...rows));
}

function blockerWords(ask) {
  const first = ask.blockers?.[0];
  return first ? `${words(first.kind)}${first.name ? ` ${first.name}` : ""}` : words(ask.state);
}
