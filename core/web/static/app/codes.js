// Numbers of event records as words.

export const TYPES = { 1: "request", 2: "application", 3: "node", 4: "queue", 5: "user" };
export const CHANGES = { 0: "", 1: "set", 2: "added", 3: "removed" };
export const DETAILS = {
  100: "cancelled", 101: "allocated", 102: "timed out",
  200: "allocation", 201: "ask", 202: "rejected", 203: "new", 204: "accepted", 206: "running", 207: "completing",
  208: "completed", 209: "failing", 210: "failed", 211: "resuming", 212: "expired", 213: "cannot run: queue",
  214: "may run: queue", 215: "cannot run: quota", 216: "may run: quota",
  300: "decommissioned", 302: "schedulable", 303: "allocation", 304: "capacity", 305: "occupied", 306: "reservation",
  400: "configured", 401: "dynamic", 402: "type", 403: "max", 404: "guaranteed", 405: "application", 406: "allocation",
  407: "preemption",
  500: "cancelled", 501: "preempted", 502: "timed out", 503: "replaced", 504: "node removed",
  600: "limit", 601: "group limit", 602: "application", 603: "usage", 604: "group usage",
};

/** Returns how good or bad a state or verdict is. */
export function tone(word) {
  if (["Running", "Active", "Allocated", "would-help", "not-needed", "Completed"].includes(word)) return "good";
  if (["Accepted", "New", "under-way", "Completing", "Held", "Reserved"].includes(word)) return "accent";
  if (["Failed", "Failing", "Rejected", "Stopped"].includes(word)) return "bad";
  if (["Pending", "forbidden", "no-victims", "Draining", "Expired", "Resuming"].includes(word)) return "warn";
  return "";
}
