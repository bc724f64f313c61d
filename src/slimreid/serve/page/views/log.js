// What was done and searched, by whom; the last change can be undone.

import { api } from "../api.js";
import { data, el } from "../dom.js";
import { moment, number, t, translated } from "../i18n.js";
import { undoLast } from "../parts/edits.js";
import { loadInto } from "../parts/panels.js";
import { may, refresh } from "../state.js";

const PAGE = 50;
const SHOWN = 4;

const isPlain = (value) => ["string", "number", "boolean"].includes(typeof value) && value !== "";

/** Details of an entry in short: names and files, the first few of long lists. */
const details = (entry) =>
  Object.entries(entry.details).flatMap(([key, value]) => {
    const values = [value].flat().filter(isPlain);
    if (!values.length) return [];
    const text = values.slice(0, SHOWN).join(", ");
    const rest = values.length > SHOWN && [" ", t("log.more", { n: values.length - SHOWN })];
    return [el("span", { class: "detail" }, el("span", { class: "faint" }, translated(`detail.${key}`, key), ": "), data(text), rest)];
  });

/** What the number of an entry counts: rows, those a search found, or queries that were known. */
const count = ({ operation, count: n }) => t({ identify: "log.known", search: "matches.title" }[operation] ?? "rows", { n });

const line = (entry) =>
  el("li", { class: entry.undone_by !== null ? "undone" : null },
    el("span", { class: "number" }, number(entry.id)),
    el("span", {}, el("b", {}, translated(`operation.${entry.operation}`, entry.operation)),
      entry.undone_by !== null && [" ", el("span", { class: "chip" }, t("log.undone", { entry: entry.undone_by }))]),
    el("span", {}, count(entry)),
    el("span", {}, moment(entry.time)),
    el("span", {}, el("span", { class: "spoken" }, t("log.by"), " "), data(entry.by)),
    el("span", { class: "details" }, details(entry)));

/** Draws the view into `main`. */
export const logView = (main, again) => {
  const list = el("div", {});
  const load = async () => {
    const page = await api.log(null, PAGE);
    if (!page.entries.length) return el("p", { class: "faint" }, t("log.empty"));
    const last = page.entries.find((entry) => entry.undoable && entry.undone_by === null);
    const undo = el("button", { type: "button", disabled: !last, onclick: () => undoLast(last.id, async () => { await refresh(); await again(); }) }, t("undo.open"));
    const body = el("ol", { class: "log", role: "list" }, page.entries.map(line));
    const more = el("button", { type: "button", hidden: page.next === null, onclick: async () => {
      const next = await api.log(page.next, PAGE);
      body.append(...next.entries.map(line));
      page.next = next.next;
      more.hidden = next.next === null;
    } }, t("more"));
    return [
      may("editor") && el("div", { class: "row" }, undo),
      body,
      el("div", { class: "row" }, more),
    ].filter(Boolean);
  };
  main.replaceChildren(el("h1", {}, t("log.title")), el("p", { class: "faint" }, t("log.explain")), list);
  return loadInto(list, load);
};
