// The room that is kept for waiting asks, on nodes and below limits.

import { DataTable } from "./data_table.js";
import { link, openDetails, setLink } from "./links.js";
import { amounts, momentOrNone, since, span, words } from "./units.js";

const ROWS = 6;

export class ClaimTable {
  constructor() {
    this.table = new DataTable({
      name: "kept",
      label: "Room kept for waiting asks",
      noun: "claim",
      sort: "-idle",
      keyOf: (one) => `${one.allocationKey} ${one.placeKind} ${one.place}`,
      describe: (one) => `For ${one.allocationKey} of ${one.applicationId} on ${placeWords(one)}: ${amounts(one.held)} kept, ${amounts(one.missing) || "nothing"} missing; ${words(one.reason)}, ${one.kind}, no progress for ${span((one.idle ?? 0) / 1e6)}`,
      open: (one) => openDetails("ask", one.allocationKey),
      columns: COLUMNS,
    });
    this.table.root.classList.add("within");
  }

  show(claims) {
    this.table.root.style.setProperty("--rows", Math.min(claims.length, ROWS));
    this.table.show(claims);
  }
}

const COLUMNS = [
  { key: "ask", title: "For", value: (one) => one.allocationKey, draw: (cell, one) => inLink(cell, "ask", one.allocationKey), width: "minmax(64px, 1.2fr)" },
  { key: "application", title: "Application", value: (one) => one.applicationId, draw: (cell, one) => inLink(cell, "application", one.applicationId), width: "minmax(64px, 1fr)", wide: true },
  { key: "on", title: "On", value: placeWords, draw: drawPlace, width: "minmax(64px, 1.2fr)" },
  { key: "why", title: "Why", value: (one) => `${words(one.reason)}, ${one.kind}`, width: "112px", wide: true },
  { key: "held", title: "Kept", value: (one) => amounts(one.held), width: "minmax(64px, 1.2fr)", wide: true },
  { key: "missing", title: "Missing", value: (one) => amounts(one.missing) || "nothing", width: "minmax(64px, 1.2fr)" },
  { key: "victims", title: "Victims", value: (one) => one.victims ?? 0, text: (one) => one.victims || "–", number: true, width: "58px", wide: true },
  { key: "since", title: "Since", value: (one) => one.since, text: (one) => `${since(one.since)} ago`, saved: [["Since", (one) => momentOrNone(one.since)]], number: true, width: "84px", wide: true },
  { key: "idle", title: "No progress", value: (one) => one.idle ?? 0, text: (one) => span((one.idle ?? 0) / 1e6), saved: [["No progress, s", (one) => (one.idle ?? 0) / 1e9]], number: true, width: "88px" },
  { key: "lapses", title: "Lapses", value: (one) => one.lapses ?? Infinity, text: (one) => momentOrNone(one.lapses) || "–", saved: [["Lapses", (one) => momentOrNone(one.lapses)]], number: true, width: "140px", wide: true },
];

/** Returns what a claim is on in words: a node without its kind. */
function placeWords({ placeKind, place }) {
  return placeKind === "node" ? place : `${placeKind} ${place}`;
}

function drawPlace(cell, one) {
  // The place of a user or group is "NAME in PATH".
  const name = one.placeKind === "user" || one.placeKind === "group" ? one.place.slice(0, one.place.lastIndexOf(" in ")) : one.place;
  inLink(cell, one.placeKind, name, placeWords(one));
}

function inLink(cell, kind, name, text = name) {
  if (!cell.firstChild) cell.append(link(kind, name || " ", text || " "));
  setLink(cell.firstChild, kind, name, text);
}
