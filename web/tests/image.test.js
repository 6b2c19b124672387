import { afterEach, describe, expect, it, vi } from 'vitest';
import { ImageError, canRestore, compileLibraries, difference, filesOfImage, loadLibraries, openImage, restore } from '../src/runtime/image.js';
import { tar } from './tar.js';

const HEADER = 16;

/** A snapshot in Pyodide's form: 16 bytes of header, then memory. @param {number[]} words */
function snapshotOf(words) {
  const bytes = new Uint8Array(HEADER + 4 * words.length);
  new Uint32Array(bytes.buffer)[1] = HEADER;
  new Uint32Array(bytes.buffer, HEADER).set(words);
  return bytes;
}

/** As much of Emscripten's module as an image needs. @param {number[]} words its memory before Python begins */
function moduleWith(words) {
  const HEAPU32 = Uint32Array.from(words);
  const table = ['own', 'own too'];
  return {
    HEAPU32,
    _emscripten_get_sbrk_ptr: () => 4 * BREAK,
    wasmTable: table,
    FS: { mkdirTree: vi.fn(), writeFile: vi.fn() },
    API: { restoreSnapshot: vi.fn() },
    LDSO: { loadedLibsByName: { __main__: { exports: { timezone: { value: 0 }, daylight: { value: 4 }, tzname: { value: 8 } } } } },
    __tzset_js: vi.fn(),
    loadWebAssemblyModule: vi.fn(async () => ({ other: 1, PyInit_library: () => 7 })),
    newDSO: vi.fn(() => ({ global: true })),
    addFunction: vi.fn((made) => table.push(made)),
    growMemory: vi.fn((/** @type {number} */ _size) => 1),
  };
}

/** A module of WebAssembly with nothing in it. */
const EMPTY = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);
const LIBRARY = { path: 'lib/library.so', content: EMPTY };
/** The word that holds where the heap begins, in bytes. */
const BREAK = 2;
const BEFORE = [5, 0xffffffff, 16, 9];
const AFTER = [5, 1, 3, 0xfffffff0, 8, 8];
const FACTS = { tableLength: 3, sum: 29 };

/** @param {Record<string, unknown>} [facts] */
function imageWith(facts = FACTS) {
  return imageOf(snapshotOf(AFTER), facts);
}

/** @param {Uint8Array<ArrayBuffer>} snapshot @param {Record<string, unknown>} facts */
function imageOf(snapshot, facts = FACTS) {
  difference(snapshot, Uint32Array.from(BEFORE));
  const files = filesOfImage(snapshot, /** @type {any} */ (facts));
  return tar([...Object.entries(files).map(([path, content]) => ({ path, content })), LIBRARY]);
}

describe('an image', () => {
  it('is put back where memory and the function table are as at the build', async () => {
    const module = moduleWith(BEFORE);
    const { restoreSnapshot } = module.API;
    await restore(module, openImage(imageWith()));
    expect(module.FS.writeFile.mock.calls.map(([path]) => path)).toEqual(['/lib/library.so']);
    expect(module.growMemory.mock.calls[0][0]).toBeGreaterThanOrEqual(4 * AFTER.length);
    module.API.restoreSnapshot();
    expect(restoreSnapshot.mock.calls[0][0]).toEqual(snapshotOf(AFTER));
    expect(module.__tzset_js).toHaveBeenCalledWith(0, 4, BEFORE[2], BEFORE[3]);
  });

  it('leaves out pages of zeros, wherever they lie', async () => {
    const words = new Array(5000).fill(0);
    for (const [at, word] of [...AFTER.entries(), [2100, 7], [4999, 9]]) words[at] = word;
    const image = imageOf(snapshotOf(words));
    expect(image.length).toBeLessThan(4 * words.length);
    const module = moduleWith(BEFORE);
    const { restoreSnapshot } = module.API;
    await restore(module, openImage(image));
    module.API.restoreSnapshot();
    expect(restoreSnapshot.mock.calls[0][0]).toEqual(snapshotOf(words));
  });

  it.each([
    ['a table of another length', { ...FACTS, tableLength: 4 }],
    ['other memory', { ...FACTS, sum: 30 }],
  ])('is refused with %s', async (_, facts) => {
    const module = moduleWith(BEFORE);
    const { restoreSnapshot } = module.API;
    await expect(restore(module, openImage(imageWith(facts)))).rejects.toThrow(ImageError);
    expect(module.API.restoreSnapshot).toBe(restoreSnapshot);
  });

  it('is refused without room for it', async () => {
    const module = moduleWith(BEFORE);
    module.growMemory.mockReturnValue(0);
    await expect(restore(module, openImage(imageWith()))).rejects.toThrow('no room');
  });

  it('is refused when a part is missing', () => {
    expect(() => openImage(tar([LIBRARY]))).toThrow('the image has no /memory');
  });
});

it('libraries are open, and their first functions in the table, before Python asks for them', async () => {
  const module = moduleWith(BEFORE);
  const files = [
    { path: '/a.py', content: new Uint8Array(1) },
    { path: '/b.so', content: EMPTY },
  ];
  expect(await loadLibraries(module, compileLibraries(files))).toEqual(FACTS);
  expect(module.newDSO.mock.calls).toEqual([['/b.so', undefined, expect.anything()]]);
  expect(module.newDSO.mock.results[0].value.global).toBe(false);
  expect(module.wasmTable[2]).toBeTypeOf('function');
});

describe('canRestore', () => {
  afterEach(() => void vi.unstubAllGlobals());

  it('needs garbage collection of WebAssembly, and no iOS', () => {
    vi.spyOn(WebAssembly, 'validate').mockReturnValue(true);
    expect(canRestore()).toBe(true);
    for (const navigator of [{ userAgent: 'Mozilla/5.0 (iPhone)' }, { platform: 'MacIntel', maxTouchPoints: 5 }]) {
      vi.stubGlobal('navigator', navigator);
      expect(canRestore()).toBe(false);
    }
    vi.stubGlobal('navigator', { platform: 'MacIntel', maxTouchPoints: 0 });
    expect(canRestore()).toBe(true);
    vi.spyOn(WebAssembly, 'validate').mockReturnValue(false);
    expect(canRestore()).toBe(false);
  });
});
