// Which file belongs to which modality, sample and identity, by its path: the rules of the command line.

// The words of slimreid.modalities; a test compares them, and what is read with what Python reads.
export const ALIASES = {
  rgb: ["vis", "visible", "color", "colour"],
  nir: ["ni", "near-infrared", "nearinfrared"],
  tir: ["ti", "th", "thermal", "lwir", "mwir"],
};
const UNCLEAR = ["ir", "infrared"];
const SEPARATOR = "[ _.\\-]+";
const IMAGE = /\.(jpe?g|png|bmp|tiff?|webp)$/i;

/** Whether a file's name is that of an image. */
export const isImage = (path) => IMAGE.test(path);

/** The modality that a word means: one of the model's, or one that the command line knows; null for none. */
const meaning = (word, modalities) => {
  const plain = word.toLowerCase().replace(/[_ ]/g, "-");
  const own = modalities.find((name) => name.toLowerCase() === word.toLowerCase());
  return own ?? Object.keys(ALIASES).find((name) => name === plain || ALIASES[name].includes(plain)) ?? null;
};

const patterns = (modalities) => {
  const known = Object.entries(ALIASES).flatMap(([name, words]) => [name, ...words]);
  const words = [...new Set([...known, ...UNCLEAR, ...modalities])].sort((a, b) => b.length - a.length);
  const any = (some) => some.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replaceAll("-", "[ _\\-]")).join("|");
  const long = words.filter((word) => word.length > 2);
  return [
    `(?<word>${any(words)})`,
    `(?<rest>.+?)${SEPARATOR}(?<word>${any(words)})`,
    `(?<word>${any(long)})${SEPARATOR}(?<rest>.+)`,
  ].map((text) => new RegExp(`^(?:${text})$`, "i"));
};

/**
 * A path taken apart: the modality it names (null for none), its other folders, the rest of its name, a word that may
 * mean two modalities, and whether it names two.
 */
export const readName = (path, modalities) => {
  const folders = path.split("/").filter((part) => part && part !== ".");
  const file = folders.pop() ?? "";
  const dot = file.lastIndexOf(".");
  const stem = dot > 0 && dot < file.length - 1 ? file.slice(0, dot) : file;
  const groups = patterns(modalities).map((pattern) => pattern.exec(stem)?.groups).find(Boolean);
  const word = groups?.word ?? "";
  const named = folders.map((folder) => meaning(folder, modalities));
  const found = new Set([...named, word ? meaning(word, modalities) : null].filter(Boolean));
  return {
    modality: found.size === 1 ? [...found][0] : null,
    folders: folders.filter((_, at) => !named[at]),
    rest: groups ? groups.rest ?? "" : stem,
    unclear: found.size ? "" : word,
    several: found.size > 1,
  };
};

/**
 * Puts files into the shots that are there, and into further ones where they are full. A file that names its
 * modality goes there, together with those whose names are otherwise the same; the others fill what is free in order.
 */
export const sortFiles = (files, shots, modalities) => {
  const result = shots.map((shot) => ({ ...shot }));
  const started = new Map();
  const open = (free) => {
    const found = result.find(free);
    if (found) return found;
    result.push({});
    return result[result.length - 1];
  };
  for (const file of files) {
    const { modality: name, folders, rest } = readName(file.webkitRelativePath || file.name, modalities);
    if (!modalities.includes(name)) {
      const shot = open((each) => modalities.some((modality) => !each[modality]));
      shot[modalities.find((modality) => !shot[modality])] = file;
      continue;
    }
    const key = [...folders, rest].join("/");
    let shot = started.get(key);
    if (!shot || shot[name]) {
      const taken = new Set(started.values());
      shot = open((each) => !each[name] && !taken.has(each));
      started.set(key, shot);
    }
    shot[name] = file;
  }
  return result;
};

/**
 * Many files as samples: those whose paths differ in the modality alone are one. The first folder names the identity, a
 * second one the tracklet. `items` have a `path`; images that name no modality are of `usual`.
 * Gives the samples, and the files that are left out with a reason: image, several, unclear, unknown, twice or large.
 */
export const groupSamples = (items, modalities, usual, most) => {
  const samples = new Map();
  const leftOut = [];
  for (const item of items) {
    const { modality, folders, rest, unclear, several } = readName(item.path, modalities);
    const name = modality ?? usual;
    const key = [...folders, rest].join("/");
    const sample = samples.get(key);
    const why = [
      [!isImage(item.path), "image"], [several, "several"], [unclear, "unclear"], [!modalities.includes(name), "unknown"],
      [sample?.images[name], "twice"], [item.size > most / modalities.length, "large"],
    ].find(([holds]) => holds)?.[1];
    if (why) {
      leftOut.push({ path: item.path, why });
    } else if (sample) {
      sample.images[name] = item;
    } else {
      // Without a rest ("anna/0001/rgb.png") the last folder is the name of the sample.
      const [identity = "", ...others] = rest ? folders : folders.slice(0, -1);
      samples.set(key, { key, identity, group: others.length ? [identity, ...others].join("/") : "", images: { [name]: item } });
    }
  }
  return { samples: [...samples.values()].sort((a, b) => (a.key < b.key ? -1 : 1)), leftOut };
};
