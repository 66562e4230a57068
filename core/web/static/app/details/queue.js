// A queue: amounts of every type, what preemption and order make of it, and where to go from there.

import { address } from "../address.js";
import { amountTable } from "../amount_table.js";
import { api, twice } from "../api.js";
import { inPartition } from "../cluster.js";
import { el } from "../dom.js";
import { badge, facts, section } from "../explain.js";
import { lawText } from "../laws.js";
import { link } from "../links.js";
import { amounts, count, moment } from "../units.js";

/** The priority that the core gives for a queue in which nothing waits. */
const NO_PRIORITY = -(2 ** 31);

export async function queue(path) {
  const found = await api.get(inPartition(`queue/${twice(path)}`));
  const yes = (flag) => (flag ? "yes" : "no");
  const { guaranteedResource: guaranteed, maxResource: max, allocatedResource: used, pendingResource: pending } = found;
  const columns = { Used: used, Guaranteed: guaranteed, Max: max, Pending: pending, Leaving: found.preemptingResource, Headroom: found.headroom };
  const bar = (type) => ({ used: used?.[type] ?? 0, pending: pending?.[type] ?? 0, guaranteed: guaranteed?.[type] ?? null, whole: Math.max(max?.[type] ?? 0, used?.[type] ?? 0, guaranteed?.[type] ?? 0) });
  const above = found.aboveMax;
  return [
    facts([
      ["Status", badge(found.status)],
      ["Kind", `${found.isLeaf ? "leaf" : "parent"}, ${found.isManaged ? "configured" : "made by placement"}`],
      ["Parent", found.parent && link("queue", found.parent)],
      ["Applications", `${count(found.runningApps)} running${found.maxRunningApps ? `, at most ${count(found.maxRunningApps)}` : ""}`],
    ]),
    above &&
      section(
        "Above its max",
        facts([
          ["By", amounts(above.resource)],
          ["Since", above.since && moment(above.since)],
          ["Leaving", above.leaving && amounts(above.leaving)],
          ["Course", above.course],
          ["Kept by", above.protectedBy && lawText(above.protectedBy.join("; "))],
        ]),
      ),
    section("Amounts", amountTable(columns, bar)),
    section(
      "Preemption",
      facts([
        ["Allowed", yes(found.preemptionEnabled)],
        ["Fence", yes(found.isPreemptionFence)],
        ["Delay", found.preemptionDelay],
        ["Max lowered", found.isQuotaPreemptionRunning ? "being enforced" : ""],
        ["Quota delay", found.quotaPreemptionDelay === "0s" ? "" : found.quotaPreemptionDelay],
        ...(found.wastedWork ?? []).map((work) => [`Work lost, ${work.kind}`, `${amounts(work.resourceSeconds)}, times seconds`]),
      ]),
    ),
    section(
      "Order",
      facts([
        ["Policy", found.sortingPolicy],
        ["By priority", yes(found.prioritySorting)],
        ["Priority", found.currentPriority === undefined || found.currentPriority <= NO_PRIORITY ? "nothing waits" : count(found.currentPriority)],
        ["Offset", found.priorityOffset && String(found.priorityOffset)],
        ["Fence", found.isPriorityFence && "yes"],
      ]),
    ),
    found.properties && section("Properties", facts(Object.entries(found.properties).map(([name, value]) => [name, el("span", { class: "mono", text: value })]))),
    el(
      "ul",
      { class: "links" },
      ...[
        ["applications", { queue: path }, "Applications of this queue"],
        ["history", { queue: path }, "Its use over time"],
        ["preemption", { q: path }, "Preemptions that it took part in"],
        ["what-if", { suppose: "limits", queue: path }, "What if its limits were different?"],
      ].map(([view, parameters, text]) => el("li", {}, el("a", { href: address.href(view, parameters), text }))),
    ),
  ];
}
