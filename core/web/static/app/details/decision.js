// One decision to preempt.

import { blank } from "../dom.js";
import { outcomeBadge } from "../decisions.js";
import { facts, kindMark, section, victimTable } from "../explain.js";
import { kinds } from "../kinds.js";
import { lawText } from "../laws.js";
import { link } from "../links.js";
import { pastDecisions } from "../past_preemptions.js";
import { preemptions } from "../tails.js";
import { counted, moment, readable } from "../units.js";

export async function decision(id) {
  await kinds.load();
  const one = id.includes(".") ? pastDecisions.find(id) : await preemptions.find(Number(id));
  if (!one) return [blank("Not remembered", "The core remembers the last 10,000 decisions since it started; the history below has older ones.")];
  const [reason, alternatives] = (one.detail ?? "").split("; weighed: ");
  return [
    facts([
      ["Outcome", outcomeBadge(one)],
      ["Kind", kindMark(one.kind)],
      ["When", moment(one.time)],
      ["For", one.allocationKey ? link("ask", one.allocationKey) : "its queue"],
      ["Application", one.applicationID && link("application", one.applicationID)],
      ["Queue", one.queueName && link("queue", one.queueName)],
      ["Node", one.nodeID && link("node", one.nodeID)],
      ["Law", lawText(one.law)],
      ["Reason", readable(reason)],
      ["Alternatives", alternatives],
    ]),
    one.victims && section(`Victims: ${counted(one.victims.length, "allocation")}`, victimTable(one.victims)),
  ];
}
