// A node: how full it is, what runs there, and taking it out of scheduling.

import { address } from "../address.js";
import { api } from "../api.js";
import { inPartition } from "../cluster.js";
import { el } from "../dom.js";
import { DataTable } from "../data_table.js";
import { refreshDetails } from "../details.js";
import { badge, facts, section } from "../explain.js";
import { link, openDetails, setLink } from "../links.js";
import { meter, meterWords, setMeter } from "../meter.js";
import { rights } from "../rights.js";
import { changeButton } from "../changes.js";
import { amounts, count, moment, momentOrNone, nameOf, percent, readable, share, since, typesOf, words } from "../units.js";

export async function node(name) {
  const [found, why] = await Promise.all([api.get(inPartition(`node/${encodeURIComponent(name)}`)), api.get(inPartition(`explain?node=${encodeURIComponent(name)}`)), rights.load()]);
  const types = typesOf(found.capacity);
  const rows = types.map((type) => {
    const bar = meter();
    const used = (found.allocated?.[type] ?? 0) + (found.occupied?.[type] ?? 0);
    const whole = found.capacity?.[type] ?? 0;
    setMeter(bar, { used, whole });
    const said = meterWords(type, { used, max: whole });
    return el("div", { class: "capacity-row small", role: "group", "aria-label": `${nameOf(type)}: ${said}` }, el("span", { class: "name cut", text: nameOf(type), title: type }), el("strong", { text: percent(share(used, whole)) }), bar, el("span", { class: "cut", text: said.replace("at most ", "") }));
  });
  const foreign = found.foreignAllocations ?? [];
  // The list of devices is shown as a table instead.
  const attributes = Object.entries(found.attributes ?? {}).filter(([key]) => key !== "kornel.devices");
  return [
    facts([
      ["State", found.schedulable ? badge("open", "good") : badge("closed", "bad")],
      ["Drained by", found.drainedBy && `${found.drainedBy}, since ${moment(found.drainedSince)}`],
      ["Kept for", found.reservations?.length && el("span", {}, ...found.reservations.flatMap((key, at) => [at ? ", " : "", link("ask", key)]))],
      ["Host", found.hostName],
      ["Rack", found.rackName],
    ]),
    drainButton(name, Boolean(found.drainedBy)),
    section("Utilisation", ...rows),
    section("Why waiting asks are not placed here", waitingTable(why.node)),
    found.devices && section("Devices", deviceTable(found.devices)),
    section("Allocations", allocationTable(found.allocations ?? [])),
    foreign.length > 0 && section("Load of other schedulers", ...foreign.map((one) => el("p", {}, el("span", { class: "mono", text: one.allocationKey }), ` ${amounts(one.resource)}`))),
    attributes.length > 0 && section("Attributes", facts(attributes.map(([key, value]) => [key, el("span", { class: "mono", text: value })]))),
    el("p", {}, el("a", { href: address.href("what-if", { suppose: "node", node: name }), text: "What if this node were lost?" })),
  ];
}

/** Shows what keeps waiting asks off this node: one line for each first obstacle. */
function waitingTable({ waitingAsks, verdicts = [], lastPlaced }) {
  const placed = lastPlaced ? ` The last allocation was placed here ${since(lastPlaced)} ago.` : "";
  if (!waitingAsks) return el("p", { class: "muted", text: `Nothing waits.${placed}` });
  const rows = verdicts.map(({ kind, asks, example, blocker }) =>
    el("tr", {}, el("td", { class: "number", text: count(asks) }), el("td", { class: "wraps" }, el("strong", { text: kind === "fits" ? "Nothing prevents it" : words(blocker?.kind ?? kind) }), blocker?.detail && el("span", { class: "muted", text: ` ${readable(blocker.detail)}` })), el("td", {}, link("ask", example))),
  );
  return el("div", {}, el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "number", text: "Asks" }), el("th", { scope: "col", text: "First obstacle" }), el("th", { scope: "col", text: "Such as" }))), el("tbody", {}, ...rows)), placed && el("p", { class: "muted", text: placed.trim() }));
}

/** Shows one line for each device: its type, how much of it is free, and which allocations hold the rest. */
function deviceTable(devices) {
  const part = (share) => percent(share / 1000);
  const heading = ["Device", "Type", "Memory", "Link group", "Free", "Held by"].map((text) => el("th", { scope: "col", class: text === "Free" ? "number" : "", text }));
  const rows = devices.map(({ id, type, memory, link: group, free, leaving, holders = [] }) =>
    el(
      "tr",
      {},
      el("td", { class: "mono", text: id }),
      el("td", { text: type ?? "" }),
      el("td", { text: memory ? amounts({ memory }) : "" }),
      el("td", { text: group ?? "" }),
      el("td", { class: "number", text: leaving ? "leaving" : part(free) }),
      el("td", {}, ...holders.flatMap(({ allocationKey, share: held }, at) => [at ? ", " : "", link("ask", allocationKey), held < 1000 && ` ${part(held)}`])),
    ),
  );
  return el("table", {}, el("thead", {}, el("tr", {}, ...heading)), el("tbody", {}, ...rows));
}

function drainButton(name, drained) {
  return changeButton({
    text: drained ? "Undrain" : "Drain",
    permission: "administer",
    question: drained
      ? `Node ${name} takes new work again, unless its resource manager has closed it.`
      : `Node ${name} takes no new work until it is undrained. What runs there keeps running.`,
    act: () => api.call(`AdminService/${drained ? "UndrainNode" : "DrainNode"}`, { nodeId: name, partition: address.get("partition") }),
    done: refreshDetails,
  });
}

function allocationTable(allocations) {
  const table = new DataTable({
    name: "on",
    label: "Allocations on this node",
    noun: "allocation",
    sort: "since",
    keyOf: (one) => one.allocationKey,
    open: (one) => openDetails("ask", one.allocationKey),
    columns: [
      { key: "allocation", title: "Allocation", value: (one) => one.allocationKey, draw: (cell, one) => inLink(cell, "ask", one.allocationKey), width: "minmax(120px, 1.6fr)" },
      { key: "application", title: "Application", value: (one) => one.applicationId, draw: (cell, one) => inLink(cell, "application", one.applicationId), width: "minmax(80px, 1fr)", wide: true },
      { key: "holds", title: "Holds", value: (one) => amounts(one.resource), width: "minmax(96px, 1.2fr)" },
      { key: "since", title: "Placed", value: (one) => one.allocationTime ?? 0, text: (one) => (one.allocationTime ? `${since(one.allocationTime)} ago` : ""), saved: [["Placed", (one) => momentOrNone(one.allocationTime)]], number: true, width: "92px" },
    ],
  });
  table.show(allocations);
  table.root.style.setProperty("--rows", Math.min(allocations.length, 12));
  table.root.classList.add("within");
  return el("div", {}, el("div", { class: "tools" }, ...table.tools), table.root);
}

function inLink(cell, kind, name) {
  if (!cell.firstChild) cell.append(link(kind, name || " "));
  setLink(cell.firstChild, kind, name);
}
