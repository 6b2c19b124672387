/**
 * An image of Python: its memory as it is after the imports of a start. The build writes it (scripts/image.js), and a visit that has
 * it from the one before puts it back, in place of starting Python and importing everything again.
 *
 * Python's memory points to functions by their places in WebAssembly's function table. Here and at the build this table is
 * therefore filled in the same order: the interpreter's own functions, those that Pyodide adds, and those of the shared libraries, which are loaded
 * before Python begins rather than when they are imported. A table of another length belongs to a browser that Pyodide treats
 * differently, which starts Python as usual.
 *
 * Pyodide does not document its options for snapshots of memory, nor what of Emscripten's is used here: another version of it has to be
 * tried out.
 */

import { filesOf, unpack } from './archive.js';

/** Files in an image's archive, besides those that Python reads later. */
const MEMORY = 'memory';
const PAGES = 'memory.pages';
const FACTS = 'memory.json';
/** Bytes. Nearly half of the pages have nothing but zeros, and are left out. */
const PAGE = 4096;

/**
 * What has to be the same before Python begins, at the build and in a page.
 * @typedef {{ tableLength: number, sum: number }} Facts `tableLength`: places in the function table; `sum`: of memory's 32-bit words
 */

const SHARED_LIBRARY = '.so';
/** A module with a type that only garbage collection of WebAssembly has. */
const WITH_STRUCT = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 95, 1, 120, 0]);

/** An image does not fit this browser. */
export class ImageError extends Error {
  name = 'ImageError';
}

/**
 * Whether Pyodide adds to the function table what it adds at the build: a function that needs garbage collection of WebAssembly and that
 * it does without on iOS, which it recognises in this way.
 */
export function canRestore() {
  const { userAgent = '', platform = '', maxTouchPoints = 0 } = globalThis.navigator ?? {};
  const isIOS = /iPad|iPhone|iPod/.test(userAgent) || (platform === 'MacIntel' && maxTouchPoints > 1);
  return !isIOS && WebAssembly.validate(WITH_STRUCT);
}

/**
 * Compiles the shared libraries among files.
 * @param {Iterable<import('./archive.js').ArchivedFile>} files
 * @returns {Library[]}
 * @typedef {{ path: string, compiled: Promise<WebAssembly.Module> }} Library
 */
export function compileLibraries(files) {
  const libraries = Array.from(files).filter(({ path }) => path.endsWith(SHARED_LIBRARY));
  return libraries.map(({ path, content }) => {
    const compiled = WebAssembly.compile(content);
    compiled.catch(() => {}); // who loads them is told
    return { path, compiled };
  });
}

/**
 * Loads shared libraries, to be called before Python begins.
 * @param {any} module Emscripten's
 * @param {Library[]} libraries
 * @returns {Promise<Facts>}
 */
export async function loadLibraries(module, libraries) {
  for (const { path, compiled } of libraries) {
    const exports = await module.loadWebAssemblyModule(await compiled, { loadAsync: true }, path, {});
    // When Python opens this file, it is open already.
    Object.assign(module.newDSO(path, undefined, exports), { global: false });
    // Python asks for this function by its name then, and so it has its place in the table.
    const name = Object.keys(exports).find((one) => one.startsWith('PyInit_')) ?? '';
    module.addFunction(exports[name]);
  }
  return { tableLength: module.wasmTable.length, sum: sumOf(usedMemory(module)) };
}

/** What of memory is not zero before Python begins: all that lies below the heap. @param {any} module Emscripten's @returns {Uint32Array} */
export function usedMemory(module) {
  return module.HEAPU32.subarray(0, module.HEAPU32[module._emscripten_get_sbrk_ptr() / 4] / 4);
}

/**
 * What can be done with an image before the interpreter is there.
 * @param {Uint8Array<ArrayBuffer>} archive
 * @returns {Image}
 * @throws {ImageError}
 * @typedef {{ snapshot: Uint8Array<ArrayBuffer>, expected: Facts, files: import('./archive.js').ArchivedFile[], libraries: Library[] }} Image
 */
export function openImage(archive) {
  const contents = new Map(Array.from(filesOf(archive), ({ path, content }) => [path, content]));
  const [memory, pages, facts] = [MEMORY, PAGES, FACTS].map((name) => taken(contents, `/${name}`));
  // Copies, as the memory would otherwise be kept with the files beside it.
  const files = Array.from(contents, ([path, content]) => ({ path, content: content.slice() }));
  const libraries = compileLibraries(files);
  return { snapshot: withZeros(memory, pages), expected: JSON.parse(new TextDecoder().decode(facts)), files, libraries };
}

/**
 * Prepares Pyodide, in whose `fsInit` this is called, for restoring an image. `loadPyodide` needs `RESTORING` among its options.
 * @param {any} module Emscripten's
 * @param {Image} image
 * @throws {ImageError}
 */
export async function restore(module, { snapshot, expected, files, libraries }) {
  unpack(module.FS, files);
  const { tableLength, sum } = await loadLibraries(module, libraries);
  if (tableLength !== expected.tableLength || sum !== expected.sum) {
    throw new ImageError(`${tableLength} functions and memory's sum ${sum}, expected ${expected.tableLength} and ${expected.sum}`);
  }
  difference(snapshot, usedMemory(module));
  if (!module.growMemory(snapshot.length)) throw new ImageError(`there is no room for ${snapshot.length} bytes of memory`);
  const { API } = module;
  const { restoreSnapshot } = API;
  API.restoreSnapshot = () => {
    const references = restoreSnapshot(snapshot);
    readTimeZone(module);
    return references;
  };
}

/** The C library asks for the time zone once, which was at the build. @param {any} module Emscripten's */
function readTimeZone(module) {
  const { timezone, daylight, tzname } = module.LDSO.loadedLibsByName.__main__.exports;
  const at = tzname.value / 4;
  module.__tzset_js(timezone.value, daylight.value, module.HEAPU32[at], module.HEAPU32[at + 1]);
}

/** What makes Pyodide restore memory: which one, it learns from `restore`, so that the interpreter is compiled while an image arrives. */
export const RESTORING = { _loadSnapshot: new Uint8Array() };

/** Python code that renews what should differ from one visit, or one machine, to the next. */
export const RENEW = `
def renew():
    import random, time
    random.seed()
    noons = [time.localtime(time.mktime((time.localtime().tm_year, month, 1, 12, 0, 0, 0, 0, -1))) for month in (1, 7)]
    standard, summer = sorted(noons, key=lambda noon: noon.tm_gmtoff)
    time.timezone, time.altzone = -standard.tm_gmtoff, -summer.tm_gmtoff
    time.tzname = standard.tm_zone, summer.tm_zone
    time.daylight = int(standard.tm_gmtoff != summer.tm_gmtoff)

renew()
del renew
`;

/**
 * What in a snapshot differs from memory before Python begins: the rest comes with WebAssembly's modules anyway. Works in place, and undoes itself.
 * @param {Uint8Array<ArrayBuffer>} snapshot as Pyodide writes it: its second word is the length of its header
 * @param {Uint32Array} before
 */
export function difference(snapshot, before) {
  const header = new Uint32Array(snapshot.buffer, snapshot.byteOffset, 2)[1];
  const words = new Uint32Array(snapshot.buffer, snapshot.byteOffset + header, before.length);
  for (let at = 0; at < before.length; at++) words[at] ^= before[at];
}

/**
 * The files of an image that `restore` reads, by their names in its archive.
 * @param {Uint8Array<ArrayBuffer>} snapshot what `difference` left of it
 * @param {Facts} facts
 * @returns {Record<string, Uint8Array>} pages that are not zeros; the snapshot's length and the numbers of these pages as 32-bit words; facts as JSON
 */
export function filesOfImage(snapshot, facts) {
  const count = Math.ceil(snapshot.length / PAGE);
  const partOf = (/** @type {number} */ page) => snapshot.subarray(page * PAGE, (page + 1) * PAGE);
  const pages = Array.from({ length: count }, (_, page) => page).filter((page) => partOf(page).some((byte) => byte !== 0));
  const memory = new Uint8Array(pages.length * PAGE);
  for (const [n, page] of pages.entries()) memory.set(partOf(page), n * PAGE);
  return {
    [MEMORY]: memory,
    [PAGES]: new Uint8Array(Uint32Array.of(snapshot.length, ...pages).buffer),
    [FACTS]: new TextEncoder().encode(JSON.stringify(facts)),
  };
}

/** The whole snapshot. @param {Uint8Array} memory @param {Uint8Array} pages */
function withZeros(memory, pages) {
  const [length, ...numbers] = new Uint32Array(pages.slice().buffer);
  const snapshot = new Uint8Array(length);
  for (const [n, page] of numbers.entries()) {
    const at = page * PAGE;
    snapshot.set(memory.subarray(n * PAGE, n * PAGE + Math.min(PAGE, length - at)), at);
  }
  return snapshot;
}

/** @param {Uint32Array} words */
function sumOf(words) {
  let sum = 0;
  // An iterator would take ten times as long before it is optimised.
  for (let at = 0; at < words.length; at++) sum = (sum + words[at]) | 0;
  return sum;
}

/** @param {Map<string, Uint8Array<ArrayBuffer>>} contents @param {string} path */
function taken(contents, path) {
  const content = contents.get(path);
  if (!content) throw new ImageError(`the image has no ${path}`);
  contents.delete(path);
  return content;
}
