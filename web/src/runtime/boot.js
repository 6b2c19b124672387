/** Starts Python in the worker: one download of everything that is needed, counted in bytes, then named stages. */

import { EMPTY_ZIP, LIBRARY, filesOf, inflate, unpack } from './archive.js';
import { ImageError, RENEW, RESTORING, canRestore, restore } from './image.js';
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
  if (canRestore() && (await assets.isKept(IMAGE))) {
    try {
      return await startFrom(IMAGE, base, assets, onProgress, profile);
    } catch (error) {
      if (!(error instanceof ImageError)) throw error;
      console.info(`py-attn: Python starts without its image: ${error.message}`);
    }
  }
  return startFrom(START, base, assets, onProgress, profile);
}

/**
 * @param {typeof IMAGE | typeof START} name of the archive
 * @param {string} base
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 * @param {boolean} profile
 * @returns {Promise<any>} Pyodide
 */
async function startFrom(name, base, assets, onProgress, profile) {
  const { interpreter, packed, finished } = await downloadAll(name, assets, onProgress);
  const archive = packed.then((bytes) => timed('inflate', () => inflate(bytes)));
  const complete = Promise.all([finished, archive]);
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
    fsInit: async (/** @type {any} */ FS) => {
      try {
        const bytes = await archive;
        if (name === IMAGE) await timed('load libraries', () => restore(module, bytes));
        else timed('unpack', () => unpack(FS, filesOf(bytes)));
      } catch (error) {
        refuse(error);
        await new Promise(() => {}); // without its library or its memory Python does not begin
      }
    },
    ...(name === IMAGE && RESTORING),
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
    if (name === IMAGE) python.runPython(RENEW);
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
 * Downloads the image for the next visit, unless that would not find it or wants few downloads.
 * @param {Assets} assets
 */
export async function keepImage(assets) {
  const { saveData } = /** @type {any} */ (navigator).connection ?? {};
  // The development server has no image, since py_attn changes there.
  const offered = IMAGE in (await assets.manifest()).assets;
  if (!offered || saveData || !canRestore() || !(await assets.isKept(START)) || (await assets.isKept(IMAGE))) return;
  await timed('fetch image for later', () => assets.fetch(IMAGE));
}

/**
 * Starts all downloads at once.
 * @param {string} archive
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 */
async function downloadAll(archive, assets, onProgress) {
  const names = [INTERPRETER, archive];
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
  const packed = timed(`fetch ${archive}`, () => assets.fetch(archive, { onProgress: progressOf(archive) }));
  const interpreter = assets.stream(INTERPRETER, { onProgress: progressOf(INTERPRETER) });
  const verified = timed(`fetch ${INTERPRETER}`, () => interpreter.then((found) => found.verified));
  const finished = Promise.all([packed, verified]);
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
