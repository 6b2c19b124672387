/** @typedef {import('../types').Workload} Workload */

/** Rows [b, h, i] of a [B, S, H, D] array. @param {Float32Array} out @param {Workload} workload @param {number[][]} rows */
export function pick(out, { heads: H, queries: S, head_dim: D }, rows) {
  return rows.map(([b, h, i]) => {
    const begin = ((b * S + i) * H + h) * D;
    return out.slice(begin, begin + D);
  });
}
