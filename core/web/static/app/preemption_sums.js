// Shows in a table how much preemption took from whom for whom, by queue, user or application.

import { api } from "./api.js";
import { DataTable } from "./data_table.js";
import { el } from "./dom.js";
import { link, setLink } from "./links.js";
import { amount, amounts, headOf, inUnit, nameOf, typesIn } from "./units.js";

/** The ways to sum up: the word in the address, the text, and the core's word. */
export const PARTIES = { "": ["By queue", ""], user: ["By user", "PREEMPTION_PARTY_USER"], application: ["By application", "PREEMPTION_PARTY_APPLICATION"] };

/** Returns sums from the stored history. `times`: the range, as calls of HistoryService have it. */
export async function pastSums(party, { partition, queue = "", times }) {
  const by = PARTIES[party]?.[1];
  const { sums } = await api.call("HistoryService/SumPreemptions", { ...(by ? { by } : {}), preemptions: { page: times, partition, queue } });
  return sums.map((one) => ({ taker: one.takenBy, giver: one.takenFrom, victims: one.victimCount, left: one.leftCount, resource: one.resources }));
}

/** A table of sums, filled by `show(sums, party)`. `name`: the name of its parameters in the address. */
export class SumsTable {
  constructor(name) {
    this.table = new DataTable({
      name,
      label: "Preemptions between queues",
      noun: "pair",
      sort: "-victims",
      height: 30,
      empty: "No allocation had to leave.",
      keyOf: (one) => `${one.taker}\n${one.giver}`,
      columns: columns("queue", [], false),
    });
    this.table.root.classList.add("within");
  }

  show(sums, party) {
    const types = typesIn(sums.map((one) => one.resource)).slice(0, 4);
    const left = sums.some((one) => one.left !== undefined);
    this.table.setColumns(columns(party || "queue", types, left));
    this.table.show(sums);
    this.table.root.style.setProperty("--rows", Math.min(Math.max(sums.length, 1), 8));
  }
}

function columns(kind, types, left) {
  return [
    { key: `${kind}-taker`, title: "Took", value: (one) => one.taker, draw: (cell, one) => drawParty(cell, kind, one.taker, false), width: "minmax(56px, 1.2fr)" },
    { key: `${kind}-giver`, title: "From", value: (one) => one.giver, draw: (cell, one) => drawParty(cell, kind, one.giver, one.giver === one.taker), width: "minmax(56px, 1.2fr)" },
    { key: "victims", title: "Victims", value: (one) => one.victims, number: true, width: "66px" },
    ...(left ? [{ key: "left", title: "Left", value: (one) => one.left, number: true, width: "54px" }] : []),
    ...types.map((type, at) => ({ key: type, title: nameOf(type), saved: [[headOf(type), (one) => inUnit(type, one.resource[type] ?? 0)]], value: (one) => one.resource[type] ?? 0, text: (one) => amount(type, one.resource[type] ?? 0), number: true, wide: at > 0, width: "minmax(56px, 0.7fr)" })),
    ...(types.length === 4 ? [{ key: "all", title: "All amounts", value: (one) => amounts(one.resource), wide: true, width: "minmax(110px, 1.4fr)" }] : []),
  ];
}

function drawParty(cell, kind, name, itself) {
  if (!cell.firstChild) cell.append(link(kind, name || " "), el("span", { class: "muted" }));
  const [anchor, words] = cell.children;
  anchor.hidden = itself || !name;
  setLink(anchor, kind, name);
  words.textContent = itself ? "itself" : name ? "" : "not known";
}
