import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Params } from '../src/gpu/params.js';

vi.stubGlobal('GPUBufferUsage', { UNIFORM: 1, COPY_DST: 2 });

/** @type {any} */
let device;
beforeEach(() => {
  device = {
    createBuffer: vi.fn(({ size }) => ({ size, destroy: vi.fn() })),
    createBindGroup: vi.fn(({ entries: [{ resource }] }) => resource),
    queue: { writeBuffer: vi.fn() },
  };
});
const made = (/** @type {number} */ index) => device.createBuffer.mock.results[index].value;
const layout = /** @type {any} */ ('layout');

/** Blocks of so many bytes, 256 apart. */
const blocks = (/** @type {number[]} */ ...sizes) => sizes.map((size, n) => ({ offset: 256 * n, size }));

describe('Params', () => {
  it('writes to one buffer, and gives each offset and size a bind group of its own', () => {
    const params = new Params(device, layout);
    params.write(new Uint8Array(512), blocks(64, 48));
    params.write(new Uint8Array(512), blocks(64, 48));
    expect(device.createBuffer).toHaveBeenCalledTimes(1);
    expect(device.queue.writeBuffer).toHaveBeenCalledTimes(2);
    expect(params.group({ offset: 256, size: 48 })).toMatchObject({ buffer: made(0), offset: 256, size: 48 });
    expect(params.group({ offset: 256, size: 48 })).toBe(params.group({ offset: 256, size: 48 }));
    const groups = [...blocks(48, 48), ...blocks(65_536, 64)].map((block) => params.group(block));
    expect(new Set(groups).size).toBe(4);
  });

  it('finds equal params in one place, until they differ', () => {
    const params = new Params(device, layout);
    const all = blocks(32, 32, 48, 32, 32);
    const places = () => all.map((block) => /** @type {any} */ (params.group(block)).offset / 256);
    const bytes = new Uint8Array(5 * 256);
    bytes[3 * 256 + 31] = 1;
    bytes[256 + 32] = 1; // not of the block
    params.write(bytes, all);
    expect(places(), 'the third is longer, the fourth differs in its last byte').toEqual([0, 0, 2, 3, 0]);
    bytes[0] = 1;
    params.write(bytes, all);
    expect(places()).toEqual([0, 1, 2, 3, 1]);
    expect(device.queue.writeBuffer.mock.lastCall[2]).toBe(bytes);
  });

  it('tells params of the same hash apart', () => {
    const params = new Params(device, layout);
    const bytes = new Uint8Array(512);
    // Found by trying; the hash of both is -929445110.
    bytes.set(new TextEncoder().encode('383548885196'), 0);
    bytes.set(new TextEncoder().encode('339488170012'), 256);
    params.write(bytes, blocks(12, 12));
    expect(params.group({ offset: 256, size: 12 })).toMatchObject({ offset: 256 });
  });

  it('makes room for more, and then binds the new buffer', () => {
    const params = new Params(device, layout, (bytes) => 2 * bytes);
    params.write(new Uint8Array(256), blocks(16));
    const before = params.group({ offset: 0, size: 16 });
    params.write(new Uint8Array(1024), blocks(16));
    expect(made(0).destroy).toHaveBeenCalledTimes(1);
    expect(made(1).size).toBe(2048);
    expect(params.group({ offset: 0, size: 16 })).not.toBe(before);
  });

  it('keeps nothing once it is destroyed', () => {
    const params = new Params(device, layout);
    params.destroy();
    params.write(new Uint8Array(256), blocks(16));
    params.destroy();
    params.destroy();
    expect(made(0).destroy).toHaveBeenCalledTimes(1);
    expect(() => params.group({ offset: 0, size: 16 })).toThrow('no params were written');
  });
});
