// Puts the page together: the views by address, the header, and the keys that work in every view.

import { address } from "./address.js";
import { api } from "./api.js";
import { cluster } from "./cluster.js";
import { followDetails, refreshDetails } from "./details.js";
import { documentation } from "./documentation.js";
import { blank, el, setText } from "./dom.js";
import { followHolds } from "./holds.js";
import { rights } from "./rights.js";
import { events, preemptions } from "./tails.js";

/** The views by name: the title, the module, and whether the header has a link to it. Modules are fetched when they are
    needed. */
const VIEWS = {
  overview: ["Overview", () => import("./views/overview.js").then((m) => m.OverviewView), true],
  queues: ["Queues", () => import("./views/queues.js").then((m) => m.QueuesView), true],
  applications: ["Applications", () => import("./views/applications.js").then((m) => m.ApplicationsView), true],
  nodes: ["Nodes", () => import("./views/nodes.js").then((m) => m.NodesView), true],
  waiting: ["Waiting", () => import("./views/waiting.js").then((m) => m.WaitingView), true],
  users: ["Users", () => import("./views/users.js").then((m) => m.UsersView), true],
  preemption: ["Preemption", () => import("./views/preemptions.js").then((m) => m.PreemptionsView), true],
  history: ["History", () => import("./views/history.js").then((m) => m.HistoryView), true],
  events: ["Events", () => import("./views/events.js").then((m) => m.EventsView), true],
  configuration: ["Configuration", () => import("./views/configuration.js").then((m) => m.ConfigurationView), true],
  "what-if": ["What if", () => import("./views/what_if.js").then((m) => m.WhatIfView), true],
  application: ["Application", () => import("./views/application.js").then((m) => m.ApplicationView), false],
  search: ["Search", () => import("./views/search.js").then((m) => m.SearchView), false],
  refusals: ["Refused", () => import("./views/refusals.js").then((m) => m.RefusalsView), false],
  laws: ["Laws and words", () => import("./views/laws.js").then((m) => m.LawsView), false],
};
const PARENTS = { application: "applications", laws: "preemption", refusals: "events" };

const byId = (id) => document.getElementById(id);
const made = new Map();
const lastOf = new Map();
let shown = null;
let showing = "";

for (const [name, [title, , inHeader]] of Object.entries(VIEWS)) {
  if (inHeader) byId("tabs").append(el("a", { href: `#/${name}`, text: title, data: { view: name } }));
}

/** The links that lead away from the page: to the documentation of this view, and to Grafana. */
const elsewhere = ["Docs", "Grafana"].map((text) => el("a", { class: "elsewhere", target: "_blank", rel: "noreferrer", hidden: true, text }));
byId("tabs").append(...elsewhere);

function linkElsewhere() {
  const view = address.view in VIEWS ? address.view : "overview";
  const addresses = [documentation.about(view), documentation.grafana];
  elsewhere.forEach((anchor, at) => {
    anchor.hidden = !addresses[at];
    if (addresses[at]) anchor.href = addresses[at];
  });
}

/** Show the view that the address names. The link of a view leads back to where the view was left. */
async function route() {
  const wanted = address.view in VIEWS ? address.view : "overview";
  lastOf.set(wanted, location.hash);
  linkElsewhere();
  for (const tab of byId("tabs").querySelectorAll("[data-view]")) {
    const { view } = tab.dataset;
    if (view === (PARENTS[wanted] ?? wanted)) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
    if (tab.hasAttribute("aria-current")) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    tab.href = view === wanted ? address.href(view) : withoutDetails(lastOf.get(view) ?? address.href(view));
  }
  if (wanted === showing) {
    made.get(wanted)?.follow?.();
    return;
  }
  showing = wanted;
  byId("main").setAttribute("aria-busy", "true");
  const [title, load] = VIEWS[wanted];
  document.title = `${title} · Kornel`;
  if (!made.has(wanted)) {
    try {
      const Kind = await load();
      if (!made.has(wanted)) made.set(wanted, new Kind());
    } catch (error) {
      console.error(error);
      byId("main").replaceChildren(blank("This part of the page could not be fetched", "The core may have been restarted with another version: reload the page."));
      byId("main").removeAttribute("aria-busy");
      showing = "";
      return;
    }
  }
  if (showing !== wanted) return;
  shown?.hide();
  shown = made.get(wanted);
  byId("main").replaceChildren(shown.root);
  shown.show();
  byId("main").removeAttribute("aria-busy");
}

function withoutDetails(hash) {
  const [path, query = ""] = hash.split("?");
  const parameters = new URLSearchParams(query);
  parameters.delete("details");
  return parameters.size ? `${path}?${parameters}` : path;
}

/** Returns the sentence for the page of a core that does not lead. */
function saidOfStanding({ role, behind, leader }) {
  const where = leader ? `The leader is at ${leader}.` : "No core leads at the moment.";
  if (role === "unfit") return `This core never leads, because its state differs from the leader's: do not trust what you see here. ${where}`;
  return `This core stands by: what you see may be ${behind} s old, and nothing can be changed here. ${where}`;
}

function showConnection() {
  const words = { wait: "Connecting", live: "Live", lost: "Reconnecting", refused: "Token needed", denied: "No access" };
  const state = byId("connection");
  state.dataset.state = api.state;
  const standing = api.state === "live" ? api.standing : null;
  setText(state.querySelector("span"), standing ? "Standby" : words[api.state]);
  const notice = byId("notice");
  notice.hidden = (api.state === "live" && !standing) || api.state === "wait";
  notice.dataset.tone = api.state === "lost" || standing?.role === "unfit" ? "bad" : "warn";
  setText(
    notice,
    standing
      ? saidOfStanding(standing)
      : api.state === "lost"
      ? "The core does not answer. You see the last data it sent; the page continues by itself when the core answers."
      : `${api.state === "denied" ? "You may not see this" : "The core wants to know who you are"}: ${api.message}`,
  );
  if (api.state === "refused" && !byId("token-dialog").open && !dismissed) openTokenDialog(api.token ? `The core does not accept this token: ${api.message}.` : "");
}

let dismissed = false;

/** Ask for a token. `problem`: what is wrong with the last one. */
function openTokenDialog(problem = "") {
  byId("token-field").value = "";
  byId("token-forget").hidden = !api.token;
  byId("token-problem").hidden = !problem;
  setText(byId("token-problem"), problem);
  byId("token-field").setAttribute("aria-invalid", String(Boolean(problem)));
  byId("token-dialog").showModal();
}

function useToken(token) {
  api.token = token;
  dismissed = false;
  byId("token-dialog").close();
  rights.forget();
  documentation.load();
  cluster.poller.now();
  for (const tail of [events, preemptions]) tail.poller.wake();
  shown?.hide();
  shown?.show();
  refreshDetails();
}

byId("token-button").addEventListener("click", () => openTokenDialog());
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
    // It is kept as long as the page is open.
  }
  labelTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", labelTheme);

byId("lookup").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("lookup-key").value.trim();
  if (text) address.go("search", { text });
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea, dialog");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    byId("lookup-key").focus();
  }
});

byId("partition").addEventListener("change", (event) => {
  address.set({ partition: event.target.value });
  cluster.choose(event.target.value);
});
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

api.addEventListener("state", showConnection);
documentation.addEventListener("change", linkElsewhere);
address.addEventListener("change", route);
labelTheme();
cluster.poller.start();
followHolds(byId("holds"));
documentation.load();
followDetails();
route();
