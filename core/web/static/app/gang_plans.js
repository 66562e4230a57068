// Puts the decisions of one plan for a gang together: the core records one for each member that victims make room for.

import { counted } from "./units.js";

const PLANNED = /^(?:plan (\d+): )?(\d+) members? of a gang get (other )?places(?: in ([^;]+))?/;
const NUMBERED = /^plan (\d+): /;
const WHOLE = /(?:^|; )gang (.+?) leaves as a whole: \d+ members?(?=;|$)/g;

/**
 * Returns *decisions*, the newest first, with a single entry for each plan for a gang. Its `gang` says how many members get
 * places, of how many of them a decision is known, in which domain, and how the plan was called off, if it was.
 */
export function joinPlans(decisions) {
  const plans = new Map();
  const calledOff = new Map();
  const found = [];
  for (const one of decisions) {
    const gang = `${one.kind} ${one.applicationID}`;
    const number = one.gangPlan ?? Number(NUMBERED.exec(one.detail ?? "")?.[1] ?? 0);
    if (one.outcome === "UNIT_CALLED_OFF") calledOff.set(gang, { one, number });
    const said = one.applicationID && one.outcome === "TRIGGERED" && PLANNED.exec(one.detail ?? "");
    if (!said) {
      found.push(one);
      continue;
    }
    const [, , members, mends, domains] = said;
    const name = `${one.time} ${gang} ${one.detail}`;
    let plan = plans.get(name);
    if (!plan) {
      plan = { ...one, victims: [], gang: { members: Number(members), mends: Boolean(mends), domains: domains ?? "", decisions: [], calledOff: endOf(calledOff.get(gang), number), number } };
      plans.set(name, plan);
      found.push(plan);
      // What came before the first plan belongs to an earlier one.
      if (!mends) calledOff.delete(gang);
    }
    plan.gang.decisions.push(one);
    plan.victims.push(...(one.victims ?? []));
  }
  return found;
}

/** Returns the decision that called off plan *number*, if *end* is that decision; plans of earlier versions have no number. */
const endOf = (end, number) => (end && (!number || !end.number || end.number === number) ? end.one : null);

/** Returns the entry of *decisions* that holds the decision with this number; null: there is none. */
export function planOf(id, decisions) {
  return joinPlans(decisions).find((one) => one.id === id || one.gang?.decisions.some((member) => member.id === id)) ?? null;
}

/** Returns one line about the members that get places: all of them, or as many as others make room for. */
export function memberWords(one) {
  const { members, decisions, mends } = one.gang;
  const preempting = decisions.filter((member) => member.victims?.length).length;
  const all = counted(members, "member");
  const plan = one.gang.number ? `plan ${one.gang.number}: ` : "";
  return `${plan}${mends ? `other places for ${all}` : all}${preempting < members ? `, ${preempting} of them by preemption` : ""}`;
}

/** Returns the applications whose gangs leave as a whole with the victims of a decision. */
export const wholeGangs = (one) => [...(one.detail ?? "").matchAll(WHOLE)].map(([, name]) => name);

/** Returns the victims of a decision by application, those that leave as a whole first. */
export function victimGroups(one) {
  const whole = new Set(wholeGangs(one));
  const groups = new Map();
  for (const victim of one.victims ?? []) {
    const group = groups.get(victim.applicationID) ?? { application: victim.applicationID, whole: whole.has(victim.applicationID), victims: [] };
    group.victims.push(victim);
    groups.set(victim.applicationID, group);
  }
  return [...groups.values()].sort((a, b) => b.whole - a.whole || b.victims.length - a.victims.length);
}
