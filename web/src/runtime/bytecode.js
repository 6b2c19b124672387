/**
 * Python's compiled modules, kept from one visit to the next. Compiling their sources takes longer than running them;
 * they depend on nothing but the interpreter and the wheels, whose hashes are the key.
 */

/** @typedef {import('../assets.js').Manifest} Manifest */

export const BYTECODE_CACHE = 'py-attn-bytecode';

/** @param {Manifest} manifest @param {string[]} names of what the bytecode depends on */
export function bytecodeKey(manifest, names) {
  return `/bytecode/${names.map((name) => manifest.assets[name]?.sha256.slice(0, 12)).join('-')}`;
}

/**
 * Puts an earlier visit's bytecode beside the unpacked wheels; false when there is none.
 * @param {any} python @param {string} key
 */
export async function restoreBytecode(python, key) {
  // From here on imports write what they compile.
  python.runPython('import sys; sys.dont_write_bytecode = False');
  try {
    const cache = await caches.open(BYTECODE_CACHE);
    const kept = await cache.match(key);
    if (!kept) return false;
    python.unpackArchive(await kept.arrayBuffer(), 'zip', { extractDir: '/' });
    return true;
  } catch {
    return false; // no storage, or a broken archive: the sources are there
  }
}

/** @param {any} python @param {string} key */
export async function keepBytecode(python, key) {
  /** @type {any} */
  let archive;
  try {
    const cache = await caches.open(BYTECODE_CACHE);
    archive = python.pyimport('py_attn.viewer.bytecode').collect();
    const bytes = archive.toJs();
    for (const old of await cache.keys()) await cache.delete(old);
    await cache.put(key, new Response(bytes));
  } catch {
    // The next visit compiles again.
  } finally {
    archive?.destroy();
  }
}
