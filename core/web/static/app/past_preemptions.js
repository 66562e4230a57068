// Decisions to preempt from the stored history, which has them for months. It has a record for each victim; here they are
// put together again, in the shape that the live ones have.

import { api } from "./api.js";
import { planOf } from "./gang_plans.js";

const PAGE = 1_000;
const MOST_RECORDS = 20_000;

class PastDecisions {
  #byId = new Map();

  /** Returns the decision with a number, with the whole plan if it is part of one for a gang; null: it was not read. */
  find(id) {
    const one = this.#byId.get(id);
    return one ? planOf(id, [...this.#byId.values()].filter((other) => other.applicationID === one.applicationID).sort((a, b) => b.time - a.time)) : null;
  }

  /** Returns the decisions from `sinceNs` to `untilNs`, the newest first. `cut`: there were more records than are read. */
  async load(sinceNs, untilNs, { queue = "" } = {}, signal = null) {
    const records = [];
    let token = "";
    do {
      const page = { sinceNs: String(Math.round(sinceNs)), untilNs: String(Math.round(untilNs)), pageSize: PAGE, pageToken: token };
      const answer = await api.call("HistoryService/ListPreemptions", { page, queue }, signal);
      records.push(...answer.preemptions);
      token = answer.nextPageToken;
    } while (token && records.length < MOST_RECORDS);
    return { decisions: this.#assemble(records), cut: Boolean(token) };
  }

  #assemble(records) {
    const decisions = new Map();
    for (const record of records) {
      const id = `${record.id.run}.${record.decision}`;
      let one = decisions.get(id);
      if (!one) {
        one = {
          id,
          time: record.atNs,
          kind: record.kind,
          outcome: record.outcome,
          detail: record.detail,
          allocationKey: record.forAllocationKey,
          applicationID: record.forApplicationId,
          queueName: record.forQueue,
          nodeID: record.nodeId,
          victims: [],
        };
        decisions.set(id, one);
      }
      const victim = record.victim;
      if (victim) one.victims.push({ allocationKey: victim.allocationKey, applicationID: victim.applicationId, queueName: victim.queue, nodeID: victim.nodeId, resource: victim.resources, user: victim.user, leftTime: victim.leftNs });
    }
    for (const [id, one] of decisions) this.#byId.set(id, one);
    return [...decisions.values()];
  }
}

export const pastDecisions = new PastDecisions();
