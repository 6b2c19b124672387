/**
 * Files that the site keeps for itself in the browser's origin private file system, from which a worker reads several times faster than from
 * the Cache API (bench/NOTES.md, 2026-11-26). Only workers can, and private windows of some browsers cannot; there nothing is kept.
 */

const FOLDER = 'py-attn';
/**
 * Bytes in front of a content: its length as a 32-bit word. It is written last, so that a file whose writing was broken off is not
 * taken for a whole one.
 */
const HEADER = 4;

/** @param {boolean} [create] @returns {Promise<any>} the folder's handle */
async function openFolder(create = false) {
  const root = await navigator.storage.getDirectory();
  return root.getDirectoryHandle(FOLDER, { create });
}

/** Whether files can be kept here. */
export async function canKeepFiles() {
  try {
    await openFolder(true);
    return 'createSyncAccessHandle' in FileSystemFileHandle.prototype;
  } catch {
    return false;
  }
}

/**
 * Keeps a file, and removes earlier versions of it.
 * @param {string} name
 * @param {string} version
 * @param {Uint8Array} content
 */
export async function keepFile(name, version, content) {
  try {
    const folder = await openFolder(true);
    for (const earlier of await namesOf(folder)) {
      if (earlier.startsWith(`${name} `)) await folder.removeEntry(earlier);
    }
    const handle = await folder.getFileHandle(`${name} ${version}`, { create: true });
    const file = await handle.createSyncAccessHandle();
    try {
      file.write(content, { at: HEADER });
      file.flush();
      file.write(Uint32Array.of(content.length), { at: 0 });
    } finally {
      file.close();
    }
  } catch {
    // A full disk, a private window, or another tab that is writing it.
  }
}

/** Removes all that is kept. */
export async function forgetFiles() {
  try {
    const folder = await openFolder();
    for (const name of await namesOf(folder)) await folder.removeEntry(name);
  } catch {
    // There is nothing, or it cannot be reached.
  }
}

/** @param {any} folder @returns {Promise<string[]>} */
async function namesOf(folder) {
  const names = [];
  for await (const name of folder.keys()) names.push(name);
  return names;
}

/**
 * What reads a file that is kept, or nothing where it is not. It rejects where the file is not whole, and removes it.
 * @param {string} name
 * @param {string} version
 * @returns {Promise<(() => Promise<Uint8Array<ArrayBuffer>>) | undefined>}
 */
export async function keptFile(name, version) {
  try {
    const folder = await openFolder();
    const handle = await folder.getFileHandle(`${name} ${version}`);
    return () => read(folder, handle);
  } catch {
    return undefined;
  }
}

/** @param {any} folder @param {any} handle */
async function read(folder, handle) {
  // Tabs may read at the same time where the browser knows this mode.
  const file = await handle.createSyncAccessHandle({ mode: 'read-only' });
  const bytes = new Uint8Array(file.getSize());
  try {
    file.read(bytes, { at: 0 });
  } finally {
    file.close();
  }
  if (bytes.length < HEADER || new DataView(bytes.buffer).getUint32(0, true) !== bytes.length - HEADER) {
    await folder.removeEntry(handle.name);
    throw new Error(`${handle.name} was not written to its end`);
  }
  return bytes.subarray(HEADER);
}
