// Applications: searched and sorted by the core, which has all of them; the first few hundred are shown.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { DataTable } from "../data_table.js";
import { el, setText } from "../dom.js";
import { badge } from "../explain.js";
import { link, openDetails, setLink } from "../links.js";
import { Poller } from "../poller.js";
import { typeChoice, typeChooser } from "../type_choice.js";
import { amount, headOf, inUnit, momentOrNone, nameOf, since, typesOf } from "../units.js";

const STEP = 200;
const MOST_AT_ONCE = 2_000;
const FIELDS = "applicationID,queueName,applicationState,user,usedResource,pendingResource,submissionTime,finishedTime,rejectedMessage";
const ACTIVE = ["New", "Accepted", "Running", "Completing", "Failing", "Resuming"];
/** The fields by which the core sorts. Columns of amounts have the resource type after a colon. */
const SORTED_BY = { id: "applicationID", queue: "queueName", user: "user", state: "applicationState", submitted: "submissionTime", ended: "finishedTime", used: "usedResource", waits: "pendingResource", because: "rejectedMessage" };

export class ApplicationsView {
  #limit = STEP;

  constructor() {
    this.state = el(
      "select",
      { "aria-label": "State", on: { change: () => address.set({ state: this.state.value === "active" ? "" : this.state.value }) } },
      el("option", { value: "active", text: "All active" }),
      ...ACTIVE.map((state) => el("option", { value: `active/${state}`, text: state })),
      el("option", { value: "completed", text: "Ended" }),
      el("option", { value: "rejected", text: "Rejected" }),
    );
    this.table = new DataTable({
      label: "Applications",
      noun: "application",
      height: 34,
      remote: true,
      keyOf: (app) => `${app.applicationID}/${app.finishedTime ?? ""}`,
      open: (app) => openDetails("application", app.applicationID),
      onChange: () => this.#again(),
      all: () => this.#everything(),
      columns: applicationColumns("active", []),
    });
    this.more = el("button", { type: "button", text: "Show more", on: { click: () => this.#showMore() } });
    this.within = el("a", { class: "chip", href: "#/applications", hidden: true });
    this.root = el(
      "div",
      { class: "view" },
      el("div", { class: "tools" }, el("h1", { text: "Applications" }), this.state, this.table.filter, typeChooser(), this.within, el("span", { class: "space" }), ...this.table.tools.slice(1), this.more),
      el("div", { class: "card sheet" }, this.table.root),
    );
    this.poller = new Poller((signal) => this.#fetch(signal), 2_000);
    cluster.addEventListener("partition", () => this.root.isConnected && this.#again());
    for (const source of [cluster, typeChoice]) source.addEventListener("change", () => this.root.isConnected && this.#offerTypes());
  }

  show() {
    this.follow();
  }

  follow() {
    this.state.value = address.get("state") || "active";
    const queue = address.get("queue");
    this.within.hidden = !queue;
    setText(this.within, queue ? `in ${queue} ×` : "");
    this.within.setAttribute("aria-label", `Only applications in ${queue}: remove this filter`);
    this.within.href = address.href("applications", { ...Object.fromEntries(address.parameters), queue: "" });
    const asked = ["state", "queue", "q", "sort", "partition"].map(address.get, address).join("\n");
    if (asked !== this.asked) this.#limit = STEP;
    this.asked = asked;
    this.#offerTypes();
    this.table.follow();
    this.poller.now();
  }

  hide() {
    this.poller.stop();
  }

  #offerTypes() {
    typeChoice.offer(typesOf(cluster.partition?.capacity?.capacity));
    this.table.setColumns(applicationColumns(this.state.value.split("/")[0], typeChoice.chosen));
  }

  #again() {
    if (this.root.isConnected) this.follow();
  }

  #showMore() {
    this.#limit += STEP * 4;
    this.poller.now();
  }

  async #fetch(signal) {
    if (!cluster.name) return this.table.show([], { total: 0 });
    const { document, total, next } = await this.#page({ limit: this.#limit }, signal);
    this.more.hidden = !next;
    this.table.show(document, { total });
  }

  async #everything() {
    const found = [];
    let cursor = "";
    do {
      const { document, next } = await this.#page({ limit: MOST_AT_ONCE, cursor });
      found.push(...document);
      cursor = next;
    } while (cursor);
    return found;
  }

  #page(part, signal) {
    const [state, status = ""] = this.state.value.split("/");
    const query = new URLSearchParams({ summary: "true", fields: FIELDS, ...part });
    const order = this.table.order;
    const [, descending, name, type = ""] = /^(-?)([^:]*):?(.*)$/.exec(order);
    if (SORTED_BY[name]) query.set("sort", `${descending}${SORTED_BY[name]}${type && `.${type}`}`);
    if (status) query.set("status", status);
    if (address.get("queue")) query.set("queuePrefix", address.get("queue"));
    if (this.table.text) query.set("contains", this.table.text);
    return api.page(inPartition(`applications/${state}?${query}`), signal);
  }
}

/** Returns the columns of a list: the amounts that applications hold and want of the chosen types, or how they ended. */
function applicationColumns(list, types) {
  const amountsIn = (field, key, title) =>
    types.map((type) => ({
      key: `${key}:${type}`,
      title: `${nameOf(type)} ${title}`,
      value: (app) => app[field]?.[type] ?? 0,
      saved: [[headOf(type, title), (app) => inUnit(type, app[field]?.[type] ?? 0)]],
      text: (app) => (app[field]?.[type] ? amount(type, app[field][type]) : "–"),
      number: true,
      wide: true,
      width: "minmax(74px, 0.7fr)",
    }));
  return [
    { key: "id", title: "Application", value: (app) => app.applicationID, draw: drawId, width: "minmax(110px, 1.6fr)" },
    { key: "queue", title: "Queue", value: (app) => app.queueName, draw: (cell, app) => drawLink(cell, "queue", app.queueName), width: "minmax(90px, 1.4fr)" },
    { key: "user", title: "User", value: (app) => app.user ?? "", draw: (cell, app) => drawLink(cell, "user", app.user ?? ""), width: "minmax(70px, 0.8fr)", wide: true },
    { key: "state", title: "State", value: (app) => app.applicationState, draw: drawState, width: "92px" },
    ...(list === "active" ? [...amountsIn("usedResource", "used", "used"), ...amountsIn("pendingResource", "waits", "pending")] : []),
    ...(list === "rejected" ? [{ key: "because", title: "Because", value: (app) => app.rejectedMessage ?? "", width: "minmax(120px, 2fr)" }] : []),
    { key: "submitted", title: "Submitted", value: (app) => momentOrNone(app.submissionTime), text: (app) => (app.submissionTime ? `${since(app.submissionTime)} ago` : ""), width: "112px", wide: true },
    ...(list === "active" ? [] : [{ key: "ended", title: list === "rejected" ? "Rejected" : "Ended", value: (app) => momentOrNone(app.finishedTime), text: (app) => (app.finishedTime ? `${since(app.finishedTime)} ago` : "–"), width: "112px", wide: true }]),
  ];
}

function drawId(cell, app) {
  drawLink(cell, "application", app.applicationID);
}

function drawLink(cell, kind, name) {
  if (!cell.firstChild) cell.append(link(kind, name || " "));
  cell.firstChild.hidden = !name;
  setLink(cell.firstChild, kind, name);
}

function drawState(cell, app) {
  if (cell.dataset.state === app.applicationState) return;
  cell.dataset.state = app.applicationState;
  cell.replaceChildren(badge(app.applicationState));
}
