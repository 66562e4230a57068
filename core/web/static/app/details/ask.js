// An ask, an allocation or one that is gone: why it waits, where it runs, or who took its room.

import { address } from "../address.js";
import { api } from "../api.js";
import { inPartition } from "../cluster.js";
import { blank, el } from "../dom.js";
import { askReport, lossReport, waitingReport, facts, badge } from "../explain.js";
import { kinds } from "../kinds.js";
import { link } from "../links.js";

export async function ask(key) {
  const [found] = await Promise.all([api.get(inPartition(`explain?key=${encodeURIComponent(key)}`)), kinds.load()]);
  if (found.ask) {
    const waits = found.ask.state === "Pending" || found.ask.state === "Reserved";
    const tryIt = waits && el("p", {}, el("a", { href: address.href("what-if", { suppose: "priority", key }), text: "What if its priority were different?" }));
    return [...askReport(found.ask), tryIt];
  }
  if (found.application) {
    return [facts([["Application", link("application", key)], ["State", badge(found.application.state)]]), ...waitingReport(found.application)];
  }
  return found.lost ? [lossReport(found.lost)] : [blank("Nothing to show")];
}
