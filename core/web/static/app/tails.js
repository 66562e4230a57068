// Fetches events and decisions to preempt by number, and keeps them for a while.

import { api } from "./api.js";
import { kinds } from "./kinds.js";
import { Poller } from "./poller.js";

const EVENTS_KEPT = 5_000;
const EVENTS_AT_FIRST = 500;
const EVENTS_AT_ONCE = 1_000;
const FURTHEST_BEHIND = 3_000;
const DECISIONS_KEPT = 2_000;

/** Emits `more`; `detail` is the number of new entries. `entries`: the newest first. */
class Tail extends EventTarget {
  entries = [];
  instance = "";
  problem = "";
  #wanted = 0;

  constructor(every) {
    super();
    this.poller = new Poller(async (signal) => {
      try {
        await this.fetch(signal);
        this.#say("");
      } catch (error) {
        if (!signal.aborted) this.#say(error.message);
        throw error;
      }
    }, every);
  }

  /** Keep fetching until `release` has been called as often. */
  hold() {
    this.#wanted += 1;
    this.poller.start();
  }

  release() {
    this.#wanted -= 1;
    if (!this.#wanted) this.poller.stop();
  }

  restart() {
    this.entries = [];
    this.instance = "";
    this.tell(0);
    if (this.#wanted) this.poller.now();
  }

  tell(grown) {
    this.dispatchEvent(new CustomEvent("more", { detail: grown }));
  }

  /** Returns the entry with a number, once the entries are known; null: there is none. */
  async find(id) {
    if (!this.instance) {
      this.hold();
      await new Promise((settle) => this.addEventListener("more", settle, { once: true }));
      this.release();
    }
    return this.entries.find((entry) => entry.id === id) ?? null;
  }

  add(oldestFirst, most) {
    if (!oldestFirst.length) return;
    this.entries = [...oldestFirst.reverse(), ...this.entries].slice(0, most);
    this.tell(oldestFirst.length);
  }

  #say(problem) {
    if (problem === this.problem) return;
    this.problem = problem;
    this.tell(0);
  }
}

class EventTail extends Tail {
  skipped = 0;
  perSecond = 0;
  #next = null;
  #last = null;

  async fetch(signal) {
    if (this.#next === null || !this.instance) {
      const head = await api.get("events/batch?start=0&count=1", signal);
      this.instance = head.InstanceUUID;
      this.skipped = 0;
      this.#last = null;
      this.#next = Math.max(head.LowestID, head.HighestID - EVENTS_AT_FIRST + 1);
    }
    const batch = await api.get(`events/batch?start=${this.#next}&count=${EVENTS_AT_ONCE}`, signal);
    if (batch.InstanceUUID !== this.instance) {
      this.entries = [];
      this.instance = "";
      return;
    }
    this.#pace(batch.HighestID);
    const records = batch.EventRecords ?? [];
    let number = this.#next;
    this.#next += records.length;
    // A reader who follows events wants to see the present ones, not all: if the page is too far behind, it goes on near
    // the end.
    const nearest = Math.max(batch.LowestID, batch.HighestID - EVENTS_AT_ONCE + 1);
    if (this.#next < batch.LowestID || batch.HighestID - this.#next > FURTHEST_BEHIND) {
      this.skipped += nearest - this.#next;
      this.#next = nearest;
    }
    for (const record of records) {
      record.id = number;
      number += 1;
    }
    this.add(records, EVENTS_KEPT);
  }

  #pace(highest) {
    const now = performance.now();
    if (this.#last) this.perSecond = Math.max(0, ((highest - this.#last.highest) * 1000) / (now - this.#last.now));
    this.#last = { highest, now };
  }
}

class PreemptionTail extends Tail {
  partition = "";
  #next = null;

  async fetch(signal) {
    if (!this.partition) return;
    await kinds.load(signal);
    const start = this.instance ? `?start=${this.#next}` : "";
    const batch = await api.get(`partition/${encodeURIComponent(this.partition)}/preemptions${start}`, signal);
    if (this.instance && batch.InstanceUUID !== this.instance) {
      this.entries = [];
      this.instance = "";
      kinds.forget();
      return;
    }
    this.instance = batch.InstanceUUID;
    this.#next = batch.nextID;
    this.add(batch.preemptions, DECISIONS_KEPT);
  }
}

export const events = new EventTail(1_000);
export const preemptions = new PreemptionTail(1_000);
