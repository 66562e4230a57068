// Shows the queue configuration. It can be edited with the checker's marks, previewed and applied; earlier versions can be
// compared and put into force again.

import { address } from "../address.js";
import { api } from "../api.js";
import { changeButton } from "../changes.js";
import { DataTable } from "../data_table.js";
import { blank, el, setText, settled } from "../dom.js";
import { badge } from "../explain.js";
import { impactReport } from "../forecast.js";
import { lineDiff } from "../line_diff.js";
import { rights } from "../rights.js";
import { count, counted, moment, shortMoment, words } from "../units.js";

const AROUND = 3;
const HIDDEN = "[hidden]";
const NO_TEXT = { config: "", hasHidden: false, version: null };
const PAST = 200;

export class ConfigurationView {
  #inForce = null;
  #previewed = null;

  constructor() {
    this.gutter = el("div", { class: "gutter", "aria-hidden": "true" });
    this.text = el("textarea", { spellcheck: "false", autocomplete: "off", wrap: "off", "aria-label": "Queue configuration, YAML", "aria-describedby": "configuration-said", on: { input: () => this.#edited(), scroll: () => (this.gutter.scrollTop = this.text.scrollTop) } });
    this.said = el("span", { id: "configuration-said", class: "muted", role: "status" });
    this.problems = el("ul", { class: "problems", "aria-label": "Problems" });
    this.preview = el("div", { class: "stack", role: "status" });
    this.applying = el("div", {});
    this.version = el("span", { class: "muted" });
    this.diff = el("div", { class: "stack" });
    this.check = settled(() => this.#check(), 350);
    this.versions = new DataTable({
      label: "Versions",
      noun: "version",
      sort: "-when",
      height: 32,
      empty: "No configuration has been applied yet.",
      keyOf: (one) => one.id,
      open: (one) => address.set({ version: one.id }),
      columns: COLUMNS,
    });
    this.versions.root.classList.add("within");
    this.editor = el(
      "section",
      { class: "card editor-card", "aria-label": "Editor" },
      el("header", {}, el("h2", { text: "Text" }), this.version, el("span", { class: "space" }), el("button", { type: "button", text: "Back to what is in force", on: { click: () => this.#reset() } }), el("button", { type: "button", class: "primary", text: "Preview", on: { click: () => this.#preview() } })),
      el("div", { class: "editor" }, this.gutter, this.text),
      el("div", { class: "body stack" }, this.said, this.problems),
    );
    this.root = el(
      "div",
      { class: "view scrolls" },
      el("div", { class: "tools" }, el("h1", { text: "Configuration" }), el("span", { class: "muted", text: "A text applied here stays in force until the resource manager or the file supplies another." })),
      el("div", { class: "configuration" }, this.editor, el("section", { class: "card", "aria-label": "Preview" }, el("header", {}, el("h2", { text: "What it would change" })), el("div", { class: "body stack" }, this.preview, this.applying))),
      el("section", { class: "card", "aria-label": "Versions" }, el("header", { class: "tools" }, el("h2", { text: "Versions" }), el("span", { class: "space" }), ...this.versions.tools), this.versions.root),
      (this.diffCard = el("section", { class: "card", "aria-label": "Differences", hidden: true }, el("div", { class: "body stack" }, this.diff))),
    );
    rights.addEventListener("change", () => this.root.isConnected && this.show());
  }

  async show() {
    this.preview.replaceChildren(el("p", { class: "muted", text: "The preview shows which queues would lose, which would gain, and which allocations would leave when. After that, the text can be applied." }));
    try {
      await rights.load();
      await this.#load();
    } catch (error) {
      setText(this.said, error.message);
    }
    this.follow();
  }

  hide() {}

  follow() {
    this.versions.follow();
    this.#compare();
  }

  async #load() {
    const edited = this.#inForce !== null && this.text.value !== this.#inForce.config;
    const { versions } = await api.call("ConfigurationService/GetConfigurationHistory");
    this.#inForce = versions.some((one) => one.inForce) ? await api.call("ConfigurationService/GetConfiguration") : NO_TEXT;
    if (!edited) this.#put(this.#inForce.config);
    const { version } = this.#inForce;
    const what = !this.#inForce.config ? ": the built-in default, an empty text" : this.#inForce.hasHidden ? `. Its secrets are shown as ${HIDDEN}` : "";
    setText(this.version, version ? `version ${version.number} is in force${what}` : "no resource manager is registered");
    await this.#loadVersions(versions);
  }

  /** Load the versions of this run of the core, and those of earlier runs that the stored history has. */
  async #loadVersions(versions) {
    const own = versions.map((one) => ({ ...one, id: String(one.number), own: true }));
    let earlier = [];
    try {
      const status = await api.call("HistoryService/GetHistoryStatus");
      const { configurations } = status.enabled ? await api.call("HistoryService/ListConfigurations", { page: { pageSize: PAST } }) : { configurations: [] };
      earlier = configurations.filter((one) => one.id.run !== status.run).map((one) => ({ ...one.version, checksum: one.version.checksum, id: `${one.id.run}.${one.id.sequence}`, own: false }));
    } catch (error) {
      if (![403, 409, 503].includes(error.status)) throw error;
    }
    this.known = [...own, ...earlier];
    this.versions.show(this.known);
    this.versions.root.style.setProperty("--rows", Math.min(Math.max(this.known.length, 1), 10));
  }

  #put(text) {
    this.text.value = text;
    this.#edited();
  }

  #reset() {
    this.#put(this.#inForce?.config ?? "");
    this.text.focus();
  }

  #edited() {
    const lines = this.text.value.split("\n").length;
    while (this.gutter.childElementCount < lines) this.gutter.append(el("i", { text: String(this.gutter.childElementCount + 1) }));
    while (this.gutter.childElementCount > lines) this.gutter.lastChild.remove();
    this.applying.replaceChildren();
    this.#previewed = null;
    this.check();
  }

  async #check() {
    const text = this.text.value;
    let answer;
    try {
      answer = await api.call("ConfigurationService/ValidateConfiguration", { config: text });
    } catch (error) {
      return setText(this.said, error.message);
    }
    if (text !== this.text.value) return;
    const errors = answer.problems.filter((one) => one.severity === "error");
    const warnings = answer.problems.length - errors.length;
    setText(this.said, answer.problems.length ? [errors.length && counted(errors.length, "error"), warnings && counted(warnings, "warning")].filter(Boolean).join(", ") : "No errors were found.");
    for (const mark of this.gutter.querySelectorAll("[data-severity]")) delete mark.dataset.severity;
    for (const one of [...answer.problems].reverse()) {
      const mark = this.gutter.children[one.line - 1];
      if (mark && mark.dataset.severity !== "error") mark.dataset.severity = one.severity;
    }
    this.problems.replaceChildren(
      ...answer.problems.slice(0, 100).map((one) =>
        el(
          "li",
          { data: { severity: one.severity } },
          el("button", { type: "button", class: "plain", text: one.line ? `Line ${one.line}, column ${one.column}` : "The whole text", on: { click: () => this.#goTo(one) } }),
          el("span", { text: `${one.message}${one.expected ? ` (expected ${one.expected})` : ""}` }),
          one.path && el("span", { class: "mono faint", text: one.path }),
        ),
      ),
    );
  }

  #goTo({ line, column }) {
    const lines = this.text.value.split("\n");
    const start = lines.slice(0, Math.max(0, line - 1)).reduce((sum, one) => sum + one.length + 1, 0) + Math.max(0, column - 1);
    this.text.focus();
    this.text.setSelectionRange(start, Math.min(start + 1, this.text.value.length));
    this.text.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(this.text).lineHeight));
  }

  async #preview() {
    const text = this.text.value;
    this.applying.replaceChildren();
    this.preview.setAttribute("aria-busy", "true");
    try {
      const found = await api.call("ConfigurationService/PreviewConfiguration", { config: text });
      if (text !== this.text.value) return;
      this.preview.replaceChildren(...impactReport(found));
      this.#previewed = found;
      if (found.changed && !found.refusals.length) this.#offerApply(text, found);
    } catch (error) {
      this.preview.replaceChildren(el("p", { class: "verdict bad", text: error.status === 400 ? "The text cannot be used: see the marks beside it." : error.message }), error.status === 400 && el("p", { class: "muted", text: error.message }));
    } finally {
      this.preview.removeAttribute("aria-busy");
    }
  }

  #offerApply(text, found) {
    if (text.includes(HIDDEN)) {
      this.applying.replaceChildren(el("p", { class: "change-said", text: `The text has ${HIDDEN} where a secret was. Put the secret in its place to apply it.` }));
      return;
    }
    const leaving = found.enforcements.length ? ` ${counted(found.enforcements.length, "queue")} would have to give something back.` : "";
    this.applying.replaceChildren(
      changeButton({
        text: "Apply",
        primary: true,
        permission: "configure",
        question: `${counted(found.queues.length, "queue")} would change.${leaving} It stays in force until the resource manager or the file supplies another text.`,
        act: () => api.send("configuration", "application/x-yaml", text),
        done: (answer) => {
          this.preview.replaceChildren(el("p", { class: "verdict", text: answer.changed ? `Version ${answer.version} is in force.` : "This text was already in force." }), ...answer.warnings.map((warning) => el("p", { class: "muted", text: warning })));
          this.applying.replaceChildren();
          this.#inForce = null;
          this.#load();
        },
      }),
    );
  }

  /** Show the differences between a version and the one in force, or another one. */
  async #compare() {
    const id = address.get("version");
    this.diffCard.hidden = !id;
    if (!id || !this.known) return;
    const against = address.get("against");
    const wanted = `${id}\n${against}`;
    this.comparing = wanted;
    const version = this.known.find((one) => one.id === id);
    let content;
    try {
      if (!version) throw new Error("This version is no longer known.");
      const [shown, other] = await Promise.all([this.#textOf(id), against ? this.#textOf(against) : (this.#inForce ?? NO_TEXT)]);
      content = this.#drawDiff(version, shown, other, against);
    } catch (error) {
      content = [blank("Nothing to show", error.message)];
    }
    if (this.comparing === wanted) this.diff.replaceChildren(...content);
  }

  async #textOf(id) {
    if (!id.includes(".")) return api.call("ConfigurationService/GetConfiguration", { version: Number(id) });
    const { checksum, atNs } = this.known.find((one) => one.id === id) ?? {};
    const page = { pageSize: 1, sinceNs: String(BigInt(Math.floor(atNs / 1e3)) * 1000n - 1_000_000n) };
    const { configurations } = await api.call("HistoryService/ListConfigurations", { checksum, withConfig: true, page: checksum ? { pageSize: 1 } : page });
    return configurations[0] ?? NO_TEXT;
  }

  #drawDiff(version, shown, other, against) {
    const lines = lineDiff(shown.config, other.config);
    const changed = lines.filter((line) => line.sign !== " ").length;
    const choice = el("select", { "aria-label": "Compare with", on: { change: () => address.set({ against: choice.value }) } }, el("option", { value: "", text: "what is in force" }), ...this.known.filter((one) => one.id !== version.id).map((one) => el("option", { value: one.id, text: `version ${one.number}, ${shortMoment(one.atNs)}` })));
    choice.value = against;
    const roll =
      version.own &&
      version.applied &&
      !version.inForce &&
      changeButton({
        text: "Roll back to this version",
        permission: "configure",
        question: `Version ${version.number} takes effect again, as a new version. It stays in force until another text is applied or the rollback is undone.`,
        act: () => api.call("ConfigurationService/RollbackConfiguration", { version: version.number }),
        done: () => this.#load().then(() => this.follow()),
      });
    return [
      el("div", { class: "tools" }, el("h2", { text: `Version ${version.number} and` }), choice, el("span", { class: "muted", text: changed ? `${counted(changed, "line")} differ` : "no difference" }), el("span", { class: "space" }), el("button", { type: "button", text: "Edit this text", on: { click: () => this.#edit(shown.config) } }), el("button", { type: "button", text: "Close", on: { click: () => address.set({ version: "", against: "" }) } })),
      version.problems?.length > 0 && el("ul", { class: "problems" }, ...version.problems.map((one) => el("li", { data: { severity: one.severity } }, el("span", { text: `Line ${one.line}: ${one.message}` })))),
      version.reason && el("p", { class: "verdict bad", text: `This version was refused: ${version.reason}` }),
      version.note && el("p", { class: "muted", text: version.note }),
      (shown.hasHidden || other.hasHidden) && el("p", { class: "muted", text: `Secrets are shown as ${HIDDEN}, so differences between them cannot be seen.` }),
      roll,
      el("pre", { class: "diff", tabindex: "0", "aria-label": "Differences" }, ...folded(lines)),
    ].filter(Boolean);
  }

  #edit(text) {
    this.#put(text);
    this.text.focus();
    this.editor.scrollIntoView({ block: "start" });
  }
}

/** Shows the changed lines with some lines around them; of the others, only the number. */
function folded(lines) {
  const near = lines.map((line, at) => lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some((one) => one.sign !== " "));
  const shown = [];
  let hidden = 0;
  lines.forEach((line, at) => {
    if (!near[at]) {
      hidden += 1;
      return;
    }
    if (hidden) shown.push(el("span", { class: "folded", text: `${counted(hidden, "equal line")}\n` }));
    hidden = 0;
    shown.push(el("span", { data: { sign: line.sign }, text: `${line.sign} ${line.text}\n` }));
  });
  if (hidden) shown.push(el("span", { class: "folded", text: `${counted(hidden, "equal line")}\n` }));
  return shown;
}

const stateOf = (one) => (one.inForce ? "in force" : one.applied ? "applied" : "refused");

const COLUMNS = [
  { key: "number", title: "Version", value: (one) => one.number, text: (one) => (one.own ? count(one.number) : `${count(one.number)}, earlier run`), width: "minmax(64px, 116px)" },
  { key: "when", title: "When", value: (one) => one.atNs, text: (one) => moment(one.atNs), saved: [["When", (one) => moment(one.atNs)]], width: "142px" },
  { key: "state", title: "State", value: stateOf, draw: (cell, one) => cell.replaceChildren(badge(stateOf(one), { "in force": "good", refused: "bad" }[stateOf(one)])), width: "90px", wide: true },
  { key: "by", title: "By", value: (one) => one.principal, width: "minmax(90px, 1fr)" },
  { key: "origin", title: "Brought by", value: (one) => words(one.origin), width: "110px", wide: true },
  { key: "length", title: "Length", value: (one) => one.length, text: (one) => counted(one.length, "character"), number: true, width: "120px", wide: true },
  { key: "note", title: "Note", value: (one) => one.reason || one.note, width: "minmax(110px, 2fr)", wide: true },
];
