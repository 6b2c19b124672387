/** Starts Python in the worker: one download of everything that is needed, counted in bytes, then named stages. */

import { bytecodeKey, keepBytecode, restoreBytecode } from './bytecode.js';
import { timed, watchImports, watchWebAssembly } from './profile.js';

/**
 * @typedef {import('../assets.js').Assets} Assets
 * @typedef {'download' | 'python' | 'packages' | 'gpu'} Stage
 * @typedef {{ stage: Stage, loaded: number, total: number, name: string }} BootProgress
 * @typedef {(progress: BootProgress) => void} OnBootProgress
 */

const WHEELS = ['numpy', 'markupsafe', 'jinja2', 'py_attn'];
/** What Pyodide fetches by itself. */
const PYODIDE_FILES = [
  { path: 'pyodide.asm.wasm', name: 'pyodide.asm.wasm', type: 'application/wasm' },
  { path: 'python_stdlib.zip', name: 'python_stdlib', type: 'application/zip' },
];

/**
 * @param {string} base the site's folder, with a slash at the end
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 * @param {boolean} profile whether to write down more than usual about this start
 * @returns {Promise<{ python: any, keep: () => Promise<void> }>} Pyodide with numpy and py_attn installed, and what to
 *   call once there is time, so that the next visit starts sooner
 */
export async function bootPython(base, assets, onProgress, profile) {
  if (profile) watchWebAssembly();
  const { files, finished } = await downloadAll(assets, onProgress);
  const indexURL = new URL('pyodide/', base).href;
  const restore = serveFetch(indexURL, files);
  try {
    const options = { indexURL, enableRunUntilComplete: false, ...(profile && watchImports()) };
    const loading = import(/* @vite-ignore */ `${indexURL}pyodide.mjs`).then(({ loadPyodide }) =>
      timed('start Pyodide', () => loadPyodide(options)),
    );
    await Promise.race([finished, loading]); // a failed download says more than what Pyodide makes of it
    onProgress({ stage: 'python', loaded: 0, total: 0, name: '' });
    const python = await loading;
    onProgress({ stage: 'packages', loaded: 0, total: 0, name: '' });
    for (const name of WHEELS) {
      const wheel = await files.get(name);
      timed(`unpack ${name}`, () => python.unpackArchive(wheel, 'wheel'));
    }
    const key = bytecodeKey(await assets.manifest(), [...PYODIDE_FILES.map(({ name }) => name), ...WHEELS]);
    const restored = await timed('restore bytecode', () => restoreBytecode(python, key));
    return { python, keep: async () => (restored ? undefined : keepBytecode(python, key)) };
  } finally {
    restore();
  }
}

/**
 * Starts all downloads at once.
 * @param {Assets} assets
 * @param {OnBootProgress} onProgress
 */
async function downloadAll(assets, onProgress) {
  const names = [...PYODIDE_FILES.map(({ name }) => name), ...WHEELS];
  const manifest = await timed('fetch manifest', () => assets.manifest());
  const total = names.reduce((sum, name) => sum + (manifest.assets[name]?.bytes ?? 0), 0);
  /** @type {Map<string, number>} */
  const loaded = new Map();
  let told = 0;
  /** @type {Map<string, Promise<ArrayBuffer>>} */
  const files = new Map();
  for (const name of names) {
    const loadFile = () => assets.fetch(name, {
      onProgress: (bytes) => {
        loaded.set(name, bytes);
        const sum = [...loaded.values()].reduce((a, b) => a + b, 0);
        if (performance.now() - told < 40 && sum < total) return;
        told = performance.now();
        onProgress({ stage: 'download', loaded: sum, total, name });
      },
    });
    const file = timed(`fetch ${name}`, loadFile);
    file.catch(() => {}); // awaited below; without this a second failure would count as unhandled
    files.set(name, file);
  }
  return { files, finished: Promise.all(files.values()) };
}

/**
 * Lets Pyodide's own requests be answered with the verified downloads; the result undoes it.
 * @param {string} indexURL
 * @param {Map<string, Promise<ArrayBuffer>>} files
 */
function serveFetch(indexURL, files) {
  const original = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const url = input instanceof Request ? input.url : String(input);
    // The downloads themselves come through here too; their addresses carry a hash.
    const file = PYODIDE_FILES.find(({ path }) => url === indexURL + path);
    if (!file) return original(input, init);
    return new Response(await files.get(file.name), { headers: { 'Content-Type': file.type } });
  };
  return () => {
    globalThis.fetch = original;
  };
}
