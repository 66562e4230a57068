// Finds the allocations of an application that has ended. The events of the stored history say when each allocation began
// and ended, and on which node.

import { api } from "./api.js";

const PAGE = 1_000;
const MOST_EVENTS = 6_000;
const MOST_NODES_ASKED = 40;
const APPLICATION = 2;
const NODE = 3;
const ADDED = 2;
const REMOVED = 3;
const ALLOCATION = 200;
const ENDINGS = { 500: "ended", 501: "preempted", 502: "timed out", 503: "replaced", 504: "its node was removed" };

/** Returns the allocations of `app`, a document of REST. `problem`: why there are none, or not all of them. */
export async function pastAllocations(app) {
  let status;
  try {
    status = await api.call("HistoryService/GetHistoryStatus");
  } catch (error) {
    return { allocations: [], problem: error.message };
  }
  if (!status.enabled) return { allocations: [], problem: "This core keeps no history, so its past allocations are not known." };
  const range = { sinceNs: before(app.submissionTime), untilNs: app.finishedTime ? after(app.finishedTime) : "0" };
  const events = await everyEvent({ type: APPLICATION, objectId: app.applicationID }, range, MOST_EVENTS);
  const found = new Map();
  for (const event of events.toReversed()) {
    if (!event.referenceId) continue;
    if (event.change === ADDED && event.detail === ALLOCATION) {
      found.set(`${event.referenceId}\n${event.atNs}`, { key: event.referenceId, placed: event.atNs, ended: 0, how: "", node: "", resource: event.resources });
    } else if (event.change === REMOVED && ENDINGS[event.detail]) {
      const one = [...found.values()].findLast((each) => each.key === event.referenceId && !each.ended) ?? { key: event.referenceId, placed: 0, node: "", resource: event.resources };
      Object.assign(one, { ended: event.atNs, how: ENDINGS[event.detail] });
      found.set(`${one.key}\n${one.placed}`, one);
    }
  }
  const allocations = [...found.values()];
  await Promise.all(allocations.slice(0, MOST_NODES_ASKED).map((one) => findNode(one, range)));
  return { allocations, problem: allocations.length ? "" : "The history has no allocation of this application." };
}

/** The node of an allocation is in an event about the node. */
async function findNode(one, range) {
  const [event] = await everyEvent({ type: NODE, referenceId: one.key }, range, 1);
  one.node = event?.objectId ?? "";
}

async function everyEvent(filter, range, most) {
  const events = [];
  let pageToken = "";
  do {
    const answer = await api.call("HistoryService/ListEvents", { ...filter, page: { ...range, pageSize: Math.min(PAGE, most), pageToken } });
    events.push(...answer.events);
    pageToken = answer.nextPageToken;
  } while (pageToken && events.length < most);
  return events;
}

const MARGIN_MS = 1_000;

const before = (ns) => (ns ? `${Math.floor(ns / 1e6) - MARGIN_MS}000000` : "0");

const after = (ns) => `${Math.ceil(ns / 1e6) + MARGIN_MS}000000`;
