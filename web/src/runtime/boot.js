/** Starts Python in the worker: one download of everything that is needed, counted in bytes, then named stages. */

import { AssetError } from '../assets.js';
import { EMPTY_ZIP, LIBRARY, filesOf, inflate, unpack } from './archive.js';
import { RENEW, RESTORING, canRestore, openImage, restore } from './image.js';
import { timed, watchImports, watchWebAssembly } from './profile.js';

/**
 * @typedef {import('../assets.js').Assets} Assets
 * @typedef {'download' | 'python' | 'packages' | 'gpu'} Stage
 * @typedef {{ stage: Stage, loaded: number, total: number, name: string }} BootProgress
 * @typedef {(progress: BootProgress) => void} OnBootProgress
 */

export const INTERPRETER = 'pyodide.asm.wasm';
/** The standard library and the packages; of modules only those that a start imports, compiled. */
export const START = 'python-start';
/** The same with these modules imported already: Python's memory in place of bytecode. It is larger, so it is for later visits. */
const IMAGE = 'python-image';
/** All other modules. */
const REST = 'python-rest';

/**
 * @param {string} base the site's folder, with a slash at the end
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 * @param {boolean} profile whether to write down more than usual about this start
 * @returns {Promise<any>} Pyodide with numpy and py_attn installed; `loadRest` brings what a start does without
 */
export async function bootPython(base, assets, onProgress, profile) {
  if (profile) watchWebAssembly();
  await timed('fetch manifest', () => assets.manifest());
  const readImage = canRestore() ? await assets.prepared(IMAGE) : undefined;
  if (readImage) {
    try {
      return await startFrom(readImage, base, assets, onProgress, profile);
    } catch (error) {
      if (error instanceof AssetError) throw error; // the interpreter is not there
      console.info(`py-attn: Python starts without its image: ${error instanceof Error ? error.message : error}`);
    }
  }
  return startFrom(undefined, base, assets, onProgress, profile);
}

/**
 * @param {(() => Promise<Uint8Array<ArrayBuffer>>) | undefined} readImage reads the image that was kept; without one Python starts from bytecode
 * @param {string} base
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 * @param {boolean} profile
 * @returns {Promise<any>} Pyodide
 */
async function startFrom(readImage, base, assets, onProgress, profile) {
  const { interpreter, packed, finished } = await downloadAll(readImage ? [] : [START], assets, onProgress);
  const source = readImage ? fromImage(readImage) : fromArchive(packed[0]);
  const complete = Promise.all([finished, source.downloaded]);
  const indexURL = new URL('pyodide/', base).href;
  const undo = answerFetch({
    [`${indexURL}${INTERPRETER}`]: async () => asWebAssembly((await interpreter).response),
    [`${indexURL}python_stdlib.zip`]: async () => new Response(EMPTY_ZIP),
  });
  /** @type {any} Emscripten's */
  let module;
  let refuse = (/** @type {unknown} */ _reason) => {};
  const refused = new Promise((_resolve, reject) => {
    refuse = reject;
  });
  refused.catch(() => {}); // a failed download is reported by `complete`
  const options = {
    indexURL,
    env: { PYTHONPATH: LIBRARY },
    enableRunUntilComplete: false,
    createPyodideModule: async (/** @type {any} */ settings) => {
      module = settings;
      return (await import(/* @vite-ignore */ `${indexURL}pyodide.asm.mjs`)).default(settings);
    },
    fsInit: async () => {
      try {
        await source.fill(module);
      } catch (error) {
        refuse(error);
        await new Promise(() => {}); // without its library or its memory Python does not begin
      }
    },
    ...(readImage && RESTORING),
    ...(profile && watchImports()),
  };
  try {
    const loading = import(/* @vite-ignore */ `${indexURL}pyodide.mjs`).then(({ loadPyodide }) =>
      timed('start Pyodide', () => loadPyodide(options)),
    );
    await Promise.race([complete, loading]); // the error of a failed download says more than Pyodide's
    onProgress({ stage: 'python', loaded: 0, total: 0, name: '' });
    await complete;
    const python = await Promise.race([loading, refused]);
    if (readImage) python.runPython(RENEW);
    return python;
  } finally {
    undo();
  }
}

/**
 * Loads the modules that were not needed so far.
 * @param {any} python
 * @param {Assets} assets
 */
export async function loadRest(python, assets) {
  unpack(python.FS, filesOf(await inflate(await assets.fetch(REST))));
  python.runPython('import importlib; importlib.invalidate_caches()');
}

/**
 * Downloads the image for later visits, unless these would not find it or want few downloads. It is kept inflated, as inflating takes longer
 * than reading more bytes.
 * @param {Assets} assets
 */
export async function keepImage(assets) {
  const { saveData } = /** @type {any} */ (navigator).connection ?? {};
  // The development server has no image, since py_attn changes there.
  const offered = IMAGE in (await assets.manifest()).assets;
  if (!offered || saveData || !canRestore() || !(await assets.isKept(START))) return;
  await timed('fetch image for later', () => assets.prepare(IMAGE, inflate));
}

/**
 * What puts Python's library, and an image its memory too, into Pyodide before Python begins.
 * @typedef {{ downloaded?: Promise<unknown>, fill: (module: any) => Promise<void> }} Source `downloaded` rejects where a download fails
 */

/** @param {() => Promise<Uint8Array<ArrayBuffer>>} readImage @returns {Source} */
function fromImage(readImage) {
  const arrived = timed('read image', readImage).then((archive) => timed('open image', () => openImage(archive)));
  const fill = async (/** @type {any} */ module) => {
    const opened = await arrived;
    await timed('load libraries', () => restore(module, opened));
  };
  // `fill` tells of an image that cannot be read: when the interpreter is there, so that starting again finds nothing going on.
  arrived.catch(() => {});
  return { fill };
}

/** @param {Promise<ArrayBuffer>} packed the first archive, compressed @returns {Source} */
function fromArchive(packed) {
  const arrived = packed.then((bytes) => timed('inflate', () => inflate(bytes)));
  const fill = async (/** @type {any} */ module) => {
    const archive = await arrived;
    timed('unpack', () => unpack(module.FS, filesOf(archive)));
  };
  return { downloaded: arrived, fill };
}

/**
 * Starts all downloads at once: the interpreter's and those of archives.
 * @param {string[]} archives
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 */
async function downloadAll(archives, assets, onProgress) {
  const names = [INTERPRETER, ...archives];
  const manifest = await assets.manifest();
  const total = names.reduce((sum, name) => sum + (manifest.assets[name]?.bytes ?? 0), 0);
  /** @type {Map<string, number>} */
  const loaded = new Map();
  let told = 0;
  const progressOf = (/** @type {string} */ name) => (/** @type {number} */ bytes) => {
    loaded.set(name, bytes);
    const sum = [...loaded.values()].reduce((a, b) => a + b, 0);
    if (performance.now() - told < 40 && sum < total) return;
    told = performance.now();
    onProgress({ stage: 'download', loaded: sum, total, name });
  };
  const packed = archives.map((name) => timed(`fetch ${name}`, () => assets.fetch(name, { onProgress: progressOf(name) })));
  const interpreter = assets.stream(INTERPRETER, { onProgress: progressOf(INTERPRETER) });
  const verified = timed(`fetch ${INTERPRETER}`, () => interpreter.then((found) => found.verified));
  const finished = Promise.all([...packed, verified]);
  finished.catch(() => {}); // awaited by the caller; without this a failure before that would count as unhandled
  return { interpreter, packed, finished };
}

/**
 * As WebAssembly can be compiled while it arrives; a server may say that it is something else.
 * @param {Response} response
 */
function asWebAssembly(response) {
  const headers = { 'Content-Type': 'application/wasm' };
  return response.headers.get('Content-Type') === headers['Content-Type'] ? response : new Response(response.body, { headers });
}

/**
 * Lets Pyodide's own requests be answered with what is here, its interpreter's with the verified download; the result
 * undoes it.
 * @param {Record<string, () => Promise<Response>>} answers by their addresses
 */
function answerFetch(answers) {
  const original = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    // The downloads themselves come through here too; their addresses carry a hash.
    const answer = answers[input instanceof Request ? input.url : String(input)];
    return answer ? answer() : original(input, init);
  };
  return () => {
    globalThis.fetch = original;
  };
}
