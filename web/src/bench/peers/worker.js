/** The peers' worker: each library is loaded when it is first asked for, and has a device of its own. */

import * as Comlink from 'comlink';

/**
 * @typedef {import('../types').Workload} Workload
 * @typedef {import('../types').PeerTask} PeerTask
 * @typedef {import('../types').PeerResult} PeerResult
 * @typedef {{ version: string, supports(workload: Workload): boolean, run(task: PeerTask): Promise<PeerResult> }} Library
 */

/** @type {Record<string, () => Promise<Library>>} */
const LIBRARIES = {
  'onnxruntime-web': () => import('./onnx.js'),
  'jax-js': () => import('./jax.js'),
  'wllama on WebGPU': () => import('./wllama.js'),
  'wllama on the CPU': () => import('./wllama.js'),
};

const worker = {
  /** @param {string} name */
  async version(name) {
    return (await LIBRARIES[name]()).version;
  },

  /** @param {string} name @param {Workload} workload */
  async supports(name, workload) {
    return (await LIBRARIES[name]()).supports(workload);
  },

  /** @param {string} name @param {PeerTask} task */
  async run(name, task) {
    return (await LIBRARIES[name]()).run(task);
  },

  /** @param {string} name @param {import('../types').ModelPeerTask} task @param {string} base the site's folder */
  async runModel(name, task, base) {
    const { runModel } = await import('./wllama.js');
    return runModel(task, base, name.includes('WebGPU'));
  },
};

/** @typedef {typeof worker} PeerWorker */
Comlink.expose(worker);
