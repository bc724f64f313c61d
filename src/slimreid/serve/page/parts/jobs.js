// Work that goes on in the service, with its progress.

import { api } from "../api.js";
import { el } from "../dom.js";
import { t } from "../i18n.js";
import { serviceText } from "./panels.js";

const ENDED = ["done", "failed", "cancelled"];

const describe = (job) => {
  const done = job.enrolled + job.known + job.broken;
  return [
    el("p", {}, t(`job.${job.kind}`), ": ", t(`job.${job.state}`), job.kind === "enrol" && [" · ", t("job.count", { n: job.received, done })]),
    !ENDED.includes(job.state) && el("progress", { "aria-label": t(`job.${job.kind}`), max: job.received || null, value: job.received ? done : undefined }),
    job.problems.slice(0, 5).map((text) => el("p", { class: "small" }, serviceText(text))),
  ].flat().filter(Boolean);
};

/** A job and how it goes on; `ended` is called once, when it has come to an end. */
export const jobProgress = (job, ended = () => {}) => {
  const box = el("div", { class: "job", "aria-live": "polite" }, describe(job));
  if (ENDED.includes(job.state)) return box;
  const source = api.watchJob(job.id);
  const take = (event) => {
    const now = JSON.parse(event.data);
    box.replaceChildren(...describe(now));
    if (!ENDED.includes(now.state)) return;
    source.close();
    ended(now);
  };
  source.addEventListener("message", take);
  source.addEventListener("job", take);
  return box;
};
