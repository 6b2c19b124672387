/** Short texts that this browser keeps from visit to visit, such as the results of autotuning. */

export const NOTES_CACHE = 'py-attn notes';

/** Notes of another browser version say nothing about this one's compiler. @param {string} key */
function address(key) {
  const query = new URLSearchParams({ key, browser: navigator.userAgent });
  return new URL(`notes?${query}`, globalThis.location.href).href;
}

/**
 * The Cache API is there in pages and in workers; where a browser forbids it, nothing is kept.
 * @returns {{ load(key: string): Promise<string>, save(key: string, text: string): Promise<void> }}
 */
export function createNotes() {
  return {
    async load(key) {
      try {
        const found = await (await caches.open(NOTES_CACHE)).match(address(key));
        return found ? await found.text() : '';
      } catch {
        return '';
      }
    },
    async save(key, text) {
      try {
        await (await caches.open(NOTES_CACHE)).put(address(key), new Response(text));
      } catch {
        // The next visit measures again.
      }
    },
  };
}
