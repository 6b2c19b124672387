import { Runtime } from './runtime/client.js';
const runtime = new Runtime(document.baseURI);
Object.assign(window, { pyAttn: { get ready() { return runtime.ready; }, run: (/** @type {string} */ s) => runtime.run(s), runtime } });
