import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Asset, createBridge } from '../src/bridge.js';
import { createDevice } from '../src/embed/devices.js';

for (const name of ['GPUBufferUsage', 'GPUShaderStage', 'GPUMapMode']) {
  vi.stubGlobal(name, new Proxy({}, { get: () => 1 }));
}

/** @type {any} the adapter that the browser has */
let adapter;
/** @type {any} the device that the adapter gives */
let device;

beforeEach(() => {
  device = {
    features: new Set(['subgroups']),
    lost: new Promise(() => {}),
    queue: { submit: vi.fn(), writeBuffer: vi.fn(), onSubmittedWorkDone: async () => {} },
    addEventListener: () => {},
    pushErrorScope: () => {},
    popErrorScope: async () => null,
    createBindGroupLayout: () => ({}),
    createBuffer: vi.fn(({ label, size }) => ({ label, size, destroy: vi.fn() })),
    destroy: vi.fn(),
  };
  adapter = {
    info: { vendor: 'v', architecture: 'a', description: 'd', isFallbackAdapter: true, subgroupMinSize: 4, subgroupMaxSize: 8 },
    features: device.features,
    limits: { maxBufferSize: 1 << 30, notAskedFor: 1 },
    requestDevice: vi.fn(async () => device),
  };
  vi.stubGlobal('isSecureContext', true);
  vi.stubGlobal('navigator', { gpu: { requestAdapter: async () => adapter } });
});

/** Runs commands of a Python elsewhere, as embed/link.js does; resolves with the answer to each id. @param {any[]} commands */
async function run(commands) {
  /** @type {Map<number, any>} */
  const answers = new Map();
  createDevice(() => {}).run(commands, (id, result, error) => answers.set(id, error ?? result));
  await vi.waitFor(() => expect(answers.size).toBe(commands.filter(({ id }) => id !== undefined).length));
  return answers;
}

const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0';
const describeIt = { op: 'request_device', args: [], id: 1 };

describe('a device for a Python elsewhere', () => {
  it('describes its adapter, and asks for its limits and features', async () => {
    const info = (await run([describeIt])).get(1);
    expect(info).toMatchObject({ vendor: 'v', software: true, features: ['subgroups'], subgroup_min_size: 4, matrix_configs: [] });
    const [{ requiredFeatures, requiredLimits }] = adapter.requestDevice.mock.calls[0];
    expect(requiredFeatures).toEqual(['subgroups']);
    expect(requiredLimits).toMatchObject({ maxBufferSize: 1 << 30 });
    expect(requiredLimits).not.toHaveProperty('notAskedFor');
  });

  it('keeps buffers under the handles that Python chose', async () => {
    const bytes = Uint8Array.of(1, 2, 3, 4);
    await run([
      { op: 'create_buffer', args: [77, 4, 'query'] },
      { op: 'write_buffer', args: [77, 0, bytes] },
      { op: 'destroy_buffer', args: [77] },
      describeIt,
    ]);
    const [[buffer, offset, written]] = device.queue.writeBuffer.mock.calls;
    expect([buffer.label, buffer.size, offset, written]).toEqual(['query', 4, 0, bytes]);
    expect(buffer.destroy).toHaveBeenCalledTimes(1);
  });

  it('answers with what went wrong, and reports at the next synchronize what nobody waits for', async () => {
    const answers = await run([
      { op: 'write_buffer', args: [5, 0, new Uint8Array(4)] },
      { op: 'create_program', args: [1, Uint32Array.from([9, 0, 0, 1, 1, 1, 0])], id: 2 },
      { op: 'no_such_thing', args: [], id: 3 },
      { op: 'synchronize', args: [], id: 4 },
    ]);
    expect(answers.get(2)).toBe('no pipeline 9');
    expect(answers.get(3)).toContain('the page knows no operation no_such_thing');
    expect(answers.get(4)).toEqual([{ kind: 'internal', label: 'write_buffer', message: 'no buffer 5', line: 0 }]);
  });

  it.each([
    ['an insecure page', () => vi.stubGlobal('isSecureContext', false), 'WebGPU needs a secure page'],
    ['a browser without WebGPU', () => vi.stubGlobal('navigator', {}), 'This browser offers no WebGPU'],
    ['a Firefox without WebGPU', () => vi.stubGlobal('navigator', { userAgent: FIREFOX }), 'set dom.webgpu.enabled to true'],
    ['a machine without an adapter', () => (adapter = null), 'chrome://gpu says why'],
    ['such a machine in Firefox', () => vi.stubGlobal('navigator', { userAgent: FIREFOX, gpu: { requestAdapter: async () => null } }), 'about:support'],
  ])('says why there is none in %s', async (_, change, reason) => {
    change();
    expect((await run([describeIt])).get(1)).toContain(reason);
  });
});

describe('programs', () => {
  /** Typed arrays as Python lends them. @param {Uint8Array | Uint32Array} data */
  const lent = (data) => ({ getBuffer: () => ({ data, release() {} }) });
  const pass = { setPipeline() {}, setBindGroup: vi.fn(), dispatchWorkgroups() {}, end() {} };

  beforeEach(() => {
    Object.assign(device, {
      createBindGroup: (/** @type {any} */ { entries }) => entries[0].resource.buffer,
      createCommandEncoder: () => ({ beginComputePass: () => pass, finish: () => 'commands' }),
      createComputePipeline: () => ({}),
      createPipelineLayout: () => ({}),
      createShaderModule: () => ({}),
    });
  });

  it('have params of their own, which stay until others are given', async () => {
    const gpu = await createBridge({ fetchAsset: async () => new ArrayBuffer(0) }).requestDevice();
    const buffer = gpu.createBuffer(64, 'out');
    const words = lent(Uint32Array.from([gpu.createPipeline('kernel', '', 'w'), 16, 1, 1, 1, 1, buffer, 0, 64]));
    const [first, second] = [gpu.createProgram(words), gpu.createProgram(words)];
    for (const program of [first, second]) gpu.submitProgram(program, lent(new Uint8Array(256)));
    gpu.runProgram(words, lent(new Uint8Array(256)));
    expect(device.queue.writeBuffer).toHaveBeenCalledTimes(3);
    const used = () => pass.setBindGroup.mock.calls.filter(([index]) => index === 1).map(([, group]) => group);
    expect(new Set(used()).size).toBe(3);
    gpu.submitProgram(first, null, 2);
    expect(device.queue.writeBuffer).toHaveBeenCalledTimes(3);
    expect(device.queue.submit).toHaveBeenCalledTimes(4);
    expect(used().slice(-2)).toEqual([used()[0], used()[0]]);
    gpu.destroyProgram(first);
    expect(used()[0].destroy).toHaveBeenCalledTimes(1);
    expect(() => gpu.submitProgram(first)).toThrow(`no program ${first}`);
  });
});

describe('the loss of a device', () => {
  const bridge = createBridge({ fetchAsset: async () => new ArrayBuffer(0) });

  it('is told once, when it comes', async () => {
    /** @type {(info: any) => void} */
    let lose = () => {};
    device.lost = new Promise((resolve) => (lose = resolve));
    const gpu = await bridge.requestDevice();
    const told = vi.fn();
    gpu.onLost(told);
    expect(told).not.toHaveBeenCalled();
    lose({ reason: 'unknown', message: 'gone' });
    await vi.waitFor(() => expect(told).toHaveBeenCalledWith('unknown: gone'));
    gpu.destroy();
    expect(told).toHaveBeenCalledTimes(1);
    expect(gpu.lost()).toBe('unknown: gone');
  });

  it('is told at once where it has come already, or by being destroyed', async () => {
    const gpu = await bridge.requestDevice();
    const [before, after] = [vi.fn(), vi.fn()];
    gpu.onLost(before);
    gpu.destroy();
    gpu.onLost(after);
    expect([before.mock.calls, after.mock.calls]).toEqual([[['destroyed']], [['destroyed']]]);
  });
});

describe('what Python waits for', () => {
  const made = async () => createBridge({ fetchAsset: async () => new ArrayBuffer(0) }).requestDevice();

  it('is told to it; it can ask whether there is anything to wait for', async () => {
    const gpu = await made();
    expect(gpu.isSettled()).toBe(true);
    gpu.writeAsset(gpu.createBuffer(4, 'one'), 0, new Asset(new ArrayBuffer(4)), 0, 4);
    expect(gpu.isSettled()).toBe(false);
    const told = vi.fn();
    gpu.answer('settle', told);
    await vi.waitFor(() => expect(told.mock.calls).toEqual([[undefined, '']]));
    expect(gpu.isSettled()).toBe(true);
    gpu.note('one', 'wrong');
    expect(gpu.isSettled()).toBe(false);
    gpu.takeErrors();
    expect(gpu.isSettled()).toBe(true);
  });

  it('is told why it fails', async () => {
    const gpu = await made();
    const told = vi.fn();
    gpu.answer('readBuffer', told, 9, 0, 4);
    await vi.waitFor(() => expect(told).toHaveBeenCalledTimes(1));
    expect(told.mock.calls[0][0]).toBe(null);
    expect(told.mock.calls[0][1]).not.toBe('');
  });
});

describe('a file of the site', () => {
  it('goes to a buffer without a copy, and is given back when it is closed', async () => {
    const content = Uint8Array.of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    const bridge = createBridge({ fetchAsset: async () => content.buffer });
    const file = await bridge.openAsset('weights');
    expect([file.size, [...file.read(2, 4)]]).toEqual([12, [2, 3]]);
    const gpu = await bridge.requestDevice();
    const handle = gpu.createBuffer(16, 'weights');
    gpu.writeAsset(handle, 8, file, 4, 12);
    const [buffer, offset, bytes] = device.queue.writeBuffer.mock.calls[0];
    expect([buffer.label, offset, [...bytes]]).toEqual(['weights', 8, [4, 5, 6, 7, 8, 9, 10, 11]]);
    expect(bytes.buffer).toBe(content.buffer);
    file.close();
    expect([file.size, file.read(0, 4).length]).toEqual([0, 0]);
  });

  it('reports a download that fails', async () => {
    const bridge = createBridge({ fetchAsset: async () => Promise.reject(new Error('weights: gone')) });
    await expect(bridge.openAsset('weights')).rejects.toThrow('weights: gone');
  });
});

describe('pipelines compiled early', () => {
  it('are handed to Python, which does not know; what failed is compiled when Python asks', async () => {
    const failed = { label: 'failed', wgsl: 'not WGSL', access: 'r' };
    const good = { label: 'good', wgsl: 'text', access: 'rw' };
    Object.assign(device, {
      createPipelineLayout: () => ({}),
      createShaderModule: (/** @type {any} */ { code }) => ({ code, getCompilationInfo: async () => ({ messages: [] }) }),
      createComputePipeline: vi.fn(() => ({})),
      createComputePipelineAsync: vi.fn(async ({ compute }) => {
        if (compute.module.code === failed.wgsl) throw new Error('it cannot be compiled');
        return {};
      }),
    });
    const gpu = await createBridge({ fetchAsset: async () => new ArrayBuffer(0) }).requestDevice();
    await gpu.compileEarly([failed, good]);
    expect(device.createComputePipelineAsync).toHaveBeenCalledTimes(2);
    expect(await gpu.compileTime(gpu.createPipeline('good', 'text', 'rw'))).toBeGreaterThan(0);
    expect([gpu.takenEarly, device.createComputePipeline.mock.calls.length]).toEqual([1, 0]);
    gpu.createPipeline('failed', failed.wgsl, 'r');
    gpu.createPipeline('good', 'another text', 'rw');
    gpu.createPipeline('good', 'text', 'rr');
    expect([gpu.takenEarly, device.createComputePipeline.mock.calls.length]).toEqual([1, 3]);
    expect(gpu.asked).toHaveLength(4);
    await gpu.settle();
    expect(gpu.takeErrors()).toBe('');
  });
});
