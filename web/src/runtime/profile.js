/**
 * What a start consists of: spans of the worker's time, read by the bench (`?starts=` in bench/options.js).
 *
 * A page opened with `?profile` also records what Python imports and each larger WebAssembly module, which takes some time
 * itself.
 */

/** @typedef {{ name: string, at: number, ms: number }} Span `at`: milliseconds after the page's navigation */
/** @typedef {{ spans: Span[], imports: string[] }} Profile `imports`: lines of Python's -X importtime */

const PREFIX = 'py-attn:';
/** Pyodide makes hundreds of modules of a single function. */
const LEAST_BYTES = 1024;

/** @type {string[]} */
const imports = [];

/**
 * Does some work, which may be a promise, and records how long it took.
 * @template T
 * @param {string} name
 * @param {() => T} work
 * @returns {T}
 */
export function timed(name, work) {
  const start = performance.now();
  const done = () => void performance.measure(PREFIX + name, { start });
  const result = work();
  if (result instanceof Promise) result.then(done, done);
  else done();
  return result;
}

/** What has been recorded in this worker, with times on the clock that all threads share. @returns {Profile} */
export function readProfile() {
  const spans = performance.getEntriesByType('measure').filter(({ name }) => name.startsWith(PREFIX));
  return {
    spans: spans.map(({ name, startTime, duration }) => ({
      name: name.slice(PREFIX.length),
      at: performance.timeOrigin + startTime,
      ms: duration,
    })),
    imports,
  };
}

/** Options of loadPyodide that make Python say what each import takes. */
export function watchImports() {
  return { args: ['-X', 'importtime'], stderr: keepImport };
}

/** Keeps a line of standard error that says what an import took; false when it says something else. @param {string} line */
export function keepImport(line) {
  return line.startsWith('import time:') && imports.push(line) > 0;
}

/** Records every compilation and instantiation of a larger WebAssembly module from now on. */
export function watchWebAssembly() {
  const wasm = /** @type {any} */ (WebAssembly);
  for (const name of ['compile', 'compileStreaming', 'instantiate', 'instantiateStreaming']) {
    const original = wasm[name];
    wasm[name] = (/** @type {any[]} */ ...given) => {
      const bytes = given[0]?.byteLength ?? Infinity;
      return bytes < LEAST_BYTES ? original.apply(wasm, given) : timed(`WebAssembly.${name}`, () => original.apply(wasm, given));
    };
  }
  const large = new WeakSet();
  wasm.Module = new Proxy(wasm.Module, {
    construct(original, given) {
      const bytes = given[0].byteLength;
      if (bytes < LEAST_BYTES) return new original(...given);
      const module = timed(`WebAssembly.Module of ${bytes} bytes`, () => new original(...given));
      large.add(module);
      return module;
    },
  });
  wasm.Instance = new Proxy(wasm.Instance, {
    construct: (original, given) =>
      large.has(given[0]) ? timed('WebAssembly.Instance', () => new original(...given)) : new original(...given),
  });
}
