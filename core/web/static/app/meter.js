// A bar of one resource type.

import { el } from "./dom.js";
import { amount, share } from "./units.js";

/** Makes a bar whose parts are set with `setMeter`. It is decorative, so the numbers have to be written beside it. */
export function meter() {
  const bar = el("span", { class: "meter", "aria-hidden": "true" });
  bar.parts = {};
  for (const name of ["wait", "over", "used", "tick"]) bar.append((bar.parts[name] = el("i", { class: name })));
  return bar;
}

/** Set the parts of a bar. `whole`: the amount for which the full width stands. `guaranteed` null: it is not shown. */
export function setMeter(bar, { used = 0, pending = 0, guaranteed = null, whole = 0 }) {
  const within = guaranteed === null ? used : Math.min(used, guaranteed);
  put(bar.parts.used, share(within, whole));
  put(bar.parts.over, share(used, whole));
  put(bar.parts.wait, share(used + pending, whole));
  put(bar.parts.tick, share(guaranteed ?? 0, whole));
  bar.parts.tick.hidden = !guaranteed || guaranteed > whole;
}

function put(part, value) {
  part.style.setProperty("--share", Math.max(0, Math.min(1, value)).toFixed(4));
}

/** Returns the same in words. */
export function meterWords(type, { used = 0, pending = 0, guaranteed = null, max = null }) {
  const parts = [`${amount(type, used)} used${max === null ? "" : ` of at most ${amount(type, max)}`}${guaranteed ? `${max === null ? " of" : ","} ${amount(type, guaranteed)} guaranteed` : ""}`];
  if (pending) parts.push(`${amount(type, pending)} pending`);
  return parts.join(", ");
}
