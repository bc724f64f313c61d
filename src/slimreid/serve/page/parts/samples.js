// Samples that are about to be enrolled, as cards.

import { data, el } from "../dom.js";
import { modalities } from "../state.js";
import { identityName, modalityText } from "./names.js";
import { absent, filePicture } from "./pictures.js";

/** The picture of an item: a place for it first, as a file in a zip takes a moment. */
const picture = (item, name) => {
  const box = el("div", { class: "crop" });
  item.open().then(
    (file) => box.replaceChildren(filePicture(file, modalityText(name))),
    () => box.replaceChildren(absent()),
  );
  return box;
};

/** A sample: whose it is, its images in all modalities, and its name. */
export const sampleCard = (sample) =>
  el("li", { class: "card" },
    el("div", { class: "head" }, el("h2", { class: "name" }, identityName(sample.identity))),
    el("div", { class: "strip" }, modalities().map((name) =>
      el("figure", {}, sample.images[name] ? picture(sample.images[name], name) : absent(), data(name.toUpperCase(), "figcaption")))),
    data(sample.key, "p", { class: "small faint" }));
