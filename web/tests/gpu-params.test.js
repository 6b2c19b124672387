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

describe('Params', () => {
  it('writes to one buffer, and gives each offset and size a bind group of its own', () => {
    const params = new Params(device, layout);
    params.write(new Uint8Array(512));
    params.write(new Uint8Array(512));
    expect(device.createBuffer).toHaveBeenCalledTimes(1);
    expect(device.queue.writeBuffer).toHaveBeenCalledTimes(2);
    expect(params.group(256, 48)).toMatchObject({ buffer: made(0), offset: 256, size: 48 });
    expect(params.group(256, 48)).toBe(params.group(256, 48));
    const groups = [params.group(0, 48), params.group(256, 48), params.group(256, 64), params.group(0, 65_536)];
    expect(new Set(groups).size).toBe(4);
  });

  it('makes room for more, and then binds the new buffer', () => {
    const params = new Params(device, layout, (bytes) => 2 * bytes);
    params.write(new Uint8Array(256));
    const before = params.group(0, 16);
    params.write(new Uint8Array(1024));
    expect(made(0).destroy).toHaveBeenCalledTimes(1);
    expect(made(1).size).toBe(2048);
    expect(params.group(0, 16)).not.toBe(before);
  });

  it('keeps nothing once it is destroyed', () => {
    const params = new Params(device, layout);
    params.destroy();
    params.write(new Uint8Array(256));
    params.destroy();
    params.destroy();
    expect(made(0).destroy).toHaveBeenCalledTimes(1);
    expect(() => params.group(0, 16)).toThrow('no params were written');
  });
});
