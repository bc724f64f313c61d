// Dialogs: the browser keeps the focus inside and gives it back; Escape closes.

import { el, icon, newId } from "../dom.js";
import { t } from "../i18n.js";

/** Opens a dialog with a title; `content` gets `close` and returns what is in it. Returns the element. */
export const openDialog = (title, content, { wide = false } = {}) => {
  const id = newId("title");
  const box = el("dialog", { class: wide ? "wide" : null, "aria-labelledby": id });
  const close = () => box.close();
  box.append(
    el(
      "header",
      {},
      el("h2", { id }, title),
      el("button", { type: "button", class: "quiet", "aria-label": t("close"), onclick: close }, icon("cross")),
    ),
    ...[content(close)].flat(),
  );
  box.addEventListener("close", () => box.remove());
  // A click beside the dialog closes it too; the dialog itself has no padding, so its content never is the target.
  box.addEventListener("click", (event) => event.target === box && close());
  document.body.append(box);
  box.showModal();
  return box;
};
