// Pictures of rows and of the query, one per modality, always in the model's order; what is absent is hatched.

import { imageUrl, thumbnailUrl } from "../api.js";
import { data, el, svg } from "../dom.js";
import { t } from "../i18n.js";
import { modalities } from "../state.js";
import { modalityText } from "./names.js";

const absent = () => el("div", { class: "absent" }, el("span", {}, t("absent")));

/** Patches that the model dropped, as a shade over a picture that fills the same box. */
export const patchShade = (grid) => {
  const kept = new Set(grid.kept);
  const shade = svg("svg", {
    class: "shade", viewBox: `0 0 ${grid.columns} ${grid.rows}`, preserveAspectRatio: "none", role: "img",
    "aria-label": t("patches.kept", { n: grid.kept.length, all: grid.rows * grid.columns }),
  });
  for (let number = 0; number < grid.rows * grid.columns; number += 1) {
    if (kept.has(number)) continue;
    shade.append(svg("rect", { x: number % grid.columns, y: Math.floor(number / grid.columns), width: 1.02, height: 1.02 }));
  }
  return shade;
};

/** The part of a row's thumbnail that shows one modality: the thumbnail is as many pictures side by side. */
const crop = (row, name, strip) => {
  const count = row.modalities.length;
  const picture = el("img", {
    src: thumbnailUrl(row.id), loading: "lazy", decoding: "async", draggable: "false",
    alt: t("picture.row", { modality: modalityText(name), row: row.id }),
  });
  picture.style.width = `${100 * count}%`;
  picture.style.marginLeft = `${-100 * row.modalities.indexOf(name)}%`;
  picture.addEventListener("load", () => {
    strip.classList.toggle("wide", picture.naturalWidth / count > picture.naturalHeight);
  });
  return el("div", { class: "crop" }, picture);
};

/** A row in all modalities of the model, small. */
export const rowStrip = (row) => {
  const strip = el("div", { class: "strip" });
  for (const name of modalities()) {
    const there = row.modalities.includes(name);
    strip.append(el("figure", {}, there ? crop(row, name, strip) : absent(), data(name.toUpperCase(), "figcaption")));
  }
  return strip;
};

/** A row's picture in one modality, large; null where it has none. */
export const rowPicture = (row, name) =>
  row.modalities.includes(name)
    ? el("img", { src: imageUrl(row.id, name), alt: t("picture.row", { modality: modalityText(name), row: row.id }) })
    : absent();

/**
 * An image file of the query, drawn on a canvas: no address of it is needed, so the page's security policy can stay
 * strict. A format the browser cannot draw is shown by its name; the service may still read it.
 */
export const filePicture = (file, label) => {
  const canvas = el("canvas", { role: "img", "aria-label": label });
  const box = el("div", { class: "picture" }, canvas);
  createImageBitmap(file).then(
    (bitmap) => {
      canvas.width = bitmap.width;
      canvas.height = bitmap.height;
      canvas.getContext("2d").drawImage(bitmap, 0, 0);
      bitmap.close();
    },
    () => box.replaceChildren(el("div", { class: "absent" }, el("span", { translate: "no" }, file.name))),
  );
  return box;
};

export { absent };
