/** One Python for all elements of a page: started by the first that is seen, ended some time after the last is gone. */

import { Runtime } from '../runtime/client.js';

const LINGER_MS = 10_000; // pages take elements away and put them back
const REPEATED_LOSS_MS = 20_000;

/** @type {{ runtime: Runtime, users: Set<object> } | null} */
let shared = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let ending;

/** The runtime also dispatches `renewed` after a lost device was replaced, or `given-up`. @param {object} user @param {string} base the site's folder */
export function acquireRuntime(user, base) {
  clearTimeout(ending);
  if (!shared) {
    shared = { runtime: new Runtime(base), users: new Set() };
    renewWhenLost(shared.runtime);
    // A start that failed is not kept: the next element tries again.
    shared.runtime.ready.catch(() => (shared = null));
  }
  shared.users.add(user);
  return shared.runtime;
}

/** @param {object} user */
export function releaseRuntime(user) {
  if (!shared?.users.delete(user) || shared.users.size) return;
  ending = setTimeout(() => {
    shared?.runtime.end();
    shared = null;
  }, LINGER_MS);
}

/** @param {Runtime} runtime */
function renewWhenLost(runtime) {
  let lostAt = -Infinity;
  runtime.addEventListener('lost', async () => {
    const again = performance.now() - lostAt < REPEATED_LOSS_MS;
    lostAt = performance.now();
    try {
      // If the same view loses the GPU twice in a row, it is not tried a third time.
      if (again) throw new Error('The GPU was lost twice in a row; what is shown may be too much for it.');
      await runtime.renew();
      runtime.dispatchEvent(new Event('renewed'));
    } catch (error) {
      runtime.dispatchEvent(new CustomEvent('given-up', { detail: error }));
    }
  });
}
