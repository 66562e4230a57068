// Applications, a page at a time.

import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { blank, el, reconcile, setAttribute, setText, settled } from "../dom.js";
import { badge, explain, facts, section } from "../explain.js";
import { panel } from "../panel.js";
import { Poller } from "../poller.js";
import { amounts, count, moment, since } from "../units.js";

const PAGE = 50;
const FIELDS = "applicationID,queueName,applicationState,user,usedResource,pendingResource,submissionTime,finishedTime,rejectedMessage,stateLog,groups";
const ACTIVE = ["New", "Accepted", "Running", "Completing", "Failing", "Resuming"];

export class ApplicationsView {
  #cursors = [""];
  #next = "";

  constructor() {
    const changed = settled(() => this.#first(), 200);
    this.state = el(
      "select",
      { "aria-label": "State", on: { change: () => this.#first() } },
      el("option", { value: "active", text: "All active" }),
      ...ACTIVE.map((state) => el("option", { value: `active/${state}`, text: state })),
      el("option", { value: "completed", text: "Ended" }),
      el("option", { value: "rejected", text: "Rejected" }),
    );
    this.queue = el("input", { type: "search", placeholder: "Queue, such as root.prod", "aria-label": "Queue path begins with", on: { input: changed } });
    this.user = el("input", { type: "search", placeholder: "User", "aria-label": "User", on: { input: changed } });
    this.count = el("span", { class: "count", role: "status" });
    this.before = el("button", { type: "button", text: "Previous", on: { click: () => this.#turn(-1) } });
    this.after = el("button", { type: "button", text: "Next", on: { click: () => this.#turn(1) } });
    this.body = el("tbody", { on: { click: (event) => this.#click(event), keydown: (event) => this.#key(event) } });
    const heads = ["Application", "Queue", "User", "State", "Used", "Pending", "Submitted"];
    this.table = el("table", { class: "applications" }, el("caption", { class: "hidden", text: "Applications" }), el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })))), this.body);
    this.none = blank("No applications", "Nothing matches.");
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Applications" }), this.state, this.queue, this.user, el("span", { class: "space" }), this.count, this.before, this.after),
      el("div", { class: "card sheet" }, el("div", { class: "table-scroll" }, this.table, this.none)),
    );
    this.none.hidden = true;
    this.poller = new Poller((signal) => this.#fetch(signal), 2_000);
    cluster.addEventListener("partition", () => this.root.isConnected && this.#first());
  }

  show(parameters) {
    if (parameters.has("queue")) {
      this.queue.value = parameters.get("queue");
      this.#cursors = [""];
      this.poller.now();
    } else this.poller.start();
  }

  hide() {
    this.poller.stop();
  }

  #first() {
    this.#cursors = [""];
    this.poller.now();
  }

  #turn(step) {
    if (step > 0) this.#cursors.push(this.#next);
    else this.#cursors.pop();
    this.table.parentElement.scrollTop = 0;
    this.poller.now();
  }

  async #fetch(signal) {
    if (!cluster.name) return this.#draw([], 0);
    const [state, status = ""] = this.state.value.split("/");
    const query = new URLSearchParams({ summary: "true", limit: PAGE, fields: FIELDS });
    if (status) query.set("status", status);
    if (this.queue.value.trim()) query.set("queuePrefix", this.queue.value.trim());
    if (this.user.value.trim()) query.set("user", this.user.value.trim());
    if (this.#cursors.at(-1)) query.set("cursor", this.#cursors.at(-1));
    const { document, total, next } = await api.page(inPartition(`applications/${state}?${query}`), signal);
    this.#next = next;
    this.#draw(document, total);
  }

  #draw(apps, total) {
    const first = (this.#cursors.length - 1) * PAGE;
    setText(this.count, apps.length ? `${count(first + 1)} to ${count(first + apps.length)} of ${count(total)}` : "none");
    this.before.disabled = this.#cursors.length < 2;
    this.after.disabled = !this.#next;
    this.none.hidden = apps.length > 0;
    this.table.hidden = !apps.length;
    reconcile(this.body, apps, (app) => `${app.applicationID}/${app.finishedTime ?? ""}`, applicationRow, updateRow);
  }

  #click(event) {
    const row = event.target.closest("tr");
    if (row) openApplication(row.app);
  }

  #key(event) {
    const row = event.target.closest("tr");
    const sibling = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
    if (sibling) sibling.querySelector("button").focus();
    else return;
    event.preventDefault();
  }
}

function applicationRow(app) {
  const cell = (name) => el("td", { class: name });
  const row = el("tr", {}, el("td", {}, el("button", { class: "plain mono cut", type: "button", text: app.applicationID, title: app.applicationID })), cell("mono"), cell(""), cell(""), cell(""), cell("waits"), cell("muted"));
  return row;
}

function updateRow(row, app) {
  row.app = app;
  const [, queue, user, state, used, pending, submitted] = row.children;
  setText(queue, app.queueName);
  setAttribute(queue, "title", app.queueName);
  setText(user, app.user ?? "");
  if (row.state !== app.applicationState) {
    row.state = app.applicationState;
    state.replaceChildren(badge(app.applicationState));
  }
  setText(used, amounts(app.usedResource) || "–");
  setText(pending, amounts(app.pendingResource) || "–");
  pending.classList.toggle("faint", !app.pendingResource);
  setText(submitted, app.submissionTime ? `${since(app.submissionTime)} ago` : "");
  setAttribute(submitted, "title", app.submissionTime ? moment(app.submissionTime) : null);
}

/** What the core says of an application, or, when it is gone, what the list knew. */
function openApplication(app) {
  if (!app.finishedTime && app.applicationState !== "Rejected") return explain(app.applicationID);
  return panel.open([el("span", { class: "faint", text: "Application " }), el("span", { class: "mono", text: app.applicationID })], () => [
    facts([
      ["State", badge(app.applicationState)],
      ["Queue", el("span", { class: "mono", text: app.queueName })],
      ["User", app.user],
      ["Groups", app.groups?.join(", ")],
      ["Submitted", app.submissionTime && moment(app.submissionTime)],
      ["Ended", app.finishedTime && moment(app.finishedTime)],
      ["Because", app.rejectedMessage],
    ]),
    section("States", facts((app.stateLog ?? []).map((entry) => [entry.applicationState, moment(entry.time)]))),
  ]);
}
