/** Starts Python in the worker: one download of everything that is needed, counted in bytes, then named stages. */

import { inflate, unpack } from './archive.js';
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
/** All other modules. */
const REST = 'python-rest';
/** Where the archives have the standard library, instead of the zip that Pyodide writes into its file system. */
const LIBRARY = '/lib/python';
const EMPTY_ZIP = new Uint8Array(22);
EMPTY_ZIP.set([0x50, 0x4b, 5, 6]); // the end of a directory without entries

/**
 * @param {string} base the site's folder, with a slash at the end
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 * @param {boolean} profile whether to write down more than usual about this start
 * @returns {Promise<any>} Pyodide with numpy and py_attn installed; `loadRest` brings what a start does without
 */
export async function bootPython(base, assets, onProgress, profile) {
  if (profile) watchWebAssembly();
  const { interpreter, start, finished } = await downloadAll(assets, onProgress);
  const archive = start.then((bytes) => timed('inflate', () => inflate(bytes)));
  const complete = Promise.all([finished, archive]);
  const indexURL = new URL('pyodide/', base).href;
  const restore = answerFetch({
    [`${indexURL}${INTERPRETER}`]: async () => asWebAssembly((await interpreter).response),
    [`${indexURL}python_stdlib.zip`]: async () => new Response(EMPTY_ZIP),
  });
  const options = {
    indexURL,
    env: { PYTHONPATH: LIBRARY },
    enableRunUntilComplete: false,
    fsInit: async (/** @type {any} */ FS) => {
      // Without its library Python does not begin, and `complete` says why.
      const bytes = await archive.catch(() => new Promise(() => {}));
      timed('unpack', () => unpack(FS, bytes));
    },
    ...(profile && watchImports()),
  };
  try {
    const loading = import(/* @vite-ignore */ `${indexURL}pyodide.mjs`).then(({ loadPyodide }) =>
      timed('start Pyodide', () => loadPyodide(options)),
    );
    await Promise.race([complete, loading]); // the error of a failed download says more than Pyodide's
    onProgress({ stage: 'python', loaded: 0, total: 0, name: '' });
    await complete;
    return await loading;
  } finally {
    restore();
  }
}

/**
 * Loads the modules that were not needed so far.
 * @param {any} python
 * @param {Assets} assets
 */
export async function loadRest(python, assets) {
  unpack(python.FS, await inflate(await assets.fetch(REST)));
  python.runPython('import importlib; importlib.invalidate_caches()');
}

/**
 * Starts all downloads at once.
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 */
async function downloadAll(assets, onProgress) {
  const names = [INTERPRETER, START];
  const manifest = await timed('fetch manifest', () => assets.manifest());
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
  const start = timed(`fetch ${START}`, () => assets.fetch(START, { onProgress: progressOf(START) }));
  const interpreter = assets.stream(INTERPRETER, { onProgress: progressOf(INTERPRETER) });
  const verified = timed(`fetch ${INTERPRETER}`, () => interpreter.then((found) => found.verified));
  const finished = Promise.all([start, verified]);
  finished.catch(() => {}); // awaited by the caller; without this a failure before that would count as unhandled
  return { interpreter, start, finished };
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
