// Which file belongs to which modality and shot, by its name.

const SEPARATOR = /[^a-z0-9]+/;
// The words of slimreid.modalities; a test compares them.
export const ALIASES = {
  rgb: ["vis", "visible", "color", "colour"],
  nir: ["ni", "nearinfrared"],
  tir: ["ti", "th", "thermal", "lwir", "mwir"],
};

/** The modality that a file's path names ("NI/0001.jpg", "0001_thermal.png"), and the path without it. */
export const modalityOf = (path, modalities) => {
  const words = path.toLowerCase().split(SEPARATOR);
  for (const name of modalities) {
    const word = [name.toLowerCase(), ...(ALIASES[name] ?? [])].find((each) => words.includes(each));
    if (word) return { name, rest: words.filter((each) => each !== word).join("_") };
  }
  return { name: null, rest: words.join("_") };
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
    const { name, rest } = modalityOf(file.webkitRelativePath || file.name, modalities);
    if (name === null) {
      const shot = open((each) => modalities.some((modality) => !each[modality]));
      shot[modalities.find((modality) => !shot[modality])] = file;
      continue;
    }
    let shot = started.get(rest);
    if (!shot || shot[name]) {
      const taken = new Set(started.values());
      shot = open((each) => !each[name] && !taken.has(each));
      started.set(rest, shot);
    }
    shot[name] = file;
  }
  return result;
};
