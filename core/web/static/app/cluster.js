// Keeps the partitions up to date, because the header and every view need them.

import { address } from "./address.js";
import { api } from "./api.js";
import { Poller } from "./poller.js";
import { typesOf } from "./units.js";

const KEPT_MS = 10 * 60_000;

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

  #sample() {
    const { capacity = {}, usedCapacity = {} } = this.partition?.capacity ?? {};
    const now = Date.now();
    const shares = {};
    for (const type of typesOf(capacity)) if (capacity[type] > 0) shares[type] = (usedCapacity[type] ?? 0) / capacity[type];
    this.samples.push({ at: now, shares });
    while (this.samples[0].at < now - KEPT_MS) this.samples.shift();
  }
}

export const cluster = new Cluster();

/** Returns a path below the chosen partition. */
export const inPartition = (path) => `partition/${encodeURIComponent(cluster.name)}/${path}`;
