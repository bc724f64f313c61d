// Rows of the gallery as cards, and what can be done with those that are chosen.

import { data, el, icon } from "../dom.js";
import { moment, t } from "../i18n.js";
import { may } from "../state.js";
import { assignRows, removeRows, splitRows } from "./edits.js";
import { reasonParts } from "./names.js";
import { rowStrip } from "./pictures.js";
import { meter } from "./scores.js";

const identityLink = (name) =>
  name ? el("a", { href: `#identity/${encodeURIComponent(name)}`, translate: "no" }, name) : el("span", { class: "faint" }, t("nobody"));

const facts = (row) =>
  el("p", { class: "chips" },
    row.camera && el("span", { class: "fact" }, icon("camera"), el("span", { class: "spoken" }, t("camera"), " "), data(row.camera)),
    row.time !== null && el("span", { class: "fact" }, icon("clock"), el("span", { class: "spoken" }, t("time"), " "), moment(row.time)),
    row.reasons.map((reason) => el("span", { class: "chip warn" }, reasonParts(reason))));

/**
 * A card for a row. `match` adds rank and score on a `scale`; `chosen` a box to choose it; `compare` a button;
 * `level` is that of its heading.
 */
export const rowCard = (row, { match = null, scale = null, chosen = null, compare = null, level = 3 } = {}) => {
  const name = t("row", { n: row.id });
  const box = chosen && may("editor") &&
    el("label", { class: "choose" }, el("input", { type: "checkbox", checked: chosen.has(row.id), onchange: (event) => chosen.set(row.id, event.target.checked) }),
      el("span", { class: "spoken" }, t("choose", { what: name })));
  return el("li", { class: "card", data: { row: row.id } },
    el("div", { class: "head" },
      match && el("span", { class: "rank" }, el("span", { class: "spoken" }, t("rank"), " "), String(match.rank)),
      el(`h${level}`, { class: "name" }, identityLink(row.identity)),
      box),
    rowStrip(row),
    el("div", { class: "about" },
      match && meter(match.score, scale),
      facts(row),
      compare && el("button", { type: "button", class: "compare", onclick: () => compare(row, match) }, t("compare"), el("span", { class: "spoken" }, " ", name))));
};

/** Rows that are chosen, with a bar of what can be done with them. */
export const choice = (changed, { split = false } = {}) => {
  const ids = new Set();
  const bar = el("div", { class: "choicebar", role: "region", "aria-label": t("choice.label"), hidden: true });
  const after = async () => {
    clear();
    await changed();
  };
  const show = () => {
    bar.hidden = ids.size === 0;
    bar.replaceChildren(
      el("b", { role: "status" }, t("choice.count", { n: ids.size })),
      el("button", { type: "button", onclick: () => assignRows([...ids], after) }, t("assign.open")),
      split && el("button", { type: "button", onclick: () => splitRows([...ids], after) }, t("split.open")),
      el("button", { type: "button", class: "danger", onclick: () => removeRows({ rows: [...ids] }, after) }, t("remove.open")),
      el("button", { type: "button", class: "quiet", "aria-label": t("choice.clear"), onclick: clear }, icon("cross")));
  };
  const clear = () => {
    ids.clear();
    for (const box of document.querySelectorAll(".choose input")) box.checked = false;
    show();
  };
  const set = (id, chosen) => {
    if (chosen) ids.add(id);
    else ids.delete(id);
    show();
  };
  return { bar, has: (id) => ids.has(id), set };
};
