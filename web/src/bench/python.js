/** The bench's Python half (bench/*.py and its shaders) in the page's Python. */

/** @typedef {import('../runtime/client.js').Runtime} Runtime */

const FILES = /** @type {Record<string, string>} */ (
  import.meta.glob(['../../../bench/*.py', '../../../bench/shaders/*'], { query: '?raw', import: 'default', eager: true })
);

/**
 * Puts the modules in place and imports them.
 * @param {Runtime} runtime
 */
export async function installBench(runtime) {
  const files = Object.fromEntries(
    Object.entries(FILES).map(([path, text]) => [path.slice(path.indexOf('/bench/') + 1), text]),
  );
  await runtime.run(`
import json, pathlib, sys
for name, text in json.loads(${literal(files)}).items():
    path = pathlib.Path("/py_attn_bench") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
if "/py_attn_bench" not in sys.path:
    sys.path.insert(0, "/py_attn_bench")
from bench import measure as bench_measure
`);
}

/**
 * Calls a function of bench/measure.py.
 * @param {Runtime} runtime @param {string} name @param {...unknown} given
 * @returns {Promise<any>}
 */
export function ask(runtime, name, ...given) {
  const awaited = name === 'listed' ? '' : 'await ';
  const call = `${awaited}bench_measure.${name}(*json.loads(${literal(given)}))`;
  return runtime.run(`json.dumps(${call})`).then(JSON.parse);
}

/** Data as a Python string of JSON. @param {unknown} value */
function literal(value) {
  return JSON.stringify(JSON.stringify(value));
}
