// Describes the results of what-ifs and of previews of configurations in words.

import { el } from "./dom.js";
import { badge, facts, section, victimTable } from "./explain.js";
import { lawText } from "./laws.js";
import { link } from "./links.js";
import { amount, amounts, clock, count, counted, nameOf, readable, span, words } from "./units.js";
import { meaningOf, wordLink } from "./word_links.js";

const SHOWN = 50;

/** The most kinds of waiting asks among which those that wait anyway are shown. */
const MOST_WAITING = 10;

const victimsOf = (found) => found.victims.map((one) => ({ allocationKey: one.key, queueName: one.queue, nodeID: one.nodeId, resource: one.resources, user: one.user, priority: one.priority, originator: one.originator }));

/** Shows a table of the first rows, and how many more there are. */
function shortTable(heads, rows, numbers = []) {
  const left = rows.length - SHOWN;
  const head = el("tr", {}, ...heads.map((text, at) => el("th", { scope: "col", class: numbers.includes(at) ? "number" : null, text })));
  const body = rows.slice(0, SHOWN).map((cells) => el("tr", {}, ...cells.map((cell, at) => el("td", { class: numbers.includes(at) ? "number" : "wraps" }, cell ?? "–"))));
  return el("div", { class: "table-scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)), left > 0 && el("p", { class: "muted", text: `and ${count(left)} more` }));
}

/** Shows sums by queue, user and application, where these are several. `counted`: lists of messages by column. */
function sumTables(counted) {
  const columns = Object.keys(counted);
  const tables = ["queue", "user", "applicationId"].map((by) => {
    const sums = new Map();
    for (const column of columns)
      for (const one of counted[column]) {
        const sum = sums.get(one[by]) ?? { total: 0 };
        sums.set(one[by], sum);
        sum[column] = (sum[column] ?? 0) + (one.askCount ?? 1);
        sum.total += one.askCount ?? 1;
      }
    const kind = by === "applicationId" ? "application" : by;
    const rows = [...sums].sort(([, one], [, other]) => other.total - one.total);
    return rows.length > 1 && shortTable([words(kind), ...columns], rows.map(([name, sum]) => [named(name, kind), ...columns.map((column) => count(sum[column]))]), columns.map((_, at) => at + 1));
  });
  return tables.some(Boolean) && section("By queue, user and application", ...tables);
}

/** Returns everybody who would have to leave once, however often named. */
const allLeavers = (lists) => [...new Map(lists.flatMap((one) => one.victims).map((victim) => [victim.key, victim])).values()];

/** Shows the answer to a what-if: the verdict, then the asks that are placed, the allocations that have to leave, and the
    asks that wait. */
export function forecastReport(found) {
  if (found.rejected) return [el("p", { class: "verdict bad", text: `It would be rejected: ${found.rejected}` })];
  const leaving = allLeavers([...found.preemptions, ...found.enforcements]);
  const victims = leaving.length;
  const waits = found.waiting.filter((one) => !one.already);
  const [waiting, all] = [waits, found.waiting].map((ones) => ones.reduce((sum, one) => sum + one.askCount, 0));
  const still = all - waiting;
  const anyway = found.waiting.length > MOST_WAITING ? [] : found.waiting.filter((one) => one.already);
  const verdict = [
    found.placed.length ? `${counted(found.placed.length, "ask")} would be placed at once` : "nothing would be placed at once",
    victims ? `${counted(victims, "allocation")} would have to leave` : "no allocation would have to leave",
    waiting ? `${counted(waiting, "ask")} would wait` : "",
    still ? `${counted(still, waiting ? "more ask" : "ask")} would go on waiting` : "",
  ].filter(Boolean);
  const sentence = verdict.join(", ");
  return [
    el("p", { class: "verdict", text: `${sentence.charAt(0).toUpperCase()}${sentence.slice(1)}.` }),
    ...found.notes.map((note) => el("p", { class: "muted", text: note })),
    !found.complete && el("p", { class: "muted", text: "The answer is incomplete: not everything was examined." }),
    sumTables({ Placed: found.placed, Preempt: found.preemptions, Wait: waits, Leave: leaving }),
    found.position > 0 && el("p", { text: `It would be number ${count(found.position)} in line.` }),
    found.displaced.length > 0 && section(`Would have to be placed again: ${counted(found.displaced.length, "allocation")}`, el("p", {}, ...found.displaced.slice(0, SHOWN).flatMap((key, at) => [at ? ", " : "", link("ask", key)]))),
    found.enforcements.length > 0 &&
      section(
        "Queues that would hold more than their max",
        ...found.enforcements.map((one) =>
          el(
            "div",
            { class: "group-body" },
            facts([
              ["Queue", link("queue", one.queue)],
              ["Above by", amounts(one.excess)],
              ["Not before", one.notBeforeNs === undefined ? "never: nothing enforces it" : clock(one.notBeforeNs)],
              ["Would stay above by", amounts(one.unmet)],
            ]),
            one.victims.length > 0 && victimTable(victimsOf(one)),
          ),
        ),
      ),
    found.preemptions.length > 0 &&
      section(
        "Which allocations would have to leave, and for which asks",
        ...found.preemptions.slice(0, SHOWN).map((one) =>
          el("div", { class: "group-body" }, facts([["For", named(one.key)], ["Queue", link("queue", one.queue)], ["On node", link("node", one.nodeId)], ["Kind", words(one.kind)], ["Not before", one.notBeforeNs ? clock(one.notBeforeNs) : ""]]), one.victims.length ? victimTable(victimsOf(one)) : el("p", { class: "muted", text: "It finds room there. It waits for the others of its gang." })),
        ),
      ),
    found.placed.length > 0 && section("Would be placed", shortTable(["Ask", "Application", "Queue", "Node"], found.placed.map((one) => [named(one.key), named(one.applicationId, "application"), link("queue", one.queue), link("node", one.nodeId)]))),
    waits.length > 0 && section("Would wait", waitTable(waits)),
    anyway.length > 0 && section("Would go on waiting", waitTable(anyway)),
  ].filter(Boolean);
}

const waitTable = (waits) => shortTable(["Ask", "Queue", "Asks", "Because", "Preemption"], waits.map((one) => [named(one.key), link("queue", one.queue), count(one.askCount), wordFirst("waiting", one.reason), wordFirst("outcome", one.preemption)]), [2]);

/** Shows a text of the core, which may begin with a word that is explained elsewhere. */
function wordFirst(group, text) {
  const [word, rest] = /^([^\s:]*)(.*)$/s.exec(text ?? "").slice(1);
  if (!meaningOf(group, word) && !/^[a-z]+(-[a-z]+)+$/.test(word)) return lawText(readable(text));
  return el("span", {}, wordLink(group, word), readable(rest));
}

/** Supposed objects cannot be looked up. */
const named = (key, kind = "ask") => (!key || key.startsWith("what-if") ? el("span", { class: "mono", text: key || "–" }) : link(kind, key));

/** Shows what a configuration would change on the running core. */
export function impactReport(found) {
  if (found.refusals.length) return [el("p", { class: "verdict bad", text: "It would be refused:" }), el("ul", { class: "bullets" }, ...found.refusals.map((text) => el("li", { text })))];
  if (!found.changed) return [el("p", { class: "verdict", text: "It says the same as the configuration in force." })];
  const losers = [...found.enforcements.map((one) => one.path), ...found.queues.filter((one) => ["removed", "drained"].includes(one.kind)).map((one) => one.path)];
  const settings = (list) => el("span", {}, ...list.flatMap(({ name, before, after }, at) => [at ? "; " : "", el("span", { class: "muted", text: `${name} ` }), before && el("del", { text: before }), " ", el("ins", { text: after || "not set" })]).filter(Boolean));
  return [
    el("p", { class: "verdict", text: `${counted(found.queues.length, "queue")} would change${losers.length ? `; ${counted(new Set(losers).size, "queue")} would lose` : "; no queue would lose anything"}.` }),
    found.partitions.length > 0 && section("Partitions", shortTable(["Partition", "What", "Applications"], found.partitions.map((one) => [one.name, one.added ? "would be created" : one.removed ? "would be removed, with everything in it" : settings(one.settings), count(one.applicationCount)]), [2])),
    found.queues.length > 0 && section("Queues", shortTable(["Queue", "What", "Settings", "Applications"], found.queues.map((one) => [one.kind === "added" ? el("span", { class: "mono", text: one.path }) : link("queue", one.path), badge(one.kind, { removed: "bad", drained: "warn", added: "good" }[one.kind]), settings(one.settings), count(one.applicationCount)]), [3])),
    sumTables({ "Would leave": allLeavers(found.enforcements) }),
    found.enforcements.length > 0 && section("Which allocations would leave, and when", shortTable(["Queue", "Above its max", "Gives back", "Who", "Stays above", "Not before"], found.enforcements.map((one) => [link("queue", one.path), amounts(one.amounts), amounts(one.freed), one.victims.length ? counted(one.victims.length, "allocation") : "nobody", Object.keys(one.unmet).length ? el("span", {}, amounts(one.unmet), `: ${one.reasons.join("; ")}`) : "", one.delayNs ? `${span(one.delayNs / 1e6)} after it takes effect` : "at once"])), ...found.enforcements.filter((one) => one.victims.length).map((one) => victimTable(victimsOf(one)))),
    found.quotaExcesses.length > 0 && section("Queues above their max", shortTable(["Queue", "Type", "Uses", "Would be allowed", ""], found.quotaExcesses.map((one) => [link("queue", one.path), nameOf(one.type), amount(one.type, one.used), amount(one.type, one.max), one.already ? "is already" : ""]), [2, 3])),
    found.limitExcesses.length > 0 && section("Users and groups above their limit", shortTable(["Who", "Queue", "Type", "Uses", "Would be allowed"], found.limitExcesses.map((one) => [link(one.kind, one.name), link("queue", one.path), one.type ? nameOf(one.type) : "applications", one.type ? amount(one.type, one.used) : count(one.used), one.type ? amount(one.type, one.limit) : count(one.limit)]), [3, 4])),
    found.unplacedApplications.length > 0 && section("Applications that would be rejected if they were submitted again", shortTable(["Application", "Queue", "Because"], found.unplacedApplications.map((one) => [link("application", one.applicationId), link("queue", one.queue), one.reason]))),
  ].filter(Boolean);
}
