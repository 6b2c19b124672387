/** The bench's Python half (bench/*.py, its shaders and what it compares with) in the page's Python. */

/** @typedef {import('../runtime/client.js').Runtime} Runtime */

const FILES = /** @type {Record<string, string>} */ (
  import.meta.glob(['../../../bench/*.py', '../../../bench/shaders/*', '../../../tests/fixtures/smollm2.json'], {
    query: '?raw',
    import: 'default',
    eager: true,
  })
);

/**
 * Puts the modules in place and imports them.
 * @param {Runtime} runtime
 */
export async function installBench(runtime) {
  const files = Object.fromEntries(
    Object.entries(FILES).map(([path, text]) => [path.replace('../../../', ''), text]),
  );
  await runtime.run(`
import json, pathlib, sys
for name, text in json.loads(${literal(files)}).items():
    path = pathlib.Path("/py_attn_bench") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
if "/py_attn_bench" not in sys.path:
    sys.path.insert(0, "/py_attn_bench")
from bench import language as bench_language, measure as bench_measure
`);
}

/**
 * Calls a function of bench/measure.py.
 * @param {Runtime} runtime @param {string} name @param {...unknown} given
 * @returns {Promise<any>}
 */
export function ask(runtime, name, ...given) {
  return call(runtime, `bench_measure.${name}`, given);
}

/**
 * Calls a function of bench/language.py.
 * @param {Runtime} runtime @param {string} name @param {...unknown} given
 * @returns {Promise<any>}
 */
export function askModel(runtime, name, ...given) {
  return call(runtime, `bench_language.${name}`, given);
}

/** @param {Runtime} runtime @param {string} name @param {unknown[]} given */
function call(runtime, name, given) {
  const source = `
made = ${name}(*json.loads(${literal(given)}))
json.dumps(await made if hasattr(made, "__await__") else made)`;
  return runtime.run(source).then(JSON.parse);
}

/** Data as a Python string of JSON. @param {unknown} value */
function literal(value) {
  return JSON.stringify(JSON.stringify(value));
}
