/** Devices that a page holds for notebook kernels: what py_attn/remote/bridge.py sends is done by the bridge. */

import { createBridge } from '../bridge.js';

/**
 * @typedef {import('../bridge.js').DeviceBridge} DeviceBridge
 * @typedef {{ op: string, args: any[], id?: number }} Command arrays in `args` are typed arrays already
 * @typedef {(id: number, result: unknown, error?: string) => void} Answer
 */

/** @type {Record<string, (device: DeviceBridge, ...args: any[]) => unknown>} */
const OPERATIONS = {
  request_device: (device) => JSON.parse(device.info()),
  create_buffer: (device, handle, size, label) => device.createBuffer(size, label, handle),
  destroy_buffer: (device, handle) => device.destroyBuffer(handle),
  write_buffer: (device, handle, offset, bytes) => device.writeBuffer(handle, offset, lend(bytes)),
  read_buffer: readBuffer,
  create_pipeline: (device, handle, label, wgsl, access) => device.createPipeline(label, wgsl, access, handle),
  destroy_pipeline: (device, handle) => device.destroyPipeline(handle),
  check_shader: async (device, wgsl) => JSON.parse(await device.checkShader(wgsl)),
  compile_us: (device, handle) => device.compileTime(handle),
  create_program: (device, handle, words) => device.createProgram(lend(words), handle),
  submit_program: (device, handle, params, times) => device.submitProgram(handle, lend(params), times),
  submit_timed: (device, ticket, handle, params, together, times) =>
    device.submitTimed(handle, lend(params), together, times, ticket),
  destroy_program: (device, handle) => device.destroyProgram(handle),
  timings: async (device, ticket) => JSON.parse(await device.timings(ticket)),
  synchronize: async (device) => {
    await device.settle();
    return JSON.parse(device.takeErrors() || '[]');
  },
  destroy: (device) => device.destroy(),
};

/**
 * One device; it is asked for at once.
 * @param {(reason: string) => void} onLost
 */
export function createDevice(onLost) {
  const { requestDevice } = createBridge({
    fetchAsset: () => Promise.reject(new Error('files of a model come from the computer that runs Python')),
  });
  const asking = requestDevice().then((device) => {
    void device.whenLost().then(onLost);
    return device;
  });
  asking.catch(() => {});
  // Every batch begins after the one before it has begun; what it reads may be answered in any order.
  /** @type {Promise<unknown>} */
  let order = asking.catch(() => {});

  return {
    /** @param {Command[]} commands @param {Answer} answer */
    run(commands, answer) {
      order = order.then(async () => {
        const device = await asking.catch((error) => /** @type {Error} */ (error));
        for (const command of commands) execute(device, command, answer);
      });
    },
    destroy: () => void asking.then((device) => device.destroy()).catch(() => {}),
  };
}

/** @param {DeviceBridge | Error} device @param {Command} command @param {Answer} answer */
function execute(device, { op, args, id }, answer) {
  const fail = (/** @type {unknown} */ error) => {
    if (id !== undefined) answer(id, null, error instanceof Error ? error.message : String(error));
    else if (!(device instanceof Error)) device.note(op, error);
  };
  try {
    if (device instanceof Error) throw device;
    const operation = OPERATIONS[op];
    if (!operation) throw new Error(`the page knows no operation ${op}; front end and py_attn differ in version`);
    const result = operation(device, ...args);
    if (id !== undefined) Promise.resolve(result).then((value) => answer(id, value ?? null), fail);
  } catch (error) {
    fail(error);
  }
}

/** @param {DeviceBridge} device @param {number} handle @param {number} offset @param {number} size */
async function readBuffer(device, handle, offset, size) {
  const { bytes, release } = await device.readBuffer(handle, offset, size);
  try {
    return bytes.slice();
  } finally {
    release();
  }
}

/** A typed array as the bridge takes its data from Python. @param {any} data */
function lend(data) {
  return { getBuffer: () => ({ data, release() {} }) };
}
