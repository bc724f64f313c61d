// Scores on the scale they were made on, with the thresholds that give them a meaning.

import { el } from "../dom.js";
import { number, t } from "../i18n.js";

/** A scale that holds all scores and thresholds of an answer. */
export const makeScale = (answer) => {
  const values = [...answer.matches, ...(answer.candidates ?? [])].map((each) => each.score);
  for (const limit of [answer.strict, answer.lax]) if (limit !== null && limit !== undefined) values.push(limit);
  const high = Math.max(...values);
  const low = Math.min(...values);
  const margin = 0.08 * (high - low) || 0.1;
  return { low: low - margin, high: high + margin, strict: answer.strict ?? null, lax: answer.lax ?? null };
};

const place = (scale, value) => `${(100 * (value - scale.low)) / (scale.high - scale.low)}%`;

/** Where a score lies: above the strict threshold, above the lax one, below both, or nobody can say. */
export const level = (scale, score) => {
  if (scale.strict === null) return "none";
  if (score > scale.strict) return "strict";
  return scale.lax !== null && score > scale.lax ? "lax" : "below";
};

/** A stretch of the scale from a threshold up to its end. */
const zone = (scale, from, kind) => {
  if (from === null) return null;
  const part = el("i", { class: `zone-${kind}` });
  part.style.left = place(scale, from);
  return part;
};

/** A dot on the scale and the score as a figure; a reader hears the figure and what it means. */
export const meter = (score, scale) => {
  const kind = level(scale, score);
  const dot = el("i", { class: "dot" });
  dot.style.left = place(scale, score);
  return el(
    "div",
    { class: `meter ${kind}` },
    el("span", { class: "track", "aria-hidden": "true" }, zone(scale, scale.lax, "lax"), zone(scale, scale.strict, "strict"), dot),
    el("b", {}, el("span", { class: "spoken" }, t("score")), " ", number(score, 3)),
    el("span", { class: "spoken" }, " ", t(`level.${kind}`)),
  );
};
