/** Wall time of a peer's calls, measured by the same steps as ours (`wall_time` in bench/clocks.py). */

/**
 * @param {(n: number) => unknown} call may return a promise of having handed the work over
 * @param {() => Promise<unknown>} finish resolves when the GPU is done
 * @param {number} seconds
 * @param {number} [most]
 * @returns {Promise<{ alone_us: number, row_us: number, calls: number }>}
 */
export async function wallTime(call, finish, seconds, most = 200) {
  for (let n = 0; n < 3; n++) await call(n);
  await finish();
  const alone = [];
  const begun = performance.now();
  while (alone.length < 3 || (performance.now() - begun < 1000 * seconds && alone.length < 30)) {
    const start = performance.now();
    await call(alone.length);
    await finish();
    alone.push(performance.now() - start);
  }
  const calls = Math.max(2, Math.min(most, Math.round((1000 * seconds) / 3 / median(alone))));
  const rows = [];
  for (let n = 0; n < 3; n++) {
    const start = performance.now();
    for (let k = 0; k < calls; k++) await call(k);
    await finish();
    rows.push((performance.now() - start) / calls);
  }
  return { alone_us: 1000 * median(alone), row_us: 1000 * median(rows), calls };
}

/** @param {number[]} values */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
