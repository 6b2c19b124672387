import * as Comlink from 'comlink';

const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
const runtime = /** @type {Comlink.Remote<import('./worker.js').Runtime>} */ (Comlink.wrap(worker));
const status = /** @type {HTMLElement} */ (document.getElementById('status'));

const ready = (async () => {
  const info = await runtime.boot(document.baseURI, Comlink.proxy((line) => (status.textContent = line)));
  status.textContent = `ready: ${info.adapter}`;
  return info;
})();
ready.catch((error) => (status.textContent = String(error)));

Object.assign(window, { pyAttn: { ready, run: (/** @type {string} */ source) => ready.then(() => runtime.run(source)) } });
