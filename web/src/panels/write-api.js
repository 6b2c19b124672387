/** The Write panel's calls to Python (py_attn/viewer/panels/write.py). */

/**
 * @typedef {import('../types').Written} Written
 * @typedef {import('../types').CacheChoice} CacheChoice
 * @typedef {ReturnType<typeof createWriteApi>} WriteApi
 */

/** @param {import('../api.js').Call} call */
export function createWriteApi(call) {
  return {
    /** @param {string} prompt @param {boolean} chat @returns {Promise<Written>} */
    start: (prompt, chat) => call('write_start', { prompt, chat }),
    /** @param {number[]} ids @param {number} prompt how many of them were given @param {boolean} scored whether the others' probabilities are told @returns {Promise<Written>} */
    restore: (ids, prompt, scored) => call('write_restore', { ids, prompt, scored }),
    /** @param {number} count @param {import('../types').Sampling} sampling @returns {Promise<Written>} */
    next: (count, sampling) => call('write_next', { count, ...sampling }),
    /** @param {number} length @param {number | null} [token] @returns {Promise<Written>} */
    back: (length, token = null) => call('write_back', { length, token }),
    /** @param {number} index @returns {Promise<import('../types').WrittenToken[]>} */
    alternatives: (index) => call('write_alternatives', { index }),
    /** @param {CacheChoice} choice @returns {Promise<Written>} */
    cache: (choice) => call('write_cache', choice),
    /** @param {[layer: number, head: number][]} heads @returns {Promise<{ off: number }>} */
    headsOff: (heads) => call('write_heads_off', { heads }),
    /** @param {CacheChoice} choice @param {boolean} more whether another cache follows @returns {Promise<import('../types').WriteComparison>} */
    compare: (choice, more) => call('write_compare', { ...choice, more }),
    /** @param {boolean} growing @returns {Promise<import('../types').SourceInfo>} */
    view: (growing) => call('write_view', { growing }),
    /** @returns {Promise<{ gpu: Record<string, number> }>} */
    profile: () => call('write_profile', {}),
    /** @returns {Promise<{ seconds: number, bytes: number }>} */
    estimate: () => call('write_estimate', {}),
  };
}
