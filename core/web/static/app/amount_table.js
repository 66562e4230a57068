// Shows amounts of any number of resource types, with a row for each type, so that forty types can be read as easily as
// two.

import { el } from "./dom.js";
import { meter, setMeter } from "./meter.js";
import { amount, bare, nameOf, typesOf, unitOf } from "./units.js";

/** Makes the table. `columns`: maps of amounts by title; null: nothing is set. `bar(type)` returns what a bar of that type
    shows. */
export function amountTable(columns, bar = null) {
  const types = typesOf(...Object.values(columns).map((map) => map ?? {}));
  if (!types.length) return el("p", { class: "muted", text: "No amount is set, used or asked for." });
  const shown = Object.entries(columns).filter(([, map]) => map && Object.keys(map).length);
  const head = el("tr", {}, el("th", { scope: "col", text: "Type" }), ...shown.map(([title]) => el("th", { scope: "col", class: "number", text: title })));
  const rows = types.flatMap((type) => {
    const unit = unitOf(type);
    const row = el(
      "tr",
      {},
      el("th", { scope: "row", title: type }, nameOf(type), unit && el("span", { class: "faint", text: ` ${unit}` })),
      ...shown.map(([, map]) => el("td", { class: "number", title: map[type] === undefined ? null : amount(type, map[type]), text: map[type] === undefined ? "–" : bare(type, map[type]) })),
    );
    if (!bar) return [row];
    const line = meter();
    setMeter(line, bar(type));
    return [row, el("tr", { class: "bar-row", "aria-hidden": "true" }, el("td", { colspan: shown.length + 1 }, line))];
  });
  return el("div", { class: "amounts", role: "group", "aria-label": "Amounts", tabindex: "0" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}
