// Scores on the scale they were made on, with the thresholds that give them a meaning.

import { el } from "../dom.js";
import { number, t } from "../i18n.js";

/** A scale that holds all scores and thresholds of an answer. */
export const makeScale = (answer) => {
  const values = [...answer.matches, ...(answer.candidates ?? [])].map((each) => each.score);
  for (const limit of [answer.strict, answer.lax]) if (limit !== null && limit !== undefined) values.push(limit);
  const high = Math.max(...values, 0.1);
  const low = Math.min(...values, 0);
  const margin = 0.05 * (high - low);
  return { low: low < 0 ? low - margin : 0, high: high + margin, strict: answer.strict ?? null, lax: answer.lax ?? null };
};

const place = (scale, value) => `${(100 * (value - scale.low)) / (scale.high - scale.low)}%`;

/** Where a score lies: above the strict threshold, above the lax one, below both, or nobody can say. */
export const level = (scale, score) => {
  if (scale.strict === null) return "none";
  if (score > scale.strict) return "strict";
  return scale.lax !== null && score > scale.lax ? "lax" : "below";
};

const tick = (scale, value, kind) => {
  if (value === null) return null;
  const line = el("i", { class: `tick ${kind}` });
  line.style.left = place(scale, value);
  return line;
};

/** A bar with the score as a figure; a reader hears the figure and what it means. */
export const meter = (score, scale) => {
  const kind = level(scale, score);
  const bar = el("i", { class: "fill" });
  bar.style.width = place(scale, score);
  return el(
    "div",
    { class: `meter ${kind}` },
    el("span", { class: "track", "aria-hidden": "true" }, bar, tick(scale, scale.lax, "lax"), tick(scale, scale.strict, "strict")),
    el("b", {}, el("span", { class: "spoken" }, t("score")), " ", number(score, 3)),
    el("span", { class: "spoken" }, " ", t(`level.${kind}`)),
  );
};
