// Describes decisions to preempt in words: which allocations leave, for which ask, and with what result.

import { el } from "./dom.js";
import { victimGroups } from "./gang_plans.js";
import { kinds } from "./kinds.js";
import { counted, words } from "./units.js";

/** Tells whether allocations really had to leave: notices, shadow decisions and withdrawals name victims too. */
export const taken = (one) => one.victims?.length > 0 && kinds.ending(one).leaves;

export function outcomeWord(one) {
  if (one.gang?.calledOff) return "Called off";
  return one.outcome === "TRIGGERED" ? "Preempted" : words(one.outcome);
}

export function outcomeBadge(one) {
  return el("span", { class: "badge", "data-tone": kinds.ending(one.gang?.calledOff ?? one).tone || null, text: outcomeWord(one) });
}

/** Returns one line about the allocations that leave. */
export function victimWords(one) {
  const victims = one.victims ?? [];
  if (!victims.length) return "nobody";
  const queues = [...new Set(victims.map((victim) => victim.queueName))];
  const groups = victimGroups(one);
  const first = victims.length === 1 ? victims[0].allocationKey : groups.length === 1 && groups[0].whole ? `gang ${groups[0].application}, all ${counted(victims.length, "member")}` : counted(victims.length, "allocation");
  return `${first} of ${queues.length === 1 ? queues[0] : counted(queues.length, "queue")}`;
}

/** Returns one line about the ask or queue for which they leave. */
export function servedWords(one) {
  if (one.gang) return `gang ${one.applicationID} of ${one.queueName}`;
  return one.allocationKey ? `${one.allocationKey} of ${one.queueName}` : one.queueName || "its queue";
}

/** Returns how much each queue took from each other one: pairs of queues, those with most victims first. */
export function sumsByQueue(decisions) {
  const pairs = new Map();
  for (const one of decisions) {
    for (const victim of one.victims ?? []) {
      const pair = `${one.queueName ?? ""}\n${victim.queueName}`;
      const sum = pairs.get(pair) ?? { taker: one.queueName ?? "", giver: victim.queueName, victims: 0, resource: {} };
      sum.victims += 1;
      for (const [type, value] of Object.entries(victim.resource ?? {})) sum.resource[type] = (sum.resource[type] ?? 0) + value;
      pairs.set(pair, sum);
    }
  }
  return [...pairs.values()].sort((a, b) => b.victims - a.victims);
}
