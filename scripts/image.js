// Makes the image of Python's memory that a page restores: see web/src/runtime/image.js.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { loadPyodide } from "pyodide";
import createModule from "pyodide/pyodide.asm.mjs";
import { EMPTY_ZIP, LIBRARY, filesOf, unpack } from "../web/src/runtime/archive.js";
import { canRestore, compileLibraries, difference, filesOfImage, loadLibraries, usedMemory } from "../web/src/runtime/image.js";

const IMPORT = `
import importlib, sys
for name in modules:
    importlib.import_module(name)
sys.path.remove("")  # Pyodide adds it each time
names = list(sys.modules)
del importlib, sys, name, modules
names
`;

/**
 * Starts Python as a page does, imports modules, and takes its memory.
 * @param {Uint8Array<ArrayBuffer>} archive what a page starts from without an image
 * @param {string[]} modules
 * @returns {Promise<{ files: Record<string, Uint8Array>, imported: string[] }>} the archive's own files, and the modules that are imported in it
 */
export async function makeImage(archive, modules) {
  const folder = mkdtempSync(path.join(tmpdir(), "py-attn-"));
  const stdLibURL = path.join(folder, "empty.zip");
  writeFileSync(stdLibURL, EMPTY_ZIP);
  const undo = canRestore() ? () => {} : replaceTrampoline();
  /** @type {any} Emscripten's */
  let module;
  /** @type {import("../web/src/runtime/image.js").Facts} */
  let facts;
  /** @type {Uint32Array} */
  let before;
  try {
    const python = await loadPyodide({
      stdLibURL,
      env: { PYTHONPATH: LIBRARY },
      enableRunUntilComplete: false,
      _makeSnapshot: true,
      createPyodideModule(settings) {
        module = settings;
        return createModule(settings);
      },
      async fsInit(FS) {
        const files = [...filesOf(archive)];
        unpack(FS, files);
        facts = await loadLibraries(module, compileLibraries(files));
        before = usedMemory(module).slice();
      },
    });
    python.globals.set("modules", python.toPy(modules));
    const imported = python.runPython(IMPORT).toJs();
    python.globals.delete("names");
    const left = module.wasmTable.length - facts.tableLength - module.freeTableIndexes.length;
    if (left) throw new Error(`${left} functions were made by the imports, which a page would not have`);
    // What packages Pyodide finds, it finds again; an image may have no reference to an object of JavaScript.
    for (const name of Object.keys(python.loadedPackages)) delete python.loadedPackages[name];
    const snapshot = python.makeMemorySnapshot();
    difference(snapshot, before);
    return { files: filesOfImage(snapshot, facts), imported };
  } finally {
    undo();
    rmSync(folder, { recursive: true });
  }
}

/**
 * CPython calls functions of other signatures than it expects through a function of WebAssembly that needs its garbage collection. Without that, as
 * in Node 20, Pyodide adds none to the function table; this adds one that does the same through JavaScript.
 * @returns {() => void} undoes it
 */
function replaceTrampoline() {
  const { Module, Instance } = WebAssembly;
  // (module (import "e" "f" (func (param i32 i32 i32 i32 i32) (result i32))) (export "f" (func 0)))
  const forward = new Module(
    new Uint8Array([
      0, 97, 115, 109, 1, 0, 0, 0, 1, 10, 1, 96, 5, 127, 127, 127, 127, 127, 1, 127, 2, 7, 1, 1, 101, 1, 102, 0, 0, 7, 5, 1, 1, 102, 0, 0,
    ]),
  );
  const empty = new Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
  const isTrampoline = (/** @type {Uint8Array} */ bytes) => new TextDecoder("latin1").decode(bytes).includes("trampoline_call");
  WebAssembly.Module = new Proxy(Module, {
    construct: (_, [bytes]) => (isTrampoline(bytes) ? empty : new Module(bytes)),
  });
  WebAssembly.Instance = new Proxy(Instance, {
    construct(_, [module, imports]) {
      if (module !== empty) return new Instance(module, imports);
      const { memory, __indirect_function_table: table } = imports.env;
      const f = (/** @type {number} */ found, /** @type {number} */ called, /** @type {number[]} */ ...given) => {
        new Int32Array(memory.buffer)[found >>> 2] = 1;
        return table.get(called)(...given);
      };
      return { exports: { trampoline_call: new Instance(forward, { e: { f } }).exports.f } };
    },
  });
  return () => Object.assign(WebAssembly, { Module, Instance });
}
