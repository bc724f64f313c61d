// The changes that people make to a gallery, each with its dialog.

import { el } from "../dom.js";
import { api } from "../api.js";
import { t } from "../i18n.js";
import { may } from "../state.js";
import { changeDialog, nameField } from "./change.js";

const SUGGESTIONS = 500;

const knownNames = async () => (await api.identities("", null, SUGGESTIONS).catch(() => ({ identities: [] }))).identities.map((each) => each.name);

/** Give rows a name; an empty one means that nobody knows. */
export const assignRows = async (ids, changed, suggestion = "") => {
  const name = nameField(t("identity"), suggestion, await knownNames(), t("assign.help"));
  changeDialog({
    title: t("assign.title", { n: ids.length }), fields: name.nodes, confirm: t("assign"), operation: "rows/assign", changed,
    body: () => ({ identities: Object.fromEntries(ids.map((id) => [id, name.input.value.trim()])) }),
  });
};

/** Make some rows of an identity one of their own. */
export const splitRows = (ids, changed) => {
  const name = nameField(t("split.name"), "");
  changeDialog({
    title: t("split.title", { n: ids.length }), explain: t("split.explain"), fields: name.nodes, confirm: t("split"),
    operation: "identities/split", changed, ready: () => name.input.value.trim() !== "",
    body: () => ({ rows: ids, new: name.input.value.trim() }),
  });
};

/** Take rows or whole identities out; an admin may erase them for good. */
export const removeRows = (which, changed) => {
  const forget = el("input", { type: "checkbox" });
  changeDialog({
    title: t("remove.title"), explain: t("remove.explain"), confirm: t("remove"), operation: "rows/remove", changed,
    fields: may("admin") && el("label", { class: "check" }, forget, el("span", {}, t("remove.forget"))),
    body: () => ({ ...which, forget: forget.checked }),
  });
};

/** Give an identity another name. */
export const renameIdentity = (old, changed) => {
  const name = nameField(t("rename.name"), old);
  changeDialog({
    title: t("rename.title"), fields: name.nodes, confirm: t("rename"), operation: "identities/rename",
    changed: () => changed(name.input.value.trim()), ready: () => !["", old].includes(name.input.value.trim()),
    body: () => ({ old, new: name.input.value.trim() }),
  });
};

/** Make several identities one; with one alone, ask for the other. */
export const mergeIdentities = async (names, changed) => {
  const name = nameField(t("merge.into"), names.length > 1 ? names[0] : "", names.length > 1 ? names : await knownNames());
  changeDialog({
    title: t("merge.title"), explain: t("merge.explain"), fields: name.nodes, confirm: t("merge"), operation: "identities/merge",
    changed: () => changed(name.input.value.trim()),
    ready: () => name.input.value.trim() !== "" && names.some((each) => each !== name.input.value.trim()),
    body: () => ({ identities: names, into: name.input.value.trim() }),
  });
};

/** Undo the last change; `expect` is the entry of the log that is meant. */
export const undoLast = (expect, changed) =>
  changeDialog({
    title: t("undo.title"), explain: t("undo.explain"), confirm: t("undo"), operation: "undo", changed,
    body: () => ({ steps: 1, expect }),
  });
