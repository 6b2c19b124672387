/** The worker: runs Python, which uses the GPU through the bridge. The page calls it through Comlink. */

import * as Comlink from 'comlink';
import { createAssets } from './assets.js';
import { createBridge } from './bridge.js';
import { whyNoWebGPU } from './gpu/adapter.js';
import { createNotes } from './notes.js';
import { START, bootPython, keepImage, loadRest } from './runtime/boot.js';
import { createEarlyPipelines } from './runtime/early-pipelines.js';
import { createFirsts } from './runtime/firsts.js';
import { createOutput } from './runtime/output.js';
import { keepImport, readProfile, timed } from './runtime/profile.js';

/**
 * @typedef {{ adapter: string, features: string[], software: boolean, versions: Record<string, string>,
 *   webgpu: boolean, reason: string, variants: string[],
 *   operations?: Record<string, OperationInfo> }} Info
 * @typedef {{ label: string, call: string, about: string }} OperationInfo what else the kernel panel can time
 * @typedef {{ onProgress: import('./runtime/boot.js').OnBootProgress,
 *   onOutput: (lines: import('./runtime/output.js').Line[]) => void,
 *   onOpened: (source: import('./types').SourceInfo) => void,
 *   onLost: (reason: string) => void }} Listeners
 */

/** @type {any} Pyodide */
let python;
/** @type {any} py_attn.viewer.Viewer */
let viewer;
/** @type {Map<number, any>} a Viewer for each file, on the same device */
const fileViewers = new Map();
let lastNumber = 0;
/** @type {ReturnType<typeof createAssets>} */
let assets;
/** @type {ReturnType<typeof createOutput>} */
let output;
/** @type {Listeners['onOpened']} */
let tellOpened;
/** Imported one by one, so that the profile of a start says what each takes. */
const PACKAGES = ['numpy', 'jinja2', 'py_attn', 'py_attn.viewer'];
/**
 * The methods that need no other modules than a start, as Python's table says (py_attn/viewer/methods.py), each with the
 * method whose first answer it waits for ('' for none): at its start the page asks for everything at once, and compiling
 * the kernels of the other panels would delay the map in focus.
 * @type {Record<string, string | undefined>}
 */
let earlyMethods = {};
/** The methods of the first map, whose pipelines are compiled early. */
const DRAWING = new Set(['legend', 'window']);
/** What is out of sight is never asked for. */
const MOST_WAITED_MS = 1000;
const firstAnswers = createFirsts();
/** @type {ReturnType<typeof createEarlyPipelines>} */
let pipelines;
/** Resolves when those are compiled; the first map waits for them rather than compile them again. */
let compiled = Promise.resolve();
/** A list that does not arrive, or a compiler that takes this long, is not waited for. */
const MOST_COMPILED_MS = 2000;
/** By then all maps of the start are drawn. A call that needs these modules sooner loads them itself, and reports a failure. */
const REST_AFTER_MS = 2000;
/** Whether the first map has been answered. */
let ended = false;
/** Whether later visits are to start faster. */
let isForLater = false;
/** @type {Promise<void> | undefined} resolves when the modules are loaded that a start does not need */
let rest;
/** @type {AbortController | undefined} of the load of the model that is in progress */
let load;

const worker = {
  /**
   * @param {string} base the site's folder
   * @param {Listeners} listeners
   * @param {import('./runtime/client.js').StartOptions} options
   * @returns {Promise<Info>}
   */
  async boot(base, { onProgress, onOutput, onOpened, onLost }, { profile = false, forLater = false }) {
    tellOpened = onOpened;
    isForLater = forLater;
    assets = createAssets(base);
    output = createOutput(onOutput);
    installBridge(onLost);
    python = await bootPython(base, assets, onProgress, profile);
    onProgress({ stage: 'packages', loaded: 0, total: 0, name: '' });
    python.setStdout({ batched: (/** @type {string} */ text) => output.print('out', text) });
    python.setStderr({ batched: (/** @type {string} */ text) => keepImport(text) || output.print('err', text) });
    for (const name of PACKAGES) {
      timed(`import ${name}`, () => python.pyimport(name).destroy());
      // The GPU may have answered meanwhile: then the first map's pipelines are compiled while the next package is imported.
      await new Promise((resolve) => setTimeout(resolve));
    }
    viewer = python.pyimport('py_attn.viewer').Viewer();
    earlyMethods = toPlain(viewer.early_methods);
    // What was imported stays: collections need not look at all of it each time.
    python.pyimport('gc').freeze();
    onProgress({ stage: 'gpu', loaded: 0, total: 0, name: '' });
    return worker.renew();
  },

  /** Requests a (new) device, and describes it. @returns {Promise<Info>} */
  async renew() {
    const info = await worker.call('connect', {});
    for (const number of fileViewers.keys()) renewFileViewer(number);
    const reason = info.webgpu ? '' : whyNoWebGPU() || info.reason;
    return { ...info, reason, versions: { ...info.versions, pyodide: python.version } };
  },

  /**
   * Runs Python in the console's namespace; gives its last expression as plain data.
   * @param {string} source
   * @param {Record<string, number>} [focus] what the page looks at
   */
  async run(source, focus) {
    return evaluate(source, false, focus);
  },

  /**
   * Like `run`, but the result comes as something to be shown.
   * @param {string} source
   * @param {Record<string, number>} [focus]
   */
  async show(source, focus) {
    return evaluate(source, true, focus);
  },

  /**
   * Calls a method of the viewer. Arrays come back as typed arrays, without another copy.
   * @param {string} method
   * @param {Record<string, any>} payload
   * @param {(...news: any[]) => void} [onProgress]
   * @param {number} [number] of a file's viewer, instead of the page's own
   */
  async call(method, payload, onProgress, number) {
    const before = earlyMethods[method];
    if (before === undefined) await wholePython();
    if (before) await firstAnswers.wait(before, MOST_WAITED_MS);
    // null would become Python's JsNull; what is absent has its default there.
    const present = Object.entries(payload).filter(([, value]) => value !== null);
    const given = python.toPy(Object.fromEntries(await Promise.all(present.map(readFile))));
    // Python gets an ordinary function: a Comlink proxy answers to every property, `then` included.
    const progress = onProgress && ((/** @type {any[]} */ ...news) => void onProgress(...news));
    try {
      if (DRAWING.has(method)) {
        await Promise.race([compiled, new Promise((done) => setTimeout(done, MOST_COMPILED_MS))]);
        compiled = Promise.resolve();
      }
      const asked = number === undefined ? viewer : fileViewers.get(number);
      if (!asked) throw new Error('this view is gone');
      const result = await timed(`call ${method}`, async () => toPlain(await asked.call(method, given, progress)));
      if (method === 'window' && !ended) endStart();
      return result instanceof Object ? Comlink.transfer(result, transferables(result)) : result;
    } catch (error) {
      throw pythonError(error);
    } finally {
      given.destroy();
      firstAnswers.came(method);
    }
  },

  /**
   * The bytes of a file of the site go straight to a method of the viewer.
   * @param {string} method
   * @param {string} name
   */
  async open(method, name) {
    return worker.call(method, { data: new Uint8Array(await assets.fetch(name)) });
  },

  /** Another viewer, for a file; the number is what `call` wants. */
  async openFileViewer() {
    renewFileViewer(++lastNumber);
    return lastNumber;
  },

  /** @param {number} number */
  async closeFileViewer(number) {
    fileViewers.get(number)?.destroy();
    fileViewers.delete(number);
  },

  /** What happened in this worker and when, for the bench. */
  async profile() {
    return readProfile();
  },

  /**
   * Loads the model, or the one that writes. `cancelLoad` stops its downloads, also those that have yet to begin.
   * @param {(...news: any[]) => void} onProgress
   * @param {Record<string, any>} [writer] how the language model is to be loaded
   */
  async loadModel(onProgress, writer) {
    const mine = new AbortController();
    load = mine;
    try {
      return await (writer ? worker.call('write_load', writer, onProgress) : worker.call('load_model', {}, onProgress));
    } finally {
      // Another may have begun meanwhile.
      if (load === mine) load = undefined;
    }
  },

  cancelLoad() {
    load?.abort();
  },
};

/** The first map is there; what a start can do without follows, and is imported, when the maps beside it are drawn. */
function endStart() {
  ended = true;
  const keep = pipelines.drawn();
  setTimeout(() => {
    wholePython()
      .then(() => viewer.import_rest())
      .then(() => (isForLater ? keepImage(assets) : undefined))
      .catch(() => {});
    void keep();
  }, REST_AFTER_MS);
}

/** Resolves when everything can be imported. */
function wholePython() {
  rest ??= loadRest(python, assets).catch((error) => {
    rest = undefined;
    throw error;
  });
  return rest;
}

/** @param {number} number */
function renewFileViewer(number) {
  fileViewers.get(number)?.destroy();
  fileViewers.set(number, viewer.beside());
}

/**
 * The first device is requested at once, while Python is being loaded.
 * @param {(reason: string) => void} onLost
 */
function installBridge(onLost) {
  const fetchAsset = (/** @type {string} */ name, /** @type {any} */ onProgress) => assets.fetch(name, { onProgress, signal: load?.signal });
  const notes = createNotes();
  const bridge = createBridge({ fetchAsset, notes });
  pipelines = createEarlyPipelines(notes, {
    build: async () => (await assets.manifest()).assets[START].sha256,
    listed: async () => JSON.parse(new TextDecoder().decode(await assets.fetch('pipelines'))),
  });
  let newest = 0;
  /** @type {Promise<import('./bridge.js').DeviceBridge> | undefined} */
  let first = timed('request device', () => bridge.requestDevice());
  compiled = first.then(
    (device) => timed('compile pipelines early', () => pipelines.compile(device)),
    () => {}, // reported to the call that asks for the device
  );
  async function nextDevice() {
    const early = await first?.finally(() => (first = undefined));
    return early && !early.lost() ? early : bridge.requestDevice();
  }
  Object.assign(globalThis, {
    pyAttnBridge: {
      ...bridge,
      async requestDevice() {
        const device = await nextDevice();
        const number = ++newest;
        // The loss of a device that has been replaced is not reported.
        device.whenLost().then((reason) => number === newest && onLost(reason));
        return device;
      },
    },
  });
}

/** @param {string} source @param {boolean} show @param {Record<string, number>} [focus] */
async function evaluate(source, show, focus = {}) {
  await wholePython();
  const looked = python.toPy(focus);
  try {
    const answer = toPlain(await viewer.run_cell.callKwargs(source, { show, focus: looked }));
    if (answer.opened) tellOpened(answer.opened);
    if (answer.error) throw pythonError({ message: answer.error, type: answer.type });
    return answer.value;
  } catch (error) {
    throw pythonError(error);
  } finally {
    looked.destroy();
    output.end();
  }
}

/** A file comes as such, so that its bytes are read here, once. @param {[string, any]} argument */
async function readFile([name, value]) {
  return [name, value instanceof Blob ? new Uint8Array(await value.arrayBuffer()) : value];
}

/** @param {any} value */
function toPlain(value) {
  if (!value?.toJs) return value;
  try {
    return value.toJs({ dict_converter: Object.fromEntries, create_pyproxies: false });
  } finally {
    value.destroy();
  }
}

/**
 * An error that can be sent to the page: its name is the exception's class, its message the traceback.
 * @param {any} error
 */
function pythonError(error) {
  const made = new Error(String(error?.message ?? error).trimEnd());
  made.name = error?.type ?? error?.name ?? 'Error';
  made.stack = made.message;
  return made;
}

/** @param {any} value @param {Set<ArrayBuffer>} [found] @returns {ArrayBuffer[]} */
function transferables(value, found = new Set()) {
  if (ArrayBuffer.isView(value)) found.add(/** @type {ArrayBuffer} */ (value.buffer));
  else if (Array.isArray(value)) for (const item of value) transferables(item, found);
  else if (value && typeof value === 'object') transferables(Object.values(value), found);
  return [...found];
}

/** @typedef {typeof worker} PyWorker */
Comlink.expose(worker);
