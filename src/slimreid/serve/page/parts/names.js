// Names of things that the service calls by short English words, in the reader's language.

import { data } from "../dom.js";
import { has, parts, t, translated } from "../i18n.js";
import { modalities } from "../state.js";
import { serviceText } from "./panels.js";

/** A modality in words; one the page does not know keeps its name. */
export const modalityName = (name) => translated(`modality.${name}`, name);

/** The same as text. */
export const modalityText = (name) => (has(`modality.${name}`) ? t(`modality.${name}`) : name);

/** A subset of the modalities by their first letters ("rt"), or joined names; '' means all queries together. */
export const subsetText = (subset) => {
  if (!subset) return t("subset.any");
  const words = subset.includes("+") ? subset.split("+") : [...subset];
  return words.map((word) => modalityText(modalities().find((name) => name === word || name[0] === word) ?? word)).join(" + ");
};

/** An identity; '' means that nobody knows. */
export const identityName = (name) => (name ? data(name) : t("nobody"));

const REASONS = [
  [/^too small$/, "reason.small"],
  [/^blurred$/, "reason.blurred"],
  [/^empty$/, "reason.empty"],
  [/^near-duplicate of row (?<row>\d+)$/, "reason.duplicate"],
  [/^closer to somebody else: row (?<row>\d+) \((?<who>.*)\)$/, "reason.closer"],
];

/** Why a sample should be looked at: "tir: blurred" and the like, as nodes. */
export const reasonParts = (text) => {
  const [, modality, rest] = /^(?:(\w+): )?(.*)$/s.exec(text);
  const known = modality && has(`modality.${modality}`);
  const body = known ? rest : text;
  for (const [pattern, key] of REASONS) {
    const found = pattern.exec(body);
    if (!found) continue;
    const values = Object.fromEntries(Object.entries(found.groups ?? {}).map(([name, value]) => [name, data(value)]));
    return known ? [modalityText(modality), ": ", ...parts(key, values)] : parts(key, values);
  }
  return [serviceText(text)];
};

/** A rate of false positives in words: one stranger in so many. */
export const strangers = (rate) => Math.max(1, Math.round(1 / rate));
