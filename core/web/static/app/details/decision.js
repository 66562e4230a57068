// One decision to preempt, or one plan for all members of a gang.

import { blank, el } from "../dom.js";
import { outcomeBadge } from "../decisions.js";
import { facts, kindMark, section, victimTable } from "../explain.js";
import { memberWords, planOf, victimGroups } from "../gang_plans.js";
import { kinds } from "../kinds.js";
import { lawText } from "../laws.js";
import { link } from "../links.js";
import { pastDecisions } from "../past_preemptions.js";
import { preemptions } from "../tails.js";
import { counted, moment, readable } from "../units.js";

export async function decision(id) {
  await kinds.load();
  const one = id.includes(".") ? pastDecisions.find(id) : (await preemptions.find(Number(id))) && planOf(Number(id), preemptions.entries);
  if (!one) return [blank("Not remembered", "The core remembers the last 10,000 decisions since it started; the history below has older ones.")];
  const [reason, alternatives] = (one.detail ?? "").split("; weighed: ");
  const { gang } = one;
  return [
    facts([
      ["Outcome", outcomeBadge(one)],
      ["Kind", kindMark(one.kind)],
      ["When", moment(one.time)],
      ["For", gang ? "a gang as a whole" : one.allocationKey ? link("ask", one.allocationKey) : "its queue"],
      ["Application", one.applicationID && link("application", one.applicationID)],
      ["Members", gang && memberWords(one)],
      ["Domain", gang?.domains],
      ["Queue", one.queueName && link("queue", one.queueName)],
      ["Node", !gang && one.nodeID && link("node", one.nodeID)],
      ["Law", lawText(one.law)],
      ["Reason", readable(reason)],
      ["Alternatives", alternatives],
      ["Called off", gang?.calledOff && `${moment(gang.calledOff.time)}: ${readable(gang.calledOff.detail)}`],
    ]),
    gang && section("Places by preemption", memberTable(gang.decisions)),
    one.victims?.length > 0 && section(`Victims: ${counted(one.victims.length, "allocation")}`, ...victimParts(one)),
  ];
}

function memberTable(decisions) {
  const rows = decisions.map((member) =>
    el("tr", {}, el("td", {}, link("ask", member.allocationKey)), el("td", {}, link("node", member.nodeID)), el("td", { class: "number", text: String(member.victims?.length ?? 0) })),
  );
  return el("table", {}, el("thead", {}, el("tr", {}, el("th", { text: "Member" }), el("th", { text: "Node" }), el("th", { class: "number", text: "Victims" }))), el("tbody", {}, ...rows));
}

/** Shows the victims in one table; those of a plan for a gang, and gangs that leave as a whole, folded by application. */
function victimParts(one) {
  const groups = victimGroups(one);
  if (!one.gang && !groups.some((group) => group.whole)) return [victimTable(one.victims)];
  return groups.map(({ application, whole, victims }) =>
    el(
      "details",
      { class: "group" },
      el("summary", {}, el("strong", { text: whole ? `gang ${application}` : application || "no application" }), el("span", { class: "muted", text: whole ? `leaves as a whole: ${counted(victims.length, "member")}` : counted(victims.length, "allocation") })),
      el("div", { class: "group-body" }, victimTable(victims)),
    ),
  );
}
