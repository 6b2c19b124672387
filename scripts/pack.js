// Makes the archives of what the page's Python needs, and a list of its first pipelines:
// `node pack.js START REST IMAGE PIPELINES SAMPLE WHEEL …`. Pyodide itself runs packing.py, because bytecode only works in the version of Python that made it, and finds out what a start imports.
import { readFileSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import process from "node:process";
import { promisify } from "node:util";
import zlib from "node:zlib";
import { loadPyodide } from "pyodide";
import { makeImage } from "./image.js";

const gzip = promisify(zlib.gzip);
const [start, rest, image, pipelines, sample, ...wheels] = process.argv.slice(2);
const read = (/** @type {string | URL} */ path) => new Uint8Array(readFileSync(path));
const stdlib = new URL("python_stdlib.zip", import.meta.resolve("pyodide"));

const python = await loadPyodide({ stdLibURL: fileURLToPath(stdlib) });
// Where the page will have them, since the compiled templates are packed by their paths.
const extractDir = python.runPython("import sysconfig; sysconfig.get_path('purelib')");
for (const wheel of wheels) python.unpackArchive(read(wheel), "wheel", { extractDir });
for (const path of ["./packing.py", "../tests/recording_bridge.py"]) {
  python.FS.writeFile(`/${path.split("/").at(-1)}`, read(new URL(path, import.meta.url)));
}
for (const [name, value] of Object.entries({ sample: read(sample), stdlib: read(stdlib), wheels: wheels.map(read) })) {
  python.globals.set(name, value);
}
// Runs a start with and without a GPU; the GPU is a fake that does nothing.
const packs = await python.runPythonAsync(`
import sys
from py_attn.gpu import shader
from py_attn.gpu.device import request_device
from py_attn.viewer import Viewer
from py_attn.viewer.methods import METHODS

shader.compiled_folder().mkdir()
for name in shader.environment().list_templates(["wgsl"]):
    shader.environment().get_template(name)
templates = {str(path): path.read_bytes() for path in sorted(shader.compiled_folder().iterdir())}

async def start(viewer, names=METHODS):
    await viewer.call("connect", {})
    await viewer.call("open_sample", {"data": sample.to_bytes()})
    for name in names:
        if METHODS[name].start is not None:
            await viewer.call(name, METHODS[name].start)

async def draw(bridge):
    await start(Viewer(lambda: request_device(bridge)), ["legend", "window"])

await start(Viewer())
sys.path.insert(0, "/")
before = set(sys.modules)
import packing, recording_bridge
apart = set(sys.modules) - before
await start(Viewer(lambda: request_device(recording_bridge.RecordingBridge())))
# What refers to JavaScript's objects is imported by each page.
apart |= {"__main__", "js", "pyodide_js", "py_attn.gpu.bridge_pyodide"}
first = [name for name in sys.modules if name not in apart]
# What waits for nothing else may need any of these, a model for example.
await Viewer().import_rest()
imported = list(sys.modules)
packs = packing.write_packs(stdlib.to_bytes(), [wheel.to_bytes() for wheel in wheels], imported, templates)
(*packs, await packing.write_pipelines(recording_bridge.RecordingBridge, draw), first)
`);
const archive = packs.get(0).toJs();
const { files, imported } = await makeImage(archive, packs.get(3).toJs());
python.globals.set("made", [packs.get(0), files, imported]);
const imagePack = python.runPython(`
start, files, imported = made
packing.write_image(start, {name: bytes(content) for name, content in files.to_py().items()}, imported)
`);

/** @param {string} path @param {Uint8Array | string} content @param {boolean} [compressed] */
async function put(path, content, compressed = true) {
  await writeFile(`${path}.partial`, compressed ? await gzip(content, { level: 9 }) : content);
  await rename(`${path}.partial`, path);
}

await Promise.all([put(start, archive), put(rest, packs.get(1).toJs()), put(image, imagePack.toJs()), put(pipelines, packs.get(2), false)]);
process.exit(0); // Pyodide keeps Node running
