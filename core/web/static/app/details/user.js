// A user or a group: what it uses in each queue, and what it may use at most.

import { amountTable } from "../amount_table.js";
import { address } from "../address.js";
import { api, twice } from "../api.js";
import { inPartition } from "../cluster.js";
import { el } from "../dom.js";
import { facts, section } from "../explain.js";
import { link } from "../links.js";
import { counted } from "../units.js";

const NAMED = 20;

export const user = (name) => usage("user", name);
export const group = (name) => usage("group", name);

async function usage(kind, name) {
  const found = await api.get(inPartition(`usage/${kind}/${twice(name)}`));
  const groups = [...new Set(Object.values(found.groups ?? {}))];
  const applications = [...new Set(all(found.queues).flatMap((one) => one.runningApplications ?? []))].sort();
  return [
    facts([
      ["Counted for", groups.length > 0 && el("span", {}, ...groups.flatMap((one, at) => [at ? ", " : "", link("group", one)]))],
      ["Applications", `${counted(applications.length, "application")} with allocations`],
    ]),
    ...all(found.queues)
      .filter((one) => one.maxResources || one.maxApplications || !one.children)
      .map((one) =>
        section(
          one.queuePath,
          facts([
            ["Queue", link("queue", one.queuePath)],
            ["Applications", `${counted((one.runningApplications ?? []).length, "application")}${one.maxApplications ? ` of at most ${one.maxApplications}` : ""}`],
          ]),
          amountTable({ Used: one.resourceUsage, "At most": one.maxResources }, (type) => ({ used: one.resourceUsage?.[type] ?? 0, whole: one.maxResources?.[type] ?? one.resourceUsage?.[type] ?? 0 })),
        ),
      ),
    applications.length > 0 && section("Applications", el("ul", { class: "links" }, ...applications.slice(0, NAMED).map((id) => el("li", {}, link("application", id))))),
    kind === "user" && el("p", {}, el("a", { href: address.href("applications", { q: name }), text: "All applications of this user" })),
  ];
}

/** Returns the usage in a queue and in all queues below it, as one list. */
const all = (one) => [one, ...(one.children ?? []).flatMap(all)];
