// Shows one application, even if it has ended or was rejected: why it waits, what it holds and held, and its states.

import { address } from "../address.js";
import { amountTable } from "../amount_table.js";
import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { DataTable } from "../data_table.js";
import { blank, el, setText } from "../dom.js";
import { badge, facts, lossTable, waitingReport } from "../explain.js";
import { kinds } from "../kinds.js";
import { link, openDetails, setLink } from "../links.js";
import { pastAllocations } from "../past_allocations.js";
import { Poller } from "../poller.js";
import { amounts, bare, counted, headOf, inUnit, moment, momentOrNone, shortMoment, since, span, typesIn } from "../units.js";

const ENDED = ["Completed", "Failed", "Rejected", "Expired", "Removed"];

export class ApplicationView {
  #id = "";

  constructor() {
    this.title = el("h1", { class: "mono name" });
    this.state = el("span", {});
    this.facts = el("div", {});
    this.why = el("div", { class: "stack" });
    this.amounts = el("div", {});
    this.course = el("div", {});
    this.lost = el("div", {});
    this.placeholders = el("div", {});
    this.allocations = new DataTable({
      name: "runs",
      label: "Allocations",
      noun: "allocation",
      sort: "-placed",
      empty: "It holds no allocation.",
      keyOf: (one) => one.allocationKey,
      open: (one) => openDetails("ask", one.allocationKey),
      columns: allocationColumns([]),
    });
    this.asks = new DataTable({
      name: "waits",
      label: "Asks that wait",
      noun: "ask",
      sort: "-priority",
      empty: "Nothing of it waits.",
      keyOf: (one) => one.allocationKey,
      open: (one) => openDetails("ask", one.allocationKey),
      columns: askColumns([]),
    });
    this.past = new DataTable({
      name: "held",
      label: "Allocations it held",
      noun: "past allocation",
      sort: "-placed",
      empty: "The history has no allocation of it.",
      keyOf: (one) => `${one.key}/${one.placed}`,
      open: (one) => openDetails("ask", one.key),
      columns: pastColumns([]),
    });
    this.body = el(
      "div",
      { class: "page" },
      el("div", { class: "page-side" }, card("Application", this.facts), card("Amounts", this.amounts), card("Placeholders", this.placeholders), card("Course", this.course)),
      el("div", { class: "page-main" }, card("Why it waits", this.why), tableCard("Allocations", this.allocations), tableCard("Asks that wait", this.asks), tableCard("Allocations it held", this.past), card("Lost to preemption", this.lost)),
    );
    this.none = blank("No such application", "");
    this.none.hidden = true;
    this.root = el(
      "div",
      { class: "view scrolls" },
      el("div", { class: "tools" }, el("a", { class: "back", href: "#/applications", text: "Applications" }), el("span", { class: "faint", "aria-hidden": "true", text: "/" }), this.title, this.state),
      this.body,
      this.none,
    );
    this.poller = new Poller((signal) => this.#fetch(signal), 2_000);
    cluster.addEventListener("partition", () => this.root.isConnected && this.poller.now());
  }

  show() {
    this.follow();
  }

  follow() {
    const id = address.get("id");
    if (id !== this.#id) {
      this.#id = id;
      setText(this.title, id);
      this.title.title = id;
      this.state.replaceChildren();
      this.body.hidden = true;
      this.none.hidden = true;
      this.poller.now();
    } else this.poller.start();
    this.allocations.follow();
    this.asks.follow();
    this.past.follow();
  }

  hide() {
    this.poller.stop();
  }

  async #fetch(signal) {
    if (!cluster.name || !this.#id) return;
    const id = this.#id;
    try {
      const app = await api.get(inPartition(`application/${encodeURIComponent(id)}?state=any`), signal);
      const live = !ENDED.includes(app.applicationState);
      const [report] = await Promise.all([live ? api.get(inPartition(`explain?key=${encodeURIComponent(id)}`), signal).catch(unknown) : null, kinds.load(signal)]);
      if (id === this.#id) this.#draw(app, report?.application ?? null);
    } catch (error) {
      if (error.status !== 404) throw error;
      await this.#past(id, signal);
    }
  }

  /** Shows an application that is no longer in memory, as far as the stored history knows it. */
  async #past(id, signal) {
    let records = [];
    try {
      records = (await api.call("HistoryService/ListPastApplications", { applicationId: id, page: { pageSize: 100 } }, signal)).applications;
    } catch (error) {
      if (![403, 409, 503].includes(error.status)) throw error;
    }
    if (id !== this.#id) return;
    if (!records.length) {
      this.body.hidden = true;
      this.none.hidden = false;
      setText(this.none.lastChild, `Neither the core nor its history knows an application called ${id}.`);
      return;
    }
    const [last] = records;
    this.#draw(
      {
        applicationID: id,
        queueName: last.queue,
        user: last.user,
        applicationState: last.state,
        submissionTime: last.submittedNs,
        finishedTime: last.atNs,
        rejectedMessage: last.message,
        stateLog: records.toReversed().map((one) => ({ applicationState: one.state, time: one.atNs })),
      },
      null,
    );
    // Records that only the history has do not change any more.
    if (ENDED.includes(last.state)) this.poller.stop();
  }

  /** Shows the allocations of an application that has ended, from the events of the history, which do not change any more. */
  async #showPast(app) {
    const wanted = `${app.applicationID} ${app.finishedTime}`;
    if (wanted === this.pastOf) return;
    this.pastOf = wanted;
    this.past.setColumns(pastColumns([]));
    try {
      const { allocations, problem } = await pastAllocations(app);
      if (wanted !== this.pastOf) return;
      this.past.setColumns(pastColumns(typesIn(allocations.map((one) => one.resource))));
      this.past.show(allocations, { problem });
      this.past.root.style.setProperty("--rows", Math.min(Math.max(allocations.length, 1), 16));
    } catch (error) {
      this.pastOf = "";
      this.past.show([], { problem: error.message });
    }
  }

  #draw(app, report) {
    this.none.hidden = true;
    this.body.hidden = false;
    const live = !app.finishedTime;
    this.state.replaceChildren(badge(app.applicationState));
    const running = (app.stateLog ?? []).find((entry) => entry.applicationState === "Running");
    put(this.facts, [
      facts([
        ["Queue", link("queue", app.queueName)],
        ["User", app.user && link("user", app.user)],
        ["Groups", app.groups?.length && el("span", {}, ...app.groups.flatMap((one, at) => [at ? ", " : "", link("group", one)]))],
        ["Submitted", app.submissionTime && `${moment(app.submissionTime)}, ${since(app.submissionTime)} ago`],
        ["Waited", running && app.submissionTime && `${span((running.time - app.submissionTime) / 1e6)} until it ran`],
        [app.applicationState === "Rejected" ? "Rejected" : "Ended", app.finishedTime && `${moment(app.finishedTime)}, ${since(app.finishedTime)} ago`],
        ["Lasted", app.finishedTime && app.submissionTime && app.finishedTime > app.submissionTime && span((app.finishedTime - app.submissionTime) / 1e6)],
        ["Because", app.rejectedMessage],
        ["Node kept for", app.reservations?.length && app.reservations.join(", ")],
        ["Priority", app.maxRequestPriority > -(2 ** 31) && String(app.maxRequestPriority)],
        ["Tags", app.applicationTags && amountsLine(app.applicationTags)],
      ]),
    ]);
    put(this.why, live ? (report ? waitingReport(report) : [el("p", { class: "muted", text: "Nothing of it waits." })]) : [el("p", { class: "muted", text: app.applicationState === "Rejected" ? `It was rejected: ${app.rejectedMessage}` : "It has ended." })]);
    this.amounts.replaceChildren(amountTable({ Used: app.usedResource, Placeholders: app.placeholderResource, Pending: app.pendingResource, Peak: app.maxUsedResource }));
    const allocations = app.allocations ?? [];
    const asks = app.requests ?? [];
    const types = typesIn([...allocations, ...asks].map((one) => one.resource));
    this.allocations.setColumns(allocationColumns(types));
    this.asks.setColumns(askColumns(types));
    this.allocations.show(allocations);
    this.asks.show(asks);
    this.allocations.root.style.setProperty("--rows", Math.min(Math.max(allocations.length, 1), 16));
    this.asks.root.style.setProperty("--rows", Math.min(Math.max(asks.length, 1), 10));
    this.allocations.root.closest(".card").hidden = !live;
    this.asks.root.closest(".card").hidden = !live;
    this.past.root.closest(".card").hidden = live || app.applicationState === "Rejected";
    if (!live && app.applicationState !== "Rejected") this.#showPast(app);
    const groups = app.placeholderData ?? [];
    put(this.placeholders, groups.map((group) => facts([["Task group", group.taskGroupName], ["Asked for", counted(group.count ?? 0, "placeholder")], ["Each", amounts(group.minResource)], ["Replaced", String(group.replaced ?? 0)], ["Timed out", group.timedout ? String(group.timedout) : ""]])));
    this.placeholders.closest(".card").hidden = !groups.length;
    put(this.course, [courseTable(app.stateLog ?? [])]);
    put(this.lost, [lossTable(report?.preempted) ?? el("p", { class: "muted", text: "None lately." })]);
    this.lost.closest(".card").hidden = !report?.preempted?.length;
  }
}

/** Replace the content, unless a part that the reader has opened would be closed by that. */
function put(parent, content) {
  const open = [...parent.querySelectorAll("details")].map((one) => one.open);
  if (parent.contains(document.activeElement) && document.activeElement !== parent) return;
  parent.replaceChildren(...content.filter(Boolean));
  [...parent.querySelectorAll("details")].forEach((one, at) => open.length > at && (one.open = open[at]));
}

const unknown = (error) => (error.status === 404 ? null : Promise.reject(error));

const amountsLine = (tags) => Object.entries(tags).map(([name, value]) => `${name}: ${value}`).join(", ");

function courseTable(log) {
  const rows = log.map((entry, at) => {
    const next = log[at + 1];
    return el("tr", {}, el("td", {}, badge(entry.applicationState)), el("td", { class: "narrow", text: shortMoment(entry.time), title: moment(entry.time) }), el("td", { class: "number muted", text: next ? span((next.time - entry.time) / 1e6) : "" }));
  });
  return el("table", {}, el("thead", {}, el("tr", {}, ...["State", "Entered", "For"].map((text, at) => el("th", { scope: "col", class: at === 2 ? "number" : null, text })))), el("tbody", {}, ...rows));
}

const amountColumns = (types) =>
  types.map((type, at) => ({ key: type, wide: at > 0, title: headOf(type), saved: [[headOf(type), (one) => inUnit(type, one.resource?.[type] ?? 0)]], value: (one) => one.resource?.[type] ?? 0, text: (one) => bare(type, one.resource?.[type] ?? 0), number: true, width: "minmax(54px, 0.6fr)" }));

const secondsSince = (ns) => (ns ? Math.round(Date.now() / 1e3 - ns / 1e9) : "");

function allocationColumns(types) {
  return [
    { key: "key", title: "Allocation", value: (one) => one.allocationKey, draw: (cell, one) => drawLink(cell, "ask", one.allocationKey), width: "minmax(90px, 1.4fr)" },
    { key: "node", title: "Node", value: (one) => one.nodeId, draw: (cell, one) => drawLink(cell, "node", one.nodeId), width: "minmax(70px, 1.2fr)" },
    { key: "priority", title: "Priority", value: (one) => Number(one.priority ?? 0), number: true, width: "72px", wide: true },
    ...amountColumns(types),
    { key: "placed", title: "Placed", value: (one) => one.allocationTime ?? 0, text: (one) => (one.allocationTime ? shortMoment(one.allocationTime) : ""), saved: [["Placed", (one) => momentOrNone(one.allocationTime)]], number: true, width: "92px", wide: true },
    { key: "age", title: "Runs for", value: (one) => (one.allocationTime ? Date.now() * 1e6 - one.allocationTime : 0), text: (one) => (one.allocationTime ? since(one.allocationTime) : ""), saved: [["Runs for, s", (one) => secondsSince(one.allocationTime)]], number: true, width: "80px" },
    { key: "notes", title: "Notes", value: (one) => [one.placeholder && "placeholder", one.taskGroupName, one.originator && "originator", one.preempted && "being released"].filter(Boolean).join(", "), width: "minmax(70px, 0.8fr)", wide: true },
  ];
}

function pastColumns(types) {
  return [
    { key: "key", title: "Allocation", value: (one) => one.key, draw: (cell, one) => drawLink(cell, "ask", one.key), width: "minmax(90px, 1.4fr)" },
    { key: "node", title: "Node", value: (one) => one.node, draw: (cell, one) => drawLink(cell, "node", one.node), width: "minmax(70px, 1.2fr)" },
    ...amountColumns(types),
    { key: "placed", title: "Placed", value: (one) => one.placed, text: (one) => (one.placed ? shortMoment(one.placed) : "not known"), saved: [["Placed", (one) => momentOrNone(one.placed)]], number: true, width: "92px" },
    { key: "ended", title: "Ended", value: (one) => one.ended, text: (one) => (one.ended ? shortMoment(one.ended) : "not known"), saved: [["Ended", (one) => momentOrNone(one.ended)]], number: true, width: "92px", wide: true },
    { key: "ran", title: "Ran for", value: (one) => (one.ended && one.placed ? one.ended - one.placed : 0), text: (one) => (one.ended && one.placed ? span((one.ended - one.placed) / 1e6) : ""), saved: [["Ran for, s", (one) => (one.ended && one.placed ? (one.ended - one.placed) / 1e9 : "")]], number: true, width: "80px", wide: true },
    { key: "how", title: "How it ended", value: (one) => one.how, width: "minmax(70px, 0.8fr)", wide: true },
  ];
}

function askColumns(types) {
  return [
    { key: "key", title: "Ask", value: (one) => one.allocationKey, draw: (cell, one) => drawLink(cell, "ask", one.allocationKey), width: "minmax(90px, 1.4fr)" },
    { key: "priority", title: "Priority", value: (one) => Number(one.priority ?? 0), number: true, width: "72px" },
    ...amountColumns(types),
    { key: "age", title: "Waits for", value: (one) => (one.requestTime ? Date.now() * 1e6 - one.requestTime : 0), text: (one) => (one.requestTime ? since(one.requestTime) : ""), saved: [["Waits for, s", (one) => secondsSince(one.requestTime)]], number: true, width: "80px" },
    { key: "log", title: "Stopped by", value: (one) => one.allocationLog?.[0]?.message ?? "", width: "minmax(100px, 1.6fr)", wide: true },
    { key: "notes", title: "Notes", value: (one) => [one.placeholder && "placeholder", one.taskGroupName, one.requiredNodeId && `only on ${one.requiredNodeId}`, one.triggeredPreemption && "preempts others"].filter(Boolean).join(", "), width: "minmax(70px, 0.8fr)", wide: true },
  ];
}

function drawLink(cell, kind, name) {
  if (!cell.firstChild) cell.append(link(kind, name || " "));
  setLink(cell.firstChild, kind, name);
}

function card(title, content) {
  return el("section", { class: "card", "aria-label": title }, el("header", {}, el("h2", { text: title })), el("div", { class: "body" }, content));
}

function tableCard(title, table) {
  table.root.classList.add("within");
  return el("section", { class: "card", "aria-label": title }, el("header", { class: "tools" }, el("h2", { text: title }), el("span", { class: "space" }), ...table.tools), table.root);
}
