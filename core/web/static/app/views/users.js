// Users and groups with what they use and may use; the placement rules, and where an application would go.

import { address } from "../address.js";
import { api } from "../api.js";
import { cluster, inPartition } from "../cluster.js";
import { DataTable } from "../data_table.js";
import { el, setText } from "../dom.js";
import { field } from "../fields.js";
import { link, openDetails, setLink } from "../links.js";
import { Poller } from "../poller.js";
import { typeChoice, typeChooser } from "../type_choice.js";
import { amount, bare, headOf, inUnit, typesOf } from "../units.js";

export class UsersView {
  constructor() {
    this.groups = el("select", { "aria-label": "Users or groups", on: { change: () => address.set({ of: this.groups.value }) } }, el("option", { value: "", text: "Users" }), el("option", { value: "groups", text: "Groups" }));
    this.table = new DataTable({
      label: "Users and groups",
      noun: "user",
      height: 34,
      empty: "No user uses anything, and no limit names a user or group.",
      keyOf: nameIn,
      open: (one) => openDetails(one.userName ? "user" : "group", nameIn(one)),
      columns: columns([]),
    });
    this.rules = el("ol", { class: "rules" });
    this.answer = el("p", { role: "status" });
    this.form = el(
      "form",
      { class: "inline-form", on: { submit: (event) => this.#place(event) } },
      field("user", "User", { required: true }),
      field("groups", "Groups", { placeholder: "one, two" }),
      field("queue", "Queue it names", { placeholder: "root.prod, or nothing" }),
      field("tags", "Tags", { placeholder: "namespace=dev" }),
      el("button", { type: "submit", class: "primary", text: "Where would it be placed?" }),
    );
    this.root = el(
      "div",
      { class: "view scrolls" },
      el("div", { class: "tools" }, el("h1", { text: "Users and placement" }), this.groups, this.table.filter, typeChooser(), el("span", { class: "space" }), this.table.count, this.table.csv),
      el("div", { class: "card sheet within-view" }, this.table.root),
      el("section", { class: "card", "aria-label": "Placement" }, el("header", {}, el("h2", { text: "Where would an application be placed?" })), el("div", { class: "body stack" }, this.form, this.answer, el("h3", { text: "The rules, in the order in which they are tried" }), this.rules)),
    );
    typeChoice.addEventListener("change", () => this.root.isConnected && this.#show());
    this.poller = new Poller((signal) => this.#fetch(signal), 3_000);
    cluster.addEventListener("partition", () => this.root.isConnected && this.poller.now());
  }

  show() {
    this.follow();
    for (const name of ["user", "groups", "queue", "tags"]) this.form.elements[name].value = address.get(`place.${name}`);
    if (address.get("place.user")) this.#ask();
  }

  follow() {
    this.groups.value = address.get("of");
    this.table.options.noun = address.get("of") ? "group" : "user";
    this.table.follow();
    this.poller.now();
  }

  hide() {
    this.poller.stop();
  }

  async #fetch(signal) {
    if (!cluster.name) return this.table.show([]);
    const [found, rules] = await Promise.all([api.get(inPartition(`usage/${address.get("of") || "users"}`), signal), api.get(inPartition("placementrules"), signal)]);
    this.found = found;
    const used = found.flatMap((one) => [one.queues?.resourceUsage, one.queues?.maxResources]);
    typeChoice.offer(typesOf(...used, cluster.partition?.capacity?.capacity));
    this.#show();
    this.rules.replaceChildren(...rules.map(ruleItem));
  }

  #show() {
    this.table.setColumns(columns(typeChoice.chosen));
    this.table.show(this.found ?? []);
  }

  #place(event) {
    event.preventDefault();
    const given = new FormData(this.form);
    address.set(Object.fromEntries(["user", "groups", "queue", "tags"].map((name) => [`place.${name}`, given.get(name).trim()])));
    this.#ask();
  }

  async #ask() {
    const query = new URLSearchParams({ user: address.get("place.user") });
    if (address.get("place.queue")) query.set("queue", address.get("place.queue"));
    if (address.get("place.groups")) query.set("groups", address.get("place.groups").replaceAll(" ", ""));
    for (const tag of address.get("place.tags").split(",")) {
      const [name, value = ""] = tag.trim().split("=");
      if (name) query.set(`tag.${name}`, value);
    }
    try {
      await cluster.ready();
      const found = await api.get(inPartition(`placement?${query}`));
      if (!found.queue) this.answer.replaceChildren(el("strong", { text: "Nowhere: it would be rejected. " }), (found.outcomes ?? []).join("; "));
      else this.answer.replaceChildren("To ", found.exists ? link("queue", found.queue) : el("strong", { class: "mono", text: found.queue }), found.exists ? "." : ", which would be made for it below ", found.exists ? "" : link("queue", found.above), found.exists ? "" : ".");
    } catch (error) {
      setText(this.answer, error.message);
    }
  }
}

const nameIn = (one) => one.userName ?? one.groupName;

function columns(types) {
  return [
    { key: "name", title: "Name", value: nameIn, draw: drawName, width: "minmax(110px, 1.2fr)" },
    { key: "applications", title: "Applications", value: (one) => (one.queues?.runningApplications ?? one.applications ?? []).length, number: true, width: "96px" },
    ...types.map((type, at) => ({
      key: type,
      wide: at > 0,
      title: headOf(type),
      saved: [[headOf(type, "used"), (one) => inUnit(type, one.queues?.resourceUsage?.[type] ?? 0)], [headOf(type, "at most"), (one) => inUnit(type, one.queues?.maxResources?.[type])]],
      value: (one) => one.queues?.resourceUsage?.[type] ?? 0,
      text: (one) => {
        const most = one.queues?.maxResources?.[type];
        return `${bare(type, one.queues?.resourceUsage?.[type] ?? 0)}${most === undefined ? "" : ` of ${amount(type, most)}`}`;
      },
      number: true,
      width: "minmax(96px, 1fr)",
    })),
    { key: "limits", title: "Limited in", value: limited, width: "minmax(110px, 1.4fr)", wide: true },
  ];
}

/** Returns the queues in which a limit applies. */
function limited(one) {
  const found = [];
  const visit = (usage) => {
    if (usage.maxResources || usage.maxApplications) found.push(usage.queuePath);
    for (const child of usage.children ?? []) visit(child);
  };
  if (one.queues) visit(one.queues);
  return found.join(", ");
}

function drawName(cell, one) {
  const kind = one.userName ? "user" : "group";
  if (!cell.firstChild) cell.append(link(kind, nameIn(one)));
  setLink(cell.firstChild, kind, nameIn(one));
}

function ruleItem(rule) {
  const parameters = Object.entries(rule.parameters ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
  const filter = rule.filter ? `; ${rule.filter.type ?? "for"} ${[...(rule.filter.userList ?? []), ...(rule.filter.groupList ?? []), rule.filter.userExp, rule.filter.groupExp].filter(Boolean).join(", ")}` : "";
  const parent = rule.parentRule ? `; below what ${rule.parentRule.name} finds` : "";
  return el("li", {}, el("strong", { text: rule.name }), el("span", { class: "muted", text: ` ${parameters}${filter}${parent}` }));
}
