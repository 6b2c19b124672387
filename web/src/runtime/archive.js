/** The archives that scripts/pack.js makes: tar files, compressed as one stream. */

const BLOCK = 512;
/** Where they have Python's standard library, in place of the zip that Pyodide writes into its file system. */
export const LIBRARY = '/lib/python';
/** A zip without files: the end of a directory. */
export const EMPTY_ZIP = new Uint8Array(22);
EMPTY_ZIP.set([0x50, 0x4b, 5, 6]);

/**
 * A gzip file's content. Written and read by hand: going through a Blob and a Response takes twice as long.
 * @param {ArrayBuffer} compressed
 */
export async function inflate(compressed) {
  const { readable, writable } = new DecompressionStream('gzip');
  const writer = writable.getWriter();
  const written = writer.write(new Uint8Array(compressed)).then(() => writer.close());
  written.catch(() => {}); // reading fails then too, and says why
  // The last four bytes of the format are the content's size.
  const content = new Uint8Array(new DataView(compressed).getUint32(compressed.byteLength - 4, true));
  const reader = readable.getReader();
  for (let at = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    content.set(value, at);
    at += value.length;
  }
  await written;
  return content;
}

/** @typedef {{ path: string, content: Uint8Array<ArrayBuffer> }} ArchivedFile */

/**
 * Puts files into Pyodide's file system, which goes on to use their memory.
 * @param {any} FS Emscripten's
 * @param {Iterable<ArchivedFile>} files
 */
export function unpack(FS, files) {
  const folders = new Set();
  for (const { path, content } of files) {
    const folder = path.slice(0, path.lastIndexOf('/'));
    if (!folders.has(folder)) FS.mkdirTree(folder);
    folders.add(folder);
    FS.writeFile(path, content, { canOwn: true });
  }
}

/**
 * The regular files of a tar archive in the form that POSIX calls ustar. Their contents are parts of the archive.
 * @param {Uint8Array<ArrayBuffer>} archive
 * @returns {Generator<ArchivedFile>}
 */
export function* filesOf(archive) {
  const decoder = new TextDecoder();
  const text = (/** @type {number} */ at, /** @type {number} */ length) =>
    decoder.decode(archive.subarray(at, at + length)).replace(/\0.*$/su, '');
  for (let at = 0; archive[at]; ) {
    const size = Number.parseInt(text(at + 124, 12), 8);
    const folder = text(at + 345, 155);
    const content = archive.subarray(at + BLOCK, at + BLOCK + size);
    yield { path: `/${folder && `${folder}/`}${text(at, 100)}`, content };
    at += BLOCK + Math.ceil(size / BLOCK) * BLOCK;
  }
}
