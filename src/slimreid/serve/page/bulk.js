// Enrolment of many samples at once: sent in parts to a job of the service, which goes on by itself.

import { api, events } from "./api.js";
import { shared } from "./state.js";

const AT_ONCE = 16; // samples in one part: small enough for the progress to be seen
const ROOM = 0.8; // share of the largest body that is filled with images
const NAMES_AT_ONCE = 1000;
const BUSY = [429, 503];
const PAUSE = 2000;

/** What is being enrolled, from the choice of files to the result; it outlives a change of view or language. */
export const bulk = { items: [], state: "choose", sent: 0, total: 0, job: null, problem: null, names: new Map() };
const listeners = new Set();

const change = (values) => {
  Object.assign(bulk, values);
  for (const listener of listeners) listener();
};

/** Calls `listener` after every change; the result stops that. */
export const onBulk = (listener) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** Begins anew, with these files. */
export const setItems = (items) => change({ items, state: "choose", sent: 0, total: 0, job: null, problem: null, names: new Map() });

/** Bytes that the images of one sample may have together. */
export const mostBytes = () => ROOM * shared.status.limits.body_bytes;

/** The names of all who are enrolled. */
export const enrolledNames = async () => {
  const names = new Set();
  let after = null;
  do {
    const page = await api.identities("", after, NAMES_AT_ONCE);
    for (const { name } of page.identities) names.add(name);
    after = page.next;
  } while (after !== null);
  return names;
};

/** Samples in parts that a request may hold. */
export const inParts = (samples) => {
  const parts = [];
  let [count, size] = [Infinity, 0];
  for (const sample of samples) {
    const items = Object.values(sample.images);
    const more = items.reduce((sum, item) => sum + item.size, 0);
    const last = parts.at(-1);
    if (!last || last.length === AT_ONCE || count + items.length > shared.status.limits.images || size + more > mostBytes()) {
      parts.push([sample]);
      [count, size] = [items.length, more];
    } else {
      last.push(sample);
      [count, size] = [count + items.length, size + more];
    }
  }
  return parts;
};

const pause = (time) => new Promise((done) => { setTimeout(done, time); });
const connectionBack = () => new Promise((done) => { events.addEventListener("back", done, { once: true }); });

/** Does something until the service is there and has time for it; what was sent twice is enrolled once. */
const insist = async (work) => {
  for (;;) {
    try {
      return await work();
    } catch (problem) {
      if (problem.name === "ConnectionLost") await connectionBack();
      else if (BUSY.includes(problem.status)) await pause(PAUSE);
      else throw problem;
    }
  }
};

const sendPart = async (job, part, labels) => {
  const shots = await Promise.all(part.map(async ({ images }) =>
    Object.fromEntries(await Promise.all(Object.entries(images).map(async ([name, item]) => [name, await item.open()])))));
  const fields = { ...labels };
  part.forEach((sample, number) => {
    if (sample.identity) fields[`identity.${number}`] = sample.identity;
    if (sample.group) fields[`group.${number}`] = sample.group;
  });
  return insist(() => api.addSamples(job.id, shots, fields));
};

/** Enrols samples with labels that hold for all of them; `bulk` tells how it goes. */
export const enrolMany = async (samples, labels) => {
  change({ state: "sending", total: samples.length, sent: 0, problem: null, job: null });
  try {
    const job = await insist(() => api.newJob({}));
    change({ job });
    const parts = inParts(samples);
    for (const [number, part] of parts.entries()) {
      if (bulk.state !== "sending") return;
      const now = await sendPart(job, part, labels);
      part.forEach((sample, at) => bulk.names.set(`sample ${at} of part ${number + 1}`, sample.key));
      change({ sent: bulk.sent + part.length, job: now });
    }
    await insist(() => api.finishJob(job.id));
    if (bulk.state === "sending") change({ state: "running" }); // its end may have been told already
  } catch (problem) {
    if (bulk.state !== "sending") return; // cancelled: the job takes no more samples
    if (bulk.job) await api.finishJob(bulk.job.id).catch(() => {}); // what was sent is enrolled
    change({ problem, state: "failed" });
  }
};

/** Drops what is not enrolled yet. */
export const cancelMany = async () => {
  change({ state: "cancelling" });
  change({ job: await insist(() => api.cancelJob(bulk.job.id)), state: "over" });
};

/** The job has come to an end. */
export const endMany = (job) => change({ job, state: "over" });
