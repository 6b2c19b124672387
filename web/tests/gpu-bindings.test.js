import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Bindings } from '../src/gpu/bindings.js';

vi.stubGlobal('GPUShaderStage', { COMPUTE: 4 });

/** @type {any} */
let device;
/** @type {Bindings} */
let bindings;
beforeEach(() => {
  device = {
    createBindGroupLayout: vi.fn(({ entries }) => entries.map((/** @type {any} */ { buffer }) => buffer.type)),
    createPipelineLayout: vi.fn(({ bindGroupLayouts }) => bindGroupLayouts),
    createBindGroup: vi.fn(({ layout, entries }) => ({ layout, entries })),
  };
  const errors = { guarded: (/** @type {string} */ _, /** @type {any} */ __, /** @type {() => unknown} */ work) => work() };
  bindings = new Bindings(device, /** @type {any} */ (errors), (handle) => /** @type {any} */ (`buffer ${handle}`));
});

/** Params whose parts lie where they were written, but for those that have an equal before them. @param {Record<number, number>} [places] */
const params = (places = {}) => /** @type {any} */ ({ buffer: {}, placeOf: (/** @type {any} */ { offset }) => places[offset] ?? offset });
/** How texts declare their params behind two buffers, and in a group of their own. */
const behind = '@group(0) @binding(2) var<uniform> params: Params;';
const apart = '@group(1) @binding(0) var<uniform> params: Params;';
/** A dispatch of a kernel that reads buffer 7 and writes buffer 8. @param {string} wgsl @param {number} [offset] */
const dispatch = (wgsl, offset = 256) =>
  /** @type {any} */ ({ pipeline: { layout: bindings.layout(wgsl, 'rw'), label: 'kernel' }, buffers: Uint32Array.of(7, 0, 64, 8, 256, 32), offset, size: 48 });

describe('Bindings', () => {
  it.each([
    [behind, true],
    ['@binding(2u) @group( 0 )\n  var< uniform > p : Params;', true],
    [apart, false],
    [`${apart} // ${behind}`, false],
    [`/* ${behind}\n*/${apart}`, false],
  ])('finds params where the text %j declares them', (wgsl, isBehind) => {
    const buffers = ['read-only-storage', 'storage'];
    const groups = isBehind ? [[...buffers, 'uniform']] : [buffers, ['uniform']];
    expect(bindings.layout(wgsl, 'rw')).toEqual({ letters: isBehind ? 'rwu' : 'rw', groups, pipeline: groups });
  });

  it('binds the params behind the buffers, or in a group of their own', () => {
    const given = params();
    const buffers = [
      { binding: 0, resource: { buffer: 'buffer 7', offset: 0, size: 64 } },
      { binding: 1, resource: { buffer: 'buffer 8', offset: 256, size: 32 } },
    ];
    const own = { buffer: given.buffer, offset: 256, size: 48 };
    const entries = (/** @type {string} */ wgsl) => bindings.groups(dispatch(wgsl), given).map((/** @type {any} */ group) => group.entries);
    expect(entries(behind)).toEqual([[...buffers, { binding: 2, resource: own }]]);
    expect(entries(apart)).toEqual([buffers, [{ binding: 0, resource: own }]]);
  });

  it('keeps the groups of dispatches that bind the same', () => {
    const given = params({ 512: 256 });
    const first = bindings.groups(dispatch(behind), given);
    expect(bindings.groups(dispatch(behind, 512), given), 'equal params, found in one place').toBe(first);
    expect(bindings.groups(dispatch(behind, 768), given)).not.toBe(first);
    expect(bindings.groups(dispatch(behind), params()), 'another buffer of params').not.toBe(first);
    bindings.forgetBuffers();
    expect(bindings.groups(dispatch(behind), given)).not.toBe(first);
  });

  it('gives a dispatch that is submitted again what it had, until its params lie elsewhere', () => {
    /** @type {Record<number, number>} */
    const places = {};
    const given = params(places);
    const again = dispatch(behind);
    const first = bindings.groups(again, given);
    bindings.forgetBuffers();
    expect(bindings.groups(again, given)).toBe(first);
    places[256] = 0;
    expect(bindings.groups(again, given)[0]).toMatchObject({ entries: [{}, {}, { resource: { offset: 0 } }] });
  });
});
