// Files from wherever people have them: chosen, dropped with their folders, or in a zip, which is taken apart here.
// Each becomes an item: its path, its size, and `open()`, which gives the file when it is needed and not before.

const isHidden = (path) => path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX");
const isZip = (file) => /\.zip$/i.test(file.name);
const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);

const END = 0x06054b50; // of a zip: where its table of contents is
const ENTRY = 0x02014b50; // of the table of contents
const LOCAL = 0x04034b50; // before each file
const LONGEST_END = 22 + 0xffff;
const STORED = 0;
const DEFLATED = 8;

/** A zip that cannot be read. */
export class ZipProblem extends Error {}

const view = async (blob) => new DataView(await blob.arrayBuffer());

/** The table of contents of a zip, as bytes. */
const contentsOf = async (file) => {
  const start = Math.max(0, file.size - LONGEST_END);
  const tail = await view(file.slice(start));
  let at = tail.byteLength - 22;
  while (at >= 0 && tail.getUint32(at, true) !== END) at -= 1;
  if (at < 0) throw new ZipProblem(file.name);
  const [size, offset] = [tail.getUint32(at + 12, true), tail.getUint32(at + 16, true)];
  if (offset + size > start + at) throw new ZipProblem(file.name); // cut off, or larger than this reads
  return view(file.slice(offset, offset + size));
};

/** The content of an entry; raises where it is not what the table of contents says. */
const openEntry = async (file, { path, offset, packed, size, method }) => {
  const head = await view(file.slice(offset, offset + 30));
  if (head.byteLength < 30 || head.getUint32(0, true) !== LOCAL) throw new ZipProblem(path);
  const start = offset + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const raw = file.slice(start, start + packed);
  const content = method === STORED ? raw : await new Response(raw.stream().pipeThrough(new DecompressionStream("deflate-raw"))).blob().catch(() => null);
  if (content?.size !== size) throw new ZipProblem(path);
  return new File([content], nameOf(path));
};

const readZip = async (file) => {
  const table = await contentsOf(file);
  const items = [];
  for (let at = 0; at + 46 <= table.byteLength && table.getUint32(at, true) === ENTRY;) {
    const [method, packed, size] = [table.getUint16(at + 10, true), table.getUint32(at + 20, true), table.getUint32(at + 24, true)];
    const [name, extra, comment] = [28, 30, 32].map((place) => table.getUint16(at + place, true));
    const path = new TextDecoder().decode(new Uint8Array(table.buffer, table.byteOffset + at + 46, name)).replaceAll("\\", "/");
    const entry = { path, offset: table.getUint32(at + 42, true), packed, size, method };
    at += 46 + name + extra + comment;
    if (path.endsWith("/")) continue;
    if (method !== STORED && method !== DEFLATED) throw new ZipProblem(path);
    items.push({ path, size, open: () => openEntry(file, entry) });
  }
  return items;
};

const plain = (file, path) => ({ path, size: file.size, open: async () => file });

/** Items without a folder that holds all the others, where most lie in folders of their own: it says nothing of them. */
const withoutRoot = (items) => {
  const [first] = items[0]?.path.split("/") ?? [];
  const deep = items.filter(({ path }) => path.split("/").length > 2);
  const isRoot = 2 * deep.length > items.length && items.every(({ path }) => path.startsWith(`${first}/`));
  return isRoot ? items.map((item) => ({ ...item, path: item.path.slice(first.length + 1) })) : items;
};

/** All files of a folder that was dropped, below it; `entry` is what the browser gives for it. */
const walk = async (entry, path) => {
  if (entry.isFile) {
    const file = await new Promise((done, fail) => { entry.file(done, fail); });
    return [[file, path]];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((done, fail) => { reader.readEntries(done, fail); }); // a few at a time
    if (!some.length) break;
    found.push(...some);
  }
  const below = await Promise.all(found.map((each) => walk(each, path ? `${path}/${each.name}` : each.name)));
  return below.flat();
};

const asItems = async (pairs) => {
  const items = [];
  for (const [file, path] of pairs.filter(([, each]) => !isHidden(each))) {
    if (isZip(file)) items.push(...withoutRoot((await readZip(file)).filter((item) => !isHidden(item.path))));
    else items.push(plain(file, path));
  }
  return items.sort((a, b) => (a.path < b.path ? -1 : 1));
};

/** Items of files that were chosen; of a folder, what is below it. Raises `ZipProblem`. */
export const chosenItems = (files) =>
  asItems([...files].map((file) => [file, file.webkitRelativePath ? file.webkitRelativePath.split("/").slice(1).join("/") : file.name]));

/** Items of what was dropped. One folder is where things lie; several are themselves what names them. */
export const droppedItems = async (transfer) => {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return chosenItems(transfer.files);
  const alone = entries.length === 1 && entries[0].isDirectory;
  const pairs = await Promise.all(entries.map((entry) => walk(entry, alone ? "" : entry.name)));
  return asItems(pairs.flat());
};
