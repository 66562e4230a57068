// Puts the page together: views by address, the header, and what keys do everywhere.

import { api } from "./api.js";
import { cluster } from "./cluster.js";
import { el, setText } from "./dom.js";
import { explain, explainIn } from "./explain.js";
import { followHolds } from "./holds.js";
import { panel } from "./panel.js";
import { preemptions } from "./tails.js";
import { ApplicationsView } from "./views/applications.js";
import { EventsView } from "./views/events.js";
import { NodesView } from "./views/nodes.js";
import { OverviewView } from "./views/overview.js";
import { PreemptionsView } from "./views/preemptions.js";
import { QueuesView } from "./views/queues.js";

const VIEWS = {
  overview: ["Overview", OverviewView],
  queues: ["Queues", QueuesView],
  applications: ["Applications", ApplicationsView],
  nodes: ["Nodes", NodesView],
  events: ["Events", EventsView],
  preemption: ["Preemption", PreemptionsView],
};

const main = document.getElementById("main");
const byId = (id) => document.getElementById(id);
const made = new Map();
let shown = null;

for (const [name, [title]] of Object.entries(VIEWS)) {
  byId("tabs").append(el("a", { href: `#/${name}`, text: title, data: { view: name } }));
}

function route() {
  const [, name = "", query = ""] = /^#\/([a-z]*)\??(.*)$/.exec(location.hash) ?? [];
  const wanted = name in VIEWS ? name : "overview";
  const parameters = new URLSearchParams(query);
  const [title, Kind] = VIEWS[wanted];
  if (!made.has(wanted)) made.set(wanted, new Kind());
  const view = made.get(wanted);
  if (view !== shown) {
    if (shown) panel.close();
    shown?.hide();
    main.replaceChildren(view.root);
    shown = view;
    view.show(parameters);
    document.title = `${title} · Kornel`;
    for (const tab of byId("tabs").children) {
      if (tab.dataset.view === wanted) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  } else if (query) {
    view.show(parameters);
  }
  if (parameters.get("explain")) explain(parameters.get("explain"));
}

function showConnection() {
  const words = { wait: "Connecting", live: "Live", lost: "Reconnecting", refused: "Token needed", denied: "No access" };
  const link = byId("connection");
  link.dataset.state = api.state;
  setText(link.querySelector("span"), words[api.state]);
  const notice = byId("notice");
  notice.hidden = api.state === "live" || api.state === "wait";
  notice.dataset.tone = api.state === "lost" ? "bad" : "warn";
  setText(
    notice,
    api.state === "lost"
      ? "The core does not answer. What you see is the last that was heard; the page goes on by itself."
      : `${api.state === "denied" ? "You may not see this" : "The core wants to know who you are"}: ${api.message}`,
  );
  if (api.state === "refused" && !byId("token-dialog").open && !dismissed) openTokenDialog();
}

let dismissed = false;

function openTokenDialog() {
  byId("token-field").value = "";
  byId("token-forget").hidden = !api.token;
  byId("token-dialog").showModal();
}

function useToken(token) {
  api.token = token;
  dismissed = false;
  byId("token-dialog").close();
  cluster.poller.now();
  shown?.hide();
  shown?.show(new URLSearchParams());
}

byId("token-button").addEventListener("click", openTokenDialog);
byId("token-cancel").addEventListener("click", () => {
  dismissed = true;
  byId("token-dialog").close();
});
byId("token-dialog").addEventListener("cancel", () => (dismissed = true));
byId("token-forget").addEventListener("click", () => useToken(""));
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token-field").value.trim());
});

function themeNow() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function labelTheme() {
  const other = themeNow() === "dark" ? "light" : "dark";
  byId("theme-button").setAttribute("aria-label", `Switch to ${other} theme`);
  byId("theme-button").title = `Switch to ${other} theme`;
  window.dispatchEvent(new Event("themechange"));
}

byId("theme-button").addEventListener("click", () => {
  const next = themeNow() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("kornel.theme", next);
  } catch {
    // It holds for as long as the page is open.
  }
  labelTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", labelTheme);

byId("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("lookup-key").value.trim();
  if (key) explain(key);
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("lookup-key").focus();
  }
});

byId("partition").addEventListener("change", (event) => cluster.choose(event.target.value));
cluster.addEventListener("change", () => {
  const names = (cluster.partitions ?? []).map((one) => one.name);
  const box = byId("partition");
  box.hidden = names.length < 2;
  if ([...box.options].map((option) => option.value).join() !== names.join()) {
    box.replaceChildren(...names.map((name) => el("option", { value: name, text: name })));
  }
  box.value = cluster.name;
});
cluster.addEventListener("partition", () => {
  preemptions.partition = cluster.name;
  preemptions.restart();
});

explainIn(() => cluster.name);
api.addEventListener("state", showConnection);
window.addEventListener("hashchange", route);
labelTheme();
cluster.poller.start();
followHolds(byId("holds"));
route();
