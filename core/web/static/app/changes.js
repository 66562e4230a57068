// Makes buttons that change something. They say what will change and who will be recorded, or why the reader may not change
// it.

import { el } from "./dom.js";
import { rights } from "./rights.js";

/**
 * Makes a button that asks before it acts. `question`: what will change, in sentences; `act` makes the change; `done` is
 * called afterwards.
 * `rights` must have been loaded.
 */
export function changeButton({ text, permission, question, act, done, primary = false }) {
  const refusal = rights.refusal(permission);
  const said = el("p", { class: "change-said", role: "status" });
  if (refusal) {
    said.textContent = refusal;
    return el("div", { class: "change" }, el("button", { type: "button", disabled: true, text }), said);
  }
  const button = el("button", { type: "button", text, class: primary ? "primary" : null });
  button.addEventListener("click", async () => {
    const wanted = await confirmed(text, typeof question === "function" ? question() : question);
    if (!wanted) return button.focus();
    button.disabled = true;
    try {
      const answer = await act();
      said.textContent = "";
      done(answer);
    } catch (error) {
      said.textContent = `Not done: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
  return el("div", { class: "change" }, button, said);
}

/** Ask the reader. Returns whether they agree. */
function confirmed(title, question) {
  return new Promise((settle) => {
    const dialog = el(
      "dialog",
      { "aria-labelledby": "change-title", class: "ask" },
      el("h2", { id: "change-title", text: `${title}?` }),
      el("p", { text: question }),
      el("p", { text: rights.recorded }),
      el(
        "div",
        { class: "actions" },
        el("button", { type: "button", text: "Cancel", on: { click: () => dialog.close("") } }),
        el("button", { type: "button", class: "primary", text: title, on: { click: () => dialog.close("yes") } }),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      settle(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
