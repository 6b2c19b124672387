// Makes the archives of what the page's Python needs: `node pack.js START REST SAMPLE WHEEL …`. Pyodide itself runs
// packing.py, because bytecode is only good for the very version of Python that made it, and tells what a start imports.
import { readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import process from "node:process";
import { promisify } from "node:util";
import zlib from "node:zlib";
import { loadPyodide } from "pyodide";
import { AT_START } from "../web/src/runtime/at-start.js";

const gzip = promisify(zlib.gzip);
const [start, rest, sample, ...wheels] = process.argv.slice(2);
const read = (/** @type {string | URL} */ path) => new Uint8Array(readFileSync(path));
const stdlib = new URL("python_stdlib.zip", import.meta.resolve("pyodide"));

const python = await loadPyodide({ stdLibURL: fileURLToPath(stdlib) });
for (const wheel of wheels) python.unpackArchive(read(wheel), "wheel");
for (const path of ["./packing.py", "../tests/recording_bridge.py"]) {
  python.FS.writeFile(`/${path.split("/").at(-1)}`, read(new URL(path, import.meta.url)));
}
/** @type {Record<string, object>} what the calls of a start are given: enough for each to do its work */
const given = {
  connect: {},
  open_sample: { data: read(sample) },
  legend: { colormap: "rocket", scale: "sqrt" },
  overview: { layer: 0 },
  window: { layer: 0, head: 0, rows: [0, 4], columns: [0, 4], size: [2, 2] },
  row: { layer: 0, head: 0, query: 0 },
  decode_open: { layer: 0, capacity: 8 },
  decode_step: { position: 0, head: 0 },
};
const unknown = AT_START.filter((method) => !given[method]);
if (unknown.length) throw new Error(`scripts/pack.js does not know what to give to ${unknown.join(", ")}`);
python.globals.set("calls", python.toPy(AT_START.map((method) => [method, given[method]])));
for (const [name, value] of Object.entries({ stdlib: read(stdlib), wheels: wheels.map(read) })) {
  python.globals.set(name, value);
}
// A start with and without a GPU: both in turn, the GPU being one that only takes notes.
const packs = await python.runPythonAsync(`
import sys
import py_attn.viewer.files
from py_attn.gpu import shader
from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer

shader.compiled_folder().mkdir()
for name in shader.environment().list_templates(["wgsl"]):
    shader.environment().get_template(name)
templates = {str(path): path.read_bytes() for path in sorted(shader.compiled_folder().iterdir())}

async def start(viewer):
    for method, payload in calls:
        await viewer.call(method, payload)

await start(Viewer())
sys.path.insert(0, "/")
import packing, recording_bridge
viewer = Viewer()
viewer._request_device = lambda: request_device(recording_bridge.RecordingBridge())
await start(viewer)
imported = list(sys.modules)
packing.write_packs(stdlib.to_bytes(), [wheel.to_bytes() for wheel in wheels], imported, templates)
`);

/** @param {string} path @param {Uint8Array} content */
async function put(path, content) {
  await writeFile(`${path}.partial`, await gzip(content, { level: 9 }));
  await rename(`${path}.partial`, path);
}

await Promise.all([put(start, packs.get(0).toJs()), put(rest, packs.get(1).toJs())]);
process.exit(0); // Pyodide keeps Node running
