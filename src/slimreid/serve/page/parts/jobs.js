// Work that goes on in the service, with its progress.

import { api } from "../api.js";
import { el } from "../dom.js";
import { t } from "../i18n.js";
import { may } from "../state.js";
import { serviceText } from "./panels.js";

const ENDED = ["done", "failed", "cancelled"];

/** What can be done with an enrolment that somebody began and did not end. */
const controls = (job) =>
  el("div", { class: "row" },
    job.state === "open" && el("button", { type: "button", onclick: () => api.finishJob(job.id) }, t("job.finish")),
    el("button", { type: "button", class: "danger", onclick: () => api.cancelJob(job.id) }, t("job.cancel")));

const describe = (job, options) => {
  const done = job.enrolled + job.known + job.broken;
  const all = Math.max(job.received, options.total ?? 0);
  return [
    el("p", {}, t(`job.${job.kind}`), ": ", t(`job.${job.state}`), job.kind === "enrol" && [" · ", t("job.count", { n: all, done })]),
    !ENDED.includes(job.state) && el("progress", { "aria-label": t(`job.${job.kind}`), max: all || null, value: all ? done : undefined }),
    ENDED.includes(job.state) && job.kind === "enrol" && el("p", { class: "small faint" }, t("job.result", { n: job.enrolled, known: job.known, broken: job.broken })),
    job.problems.slice(0, 5).map((text) => el("p", { class: "small" }, serviceText(options.name?.(text) ?? text))),
    options.controls && !ENDED.includes(job.state) && job.kind === "enrol" && may("editor") && controls(job),
  ].flat().filter(Boolean);
};

/**
 * A job and how it goes on; `ended` is called once, when it has come to an end. `controls` lets editors finish or
 * cancel it, `name` writes a problem in other words, `total` is how many samples will come.
 */
export const jobProgress = (job, ended = () => {}, options = {}) => {
  const box = el("div", { class: "job", "aria-live": "polite" }, describe(job, options));
  if (ENDED.includes(job.state)) return box;
  const source = api.watchJob(job.id);
  const take = (event) => {
    const now = JSON.parse(event.data);
    box.replaceChildren(...describe(now, options));
    if (!ENDED.includes(now.state)) return;
    source.close();
    ended(now);
  };
  source.addEventListener("message", take);
  source.addEventListener("job", take);
  return box;
};
