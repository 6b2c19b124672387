/** The archives that scripts/pack.js makes: tar files, compressed as one stream. */

const BLOCK = 512;

/** @param {ArrayBuffer} compressed @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function inflate(compressed) {
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Puts the files into Pyodide's file system, which goes on to use the archive's memory.
 * @param {any} FS Emscripten's
 * @param {Uint8Array<ArrayBuffer>} archive
 */
export function unpack(FS, archive) {
  const folders = new Set();
  for (const { path, content } of filesOf(archive)) {
    const folder = path.slice(0, path.lastIndexOf('/'));
    if (!folders.has(folder)) FS.mkdirTree(folder);
    folders.add(folder);
    FS.writeFile(path, content, { canOwn: true });
  }
}

/** The regular files of a tar archive in the form that POSIX calls ustar. @param {Uint8Array<ArrayBuffer>} archive */
function* filesOf(archive) {
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
