// Makes the archives of what the page's Python needs: `node pack.js START REST SAMPLE WHEEL …`. Pyodide itself runs
// packing.py, because bytecode is only good for the very version of Python that made it, and tells what a start imports.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import process from "node:process";
import zlib from "node:zlib";
import { loadPyodide } from "pyodide";

const [start, rest, sample, ...wheels] = process.argv.slice(2);
const read = (/** @type {string | URL} */ path) => new Uint8Array(readFileSync(path));
const stdlib = new URL("python_stdlib.zip", import.meta.resolve("pyodide"));

const python = await loadPyodide({ stdLibURL: fileURLToPath(stdlib) });
for (const wheel of wheels) python.unpackArchive(read(wheel), "wheel");
for (const path of ["./packing.py", "../tests/recording_bridge.py"]) {
  python.FS.writeFile(`/${path.split("/").at(-1)}`, read(new URL(path, import.meta.url)));
}
for (const [name, value] of Object.entries({ sample: read(sample), stdlib: read(stdlib), wheels: wheels.map(read) })) {
  python.globals.set(name, value);
}
// What the page asks by itself at its start (RIGHT_AWAY in web/src/worker.js), with and without a GPU: both in turn,
// the GPU being one that only takes notes.
const packs = await python.runPythonAsync(`
import sys
import py_attn.viewer.files
from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer

async def start(viewer):
    await viewer.connect()
    await viewer.open_sample(sample.to_bytes())
    await viewer.legend("rocket", "sqrt")
    await viewer.overview(0)
    await viewer.window(0, 0, [0, 4], [0, 4], [2, 2])
    await viewer.row(0, 0, 0)
    await viewer.decode_open(0, 8)
    await viewer.decode_step(0, 0)

await start(Viewer())
sys.path.insert(0, "/")
import packing, recording_bridge
viewer = Viewer()
viewer._request_device = lambda: request_device(recording_bridge.RecordingBridge())
await start(viewer)
imported = list(sys.modules)
packing.write_packs(stdlib.to_bytes(), [wheel.to_bytes() for wheel in wheels], imported)
`);
for (const [path, content] of [[start, packs.get(0)], [rest, packs.get(1)]]) {
  writeFileSync(`${path}.partial`, zlib.gzipSync(content.toJs(), { level: 9 }));
  renameSync(`${path}.partial`, path);
}
process.exit(0); // Pyodide keeps Node running
