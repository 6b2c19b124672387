/** The visitor's own kernels in the page's address. */

import { packForks, unpackForks } from './panels/fork-list.js';

/**
 * @param {import('./store.js').Store} store
 * @param {() => void} changed tells that the address has to be written again
 * @param {(error: unknown) => void} failed an address has something else in the place of kernels
 */
export function keepForks(store, changed, failed) {
  let packed = '';
  store.on(['forks'], async ({ forks }) => {
    // Too much for an address: it goes on without them.
    const now = await packForks(forks).catch(() => '');
    if (store.state.forks !== forks || now === packed) return;
    packed = now;
    changed();
  });
  return {
    /** As the address has them, '' for none. */
    get packed() {
      return packed;
    },
    /** Goes where an address leads. @param {string} asked */
    async follow(asked) {
      if (asked === packed) return;
      packed = asked; // until it is read, the address keeps it
      try {
        const forks = await unpackForks(asked);
        if (packed === asked) store.set({ forks });
      } catch (error) {
        if (packed === asked) packed = '';
        failed(error);
      }
    },
  };
}
