/** The page's entry, and its interface for tests and the developer console: `window.pyAttn`. */

import { mountApp } from './app.js';
import { Runtime } from './runtime/client.js';

const profile = new URLSearchParams(location.search).has('profile');
const runtime = new Runtime(document.baseURI.replace(/[#?].*$/u, ''), { profile, forLater: true });

const door = {
  /** A promise of what there is: adapter, features, software, versions. */
  get ready() {
    return runtime.ready;
  },
  /** Runs Python in the worker; resolves with its last expression. @param {string} source */
  run: (source) => runtime.run(source),
  /** What the start consisted of. */
  profile: () => runtime.profile(),
};
Object.assign(window, { pyAttn: door });

mountApp(/** @type {HTMLElement} */ (document.getElementById('app')), runtime);
