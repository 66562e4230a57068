// Files of comma-separated values.

import { el } from "./dom.js";

export const csvLine = (values) => `${values.map(field).join(",")}\r\n`;

/** Spreadsheets take text with these beginnings for a formula, and names are chosen by other people. */
function field(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Have the browser save a file. */
export function saveAs(name, text, type = "text/csv") {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
