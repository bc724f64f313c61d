// Enrol many samples at once: choose, look at what was understood, send, watch.

import { chosenItems, droppedItems, ZipProblem } from "../archives.js";
import { bulk, cancelMany, endMany, enrolledNames, enrolMany, mostBytes, onBulk, setItems } from "../bulk.js";
import { data, el, icon } from "../dom.js";
import { groupSamples } from "../files.js";
import { parts, t } from "../i18n.js";
import { nameField } from "../parts/change.js";
import { jobProgress } from "../parts/jobs.js";
import { modalityText } from "../parts/names.js";
import { note, panel, problemBox, working } from "../parts/panels.js";
import { sampleCard } from "../parts/samples.js";
import { undoEntry } from "../parts/toast.js";
import { may, modalities, refresh } from "../state.js";

const SHOWN = 12;
const PATHS = 20;
const chosen = { identity: "", camera: "", time: "", usual: null };

const read = async (place, items) => {
  place.replaceChildren(working("bulk.reading"));
  try {
    setItems(await items);
  } catch (error) {
    if (!(error instanceof ZipProblem)) throw error;
    setItems([]);
    place.prepend(note(el("p", {}, parts("bulk.zip", { name: data(error.message) }))));
  }
};

const picker = (place, key, options) => {
  const input = el("input", { type: "file", class: "spoken-input", multiple: true, ...options });
  input.addEventListener("change", () => input.files.length && read(place, chosenItems(input.files)));
  return el("label", { class: "button pick" }, input, el("span", {}, t(key)));
};

/** Where files are dropped or chosen. */
const zone = (place) => {
  const box = el("div", { class: "zone bulk" }, icon("image"), el("p", {}, t("bulk.drop")),
    el("div", { class: "row" }, picker(place, "bulk.files", { accept: "image/*,.tif,.tiff,.bmp,.webp,.zip" }), picker(place, "bulk.folder", { webkitdirectory: true })),
    el("p", { class: "small faint" }, t("bulk.help")));
  const mark = (event, over) => {
    event.preventDefault();
    box.classList.toggle("over", over);
  };
  box.addEventListener("dragover", (event) => mark(event, true));
  box.addEventListener("dragleave", (event) => mark(event, false));
  box.addEventListener("drop", (event) => {
    mark(event, false);
    read(place, droppedItems(event.dataTransfer));
  });
  return box;
};

const leftOutList = (leftOut) =>
  leftOut.length > 0 &&
  el("details", {}, el("summary", {}, t("bulk.left", { n: leftOut.length })),
    el("ul", { class: "small" }, leftOut.slice(0, PATHS).map(({ path, why }) => el("li", {}, data(path, "code"), " ", t(`left.${why}`)))),
    leftOut.length > PATHS && el("p", { class: "small faint" }, t("log.more", { n: leftOut.length - PATHS })));

const tile = (value, text) => el("li", {}, el("b", {}, value), el("span", {}, text));

const tiles = (samples) =>
  el("ul", { class: "tiles" },
    tile(String(samples.length), t("bulk.samples", { n: samples.length })),
    modalities().map((name) => {
      const count = samples.filter((sample) => sample.images[name]).length;
      return tile(String(count), t("bulk.seen", { n: count, modality: modalityText(name) }));
    }));

/** What will happen, in words: how many rows, for whom. */
const effect = (samples, there) => {
  const names = new Set(samples.map((sample) => sample.identity).filter(Boolean));
  const known = [...names].filter((name) => there.has(name)).length;
  const unnamed = samples.filter((sample) => !sample.identity).length;
  return [
    el("p", {}, t("bulk.rows", { n: samples.length })),
    names.size > 0 && el("p", {}, t("bulk.names", { n: names.size, known: String(known), fresh: String(names.size - known) })),
    unnamed > 0 && el("p", {}, t("bulk.unnamed", { n: unnamed })),
    el("p", { class: "small faint" }, t("bulk.once")),
  ].filter(Boolean);
};

/** The form between the files and the job: labels for all, and what will happen. */
const plan = (place) => {
  const usual = () => chosen.usual ?? (modalities().includes("rgb") ? "rgb" : modalities()[0]);
  const above = el("div", {});
  const below = el("div", {});
  const identity = nameField(t("bulk.identity"), chosen.identity, [], t("bulk.identity.help"));
  const camera = nameField(t("filter.camera"), chosen.camera);
  const time = el("input", { type: "datetime-local", step: 1, value: chosen.time });
  const guess = el("select", {}, modalities().map((name) => el("option", { value: name, selected: name === usual() }, modalityText(name))));
  const button = el("button", { type: "submit", class: "main", disabled: true });
  const happens = el("section", { class: "effect", "aria-live": "polite" });
  let samples = [];
  let there = null; // names that are enrolled
  const foresee = () => {
    const text = samples.length ? effect(samples, there) : [el("p", {}, t("bulk.nothing"))];
    happens.replaceChildren(el("h2", {}, t("change.title")), ...text);
    button.disabled = !samples.length;
    button.textContent = t("bulk.start", { n: samples.length });
  };
  const understand = () => {
    Object.assign(chosen, { identity: identity.input.value.trim(), usual: guess.value });
    const found = groupSamples(bulk.items, modalities(), guess.value, mostBytes());
    samples = found.samples.map((sample) => (chosen.identity ? { ...sample, identity: chosen.identity } : sample));
    above.replaceChildren(...[tiles(samples), leftOutList(found.leftOut), happens].filter(Boolean));
    below.replaceChildren(
      el("ul", { class: "cards" }, samples.slice(0, SHOWN).map(sampleCard)),
      samples.length > SHOWN ? el("p", { class: "faint" }, t("log.more", { n: samples.length - SHOWN })) : "");
    if (there) foresee();
  };
  let timer;
  const form = el("form", { class: "bulk-form" },
    el("div", { class: "pair limited" }, identity.nodes, camera.nodes),
    el("div", { class: "pair limited" }, el("label", { class: "field" }, el("span", {}, t("time")), time), el("label", { class: "field" }, el("span", {}, t("bulk.usual")), guess)),
    above,
    el("div", { class: "row" }, button, el("button", { type: "button", onclick: () => setItems([]) }, t("clear"))),
    below);
  form.addEventListener("input", ({ target }) => {
    if (target !== identity.input && target !== guess) return;
    button.disabled = true; // what is shown belongs to another value
    clearTimeout(timer);
    timer = setTimeout(understand, 250);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (button.disabled) return;
    Object.assign(chosen, { camera: camera.input.value.trim(), time: time.value });
    enrolMany(samples, { camera: chosen.camera, time: chosen.time ? new Date(chosen.time).toISOString() : "" });
  });
  place.replaceChildren(form);
  happens.replaceChildren(working("change.asking"));
  understand();
  enrolledNames().then((names) => { there = names; foresee(); }, (problem) => happens.replaceChildren(problemBox(problem)));
};

/** A problem of the job, with the file in place of its number. */
const withName = (text) => {
  const [number] = /^sample \d+ of part \d+/.exec(text) ?? [];
  return bulk.names.has(number) ? text.replace(number, bulk.names.get(number)) : text;
};

const sending = () =>
  el("label", { class: "sending" }, el("span", {}, t("bulk.sent", { n: bulk.total, done: String(bulk.sent) })), el("progress", { max: bulk.total, value: bulk.sent }));

const result = (again) => {
  const { job } = bulk;
  const words = { done: job.enrolled ? "bulk.done" : "bulk.none", cancelled: "bulk.cancelled" }[job.state] ?? "bulk.failed";
  return [
    el("h2", {}, t(words)),
    el("ul", { class: "tiles" }, tile(String(job.enrolled), t("bulk.enrolled")), tile(String(job.known), t("bulk.known")), tile(String(job.broken), t("bulk.broken"))),
    job.problems.length > 0 && note(el("ul", {}, job.problems.map((text) => data(withName(text), "li", { lang: "en" })))),
    job.concerns.length > 0 && el("details", {}, el("summary", {}, t("bulk.concerns", { n: job.concerns.length })), el("ul", { class: "small" }, job.concerns.map((text) => data(text, "li", { lang: "en" })))),
    el("div", { class: "row" },
      el("button", { type: "button", class: "main", onclick: () => setItems([]) }, t("bulk.more")),
      el("a", { class: "button", href: "#identities" }, t("nav.identities")),
      el("a", { class: "button", href: "#clusters" }, t("nav.clusters")),
      job.entry !== null && job.enrolled > 0 && el("button", { type: "button", onclick: () => undoEntry(job.entry, again) }, t("undo"))),
  ].filter(Boolean);
};

/** Draws the view into `main`. */
export const enrolView = (main, again) => {
  const place = el("div", {});
  main.replaceChildren(el("p", { class: "crumbs" }, el("a", { href: "#identities" }, t("nav.identities"))), el("h1", {}, t("nav.enrol")), place);
  if (!may("editor")) {
    place.append(panel("lock", t("problem.NotAllowedError"), t("viewer.note")));
    return undefined;
  }
  let watched = null;
  const watch = () => {
    if (watched?.id !== bulk.job.id) {
      const box = jobProgress(bulk.job, async (job) => { endMany(job); await refresh(); }, { name: withName, total: bulk.total });
      watched = { id: bulk.job.id, box };
    }
    return watched.box;
  };
  const draw = () => {
    const { state, job, items, problem } = bulk;
    if (state === "choose" && items.length) return plan(place);
    if (state === "choose") return place.replaceChildren(zone(place));
    if (state === "over") return place.replaceChildren(...result(again));
    return place.replaceChildren(...[
      problem && (problem.status >= 0 ? problemBox(problem) : note(el("p", {}, parts("bulk.zip", { name: data(problem.message) })))),
      sending(), job && watch(),
      ["sending", "running"].includes(state) && job && el("button", { type: "button", class: "danger", onclick: cancelMany }, t("job.cancel")),
    ].filter(Boolean));
  };
  const stop = onBulk(() => (place.isConnected ? draw() : stop()));
  draw();
  return undefined;
};
