import * as Comlink from 'comlink';
import { createAssets } from './assets.js';
import { createBridge } from './bridge.js';

/** @type {any} */
let python;
/** @type {any} */
let namespace;

const runtime = {
  /**
   * @param {string} base
   * @param {(line: string) => void} say
   */
  async boot(base, say) {
    const assets = createAssets(base);
    say('Python');
    const indexURL = new URL('pyodide/', base).href;
    const { loadPyodide } = await import(/* @vite-ignore */ `${indexURL}pyodide.mjs`);
    python = await loadPyodide({ indexURL });
    for (const name of ['numpy', 'markupsafe', 'jinja2', 'py_attn']) {
      say(name);
      python.unpackArchive(await assets.fetch(name), 'wheel');
    }
    const fetchAsset = (/** @type {string} */ name, /** @type {any} */ onProgress) => assets.fetch(name, { onProgress });
    Object.assign(globalThis, { pyAttnBridge: createBridge({ fetchAsset }) });
    namespace = python.globals.get('dict')();
    const numpy = python.runPython('import numpy; numpy.__version__');
    say('GPU');
    /** @type {any} */
    let info = { adapter: 'none', software: false, features: [] };
    try {
      info = await runtime.run(`
import py_attn as pa
device = await pa.request_device()
i = device.info
{"adapter": f"{i.vendor} {i.architecture} {i.description}", "software": i.software, "features": sorted(i.features)}`);
    } catch (error) {
      console.warn(String(error));
    }
    return { ...info, versions: { pyodide: python.version, numpy } };
  },

  /** @param {string} source */
  async run(source) {
    const result = await python.runPythonAsync(source, { globals: namespace });
    if (!result?.toJs) return result;
    const data = result.toJs({ dict_converter: Object.fromEntries, create_pyproxies: false });
    result.destroy();
    return data;
  },
};

/** @typedef {typeof runtime} Runtime */
Comlink.expose(runtime);
