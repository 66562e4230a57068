// Shows the details at the side. The address says what they are about, as `details=KIND:NAME`.

import { address } from "./address.js";
import { cluster } from "./cluster.js";
import { el } from "./dom.js";
import { panel } from "./panel.js";

/** The modules by kind. Each has a function of that name, which is called with the name of the object. */
const MAKERS = {
  ask: (name) => import("./details/ask.js").then(({ ask }) => ask(name)),
  queue: (name) => import("./details/queue.js").then(({ queue }) => queue(name)),
  node: (name) => import("./details/node.js").then(({ node }) => node(name)),
  user: (name) => import("./details/user.js").then(({ user }) => user(name)),
  group: (name) => import("./details/user.js").then(({ group }) => group(name)),
  decision: (name) => import("./details/decision.js").then(({ decision }) => decision(name)),
  event: (name) => import("./details/event.js").then(({ event }) => event(name)),
};
const TITLES = { ask: "Ask or allocation" };

let shown = "";

/** Make the panel follow the address. */
export function followDetails() {
  address.addEventListener("change", follow);
  cluster.addEventListener("partition", () => {
    shown = "";
    follow();
  });
  panel.onClose = () => address.set({ details: "", explain: "" });
  follow();
}

/** Show the details again, because something has changed. */
export function refreshDetails() {
  shown = "";
  follow();
}

function follow() {
  const old = address.get("explain");
  const wanted = address.get("details") || (old && `ask:${old}`);
  if (wanted === shown || (wanted && !cluster.name)) return;
  shown = wanted;
  const [, kind = "", name = ""] = /^([a-z]+):([^]*)$/.exec(wanted) ?? [];
  if (!MAKERS[kind]) return panel.hide();
  const title = TITLES[kind] ?? kind.charAt(0).toUpperCase() + kind.slice(1);
  panel.open([el("span", { class: "faint", text: `${title} ` }), el("span", { class: "mono", text: name })], () => MAKERS[kind](name));
}
