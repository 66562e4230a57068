// Shows on every view which actions of operators are in force, and whether the resource manager is gone, because both
// affect all views.

import { api } from "./api.js";
import { el, reconcile, setAttribute, setText } from "./dom.js";
import { Poller } from "./poller.js";
import { address } from "./address.js";
import { count, counted, moment } from "./units.js";

const NAMED = 5;

/** Emits `change`. `manager`: the resource manager and its open streams; null: none is registered, or it is not known yet. */
class Holds extends EventTarget {
  manager = null;

  take({ manager }) {
    this.manager = manager ?? null;
    this.dispatchEvent(new Event("change"));
  }
}

export const holds = new Holds();

/** Keep the list `root` up to date; it is hidden while it is empty. */
export function followHolds(root) {
  const poller = new Poller(async (signal) => {
    const found = await api.get("scheduler/holds", signal);
    holds.take(found);
    draw(root, found);
  }, 2_000);
  poller.start();
}

function draw(root, { manager, rollback, drainedNodes }) {
  const told = [gone(manager), rolledBack(rollback), drained(drainedNodes)].filter(Boolean);
  root.hidden = !told.length;
  reconcile(
    root.firstElementChild,
    told,
    (one) => one.key,
    () => el("li"),
    (row, { tone, text }) => {
      setAttribute(row, "data-tone", tone);
      setText(row, text);
    },
  );
}

function gone(manager) {
  if (!manager?.gone) return null;
  const text = `${manager.rmID} is gone: it has had no open stream since ${moment(manager.noStreamSince)}. No decision reaches it, and nothing new starts.`;
  return { key: "gone", tone: "bad", text };
}

function rolledBack(rollback) {
  if (!rollback) return null;
  const { version, by, since, keptOut } = rollback;
  const kept = keptOut ? ` ${counted(keptOut, "text")} kept out since.` : "";
  const text = `The configuration was rolled back to version ${version} by ${by} at ${moment(since)}. It stays in force until another text is applied, or until kornel config rollback --undo.${kept}`;
  return { key: "rollback", tone: "warn", text };
}

function drained(nodes) {
  if (!nodes.length) return null;
  const named = nodes.slice(0, NAMED).map(({ nodeID, by }) => `${nodeID} (by ${by})`);
  const more = nodes.length > NAMED ? ` and ${count(nodes.length - NAMED)} more` : "";
  return { key: "drained", tone: "warn", text: `${counted(nodes.length, "node")} drained by operators: ${named.join(", ")}${more}.` };
}
