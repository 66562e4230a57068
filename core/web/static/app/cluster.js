// Keeps the partitions up to date, because the header and every view need them.

import { address } from "./address.js";
import { api } from "./api.js";
import { Poller } from "./poller.js";
import { typesOf } from "./units.js";

const KEPT_MS = 10 * 60_000;
/** The samples of the stored history for that time: it has one a minute. */
const POINTS = 20;

/** Emits `change` with each answer, and `partition` when another partition is chosen. */
class Cluster extends EventTarget {
  partitions = null;
  name = "";
  samples = [];

  constructor() {
    super();
    this.poller = new Poller(async (signal) => this.#take(await api.get("partitions", signal)), 1_000);
  }

  /** The chosen partition; null: there is none. */
  get partition() {
    return this.partitions?.find((one) => one.name === this.name) ?? null;
  }

  /** Resolves when the partitions are known. */
  async ready() {
    while (!this.name) await new Promise((settle) => this.addEventListener("change", settle, { once: true }));
  }

  choose(name) {
    if (name === this.name) return;
    this.name = name;
    this.samples = [];
    this.#recall(name).catch(() => {});
    this.dispatchEvent(new Event("partition"));
    this.dispatchEvent(new Event("change"));
  }

  #take(partitions) {
    this.partitions = partitions;
    const names = partitions.map((one) => one.name);
    const asked = address.get("partition");
    if (names.includes(asked)) this.choose(asked);
    else if (!names.includes(this.name)) this.choose(names.includes("default") ? "default" : (names[0] ?? ""));
    this.#sample();
    this.dispatchEvent(new Event("change"));
  }

  /** Begins the samples with those of the stored history, so that a reload loses nothing. */
  async #recall(name) {
    const { enabled } = await api.call("HistoryService/GetHistoryStatus");
    if (!enabled) return;
    const since = Date.now() - KEPT_MS;
    const { points } = await api.call("HistoryService/ListUsage", { partition: name, sinceNs: `${since}000000`, untilNs: `${Date.now()}000000`, pointCount: POINTS });
    if (name !== this.name) return;
    const before = this.samples[0]?.at ?? Infinity;
    this.samples.unshift(...points.map((point) => ({ at: point.atNs / 1e6, shares: sharesOf(point.max, point.used) })).filter(({ at }) => at < before));
    this.dispatchEvent(new Event("change"));
  }

  #sample() {
    const { capacity, usedCapacity } = this.partition?.capacity ?? {};
    const now = Date.now();
    this.samples.push({ at: now, shares: sharesOf(capacity, usedCapacity) });
    while (this.samples[0].at < now - KEPT_MS) this.samples.shift();
  }
}

function sharesOf(capacity = {}, used = {}) {
  const shares = {};
  for (const type of typesOf(capacity)) if (capacity[type] > 0) shares[type] = (used[type] ?? 0) / capacity[type];
  return shares;
}

export const cluster = new Cluster();

/** Returns a path below the chosen partition. */
export const inPartition = (path) => `partition/${encodeURIComponent(cluster.name)}/${path}`;
