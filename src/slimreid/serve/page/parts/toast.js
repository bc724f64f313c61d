// What was done, for a while, with a way back.

import { api } from "../api.js";
import { el, icon } from "../dom.js";
import { t } from "../i18n.js";
import { serviceText } from "./panels.js";

const SECONDS = 15;

/** Undoes an entry of the log, if it is still the last one, and says so. */
export const undoEntry = async (entry, changed) => {
  try {
    await api.change("undo", { steps: 1, expect: entry });
    toast(t("undo.done"));
    await changed();
  } catch (problem) {
    toast(problem.status === 409 ? t("undo.late") : serviceText(problem.message));
  }
};

/** Shows a message; one for a change (an entry of the log) can be undone from it. */
export const toast = (message, entry = null, changed = () => {}) => {
  const place = document.getElementById("toasts");
  const close = () => box.remove();
  let timer = setTimeout(close, 1000 * SECONDS);
  const undo = () => {
    close();
    return undoEntry(entry, changed);
  };
  const box = el(
    "div",
    { class: "toast fade", onmouseenter: () => clearTimeout(timer), onfocusin: () => clearTimeout(timer) },
    el("p", { role: "status" }, message),
    entry !== null && el("button", { type: "button", onclick: undo }, t("undo")),
    el("button", { type: "button", class: "quiet", "aria-label": t("close"), onclick: close }, icon("cross")),
  );
  box.addEventListener("mouseleave", () => { timer = setTimeout(close, 1000 * SECONDS); });
  place.replaceChildren(box);
};
