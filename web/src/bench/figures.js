/** Figures of the bench as text. */

/** @typedef {import('./types').Workload} Workload */

/** Three digits that count. @param {number} x */
export function formatFigure(x) {
  if (x >= 1000) return Math.round(x).toLocaleString('en');
  return x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x >= 0.01 ? x.toFixed(2) : x.toPrecision(2);
}

/** @param {Workload} workload */
export function unitOf(workload) {
  return workload.bytes === null ? 'TFLOP/s' : 'GB/s';
}

/** How the tile that a call takes compares with the fastest of the table. @param {import('./types').Ours['tiles']} tiles */
export function tilesText(tiles) {
  if (!tiles) return '';
  const ratio = `${tiles.ratio.toFixed(3)} × the time of the fastest tile`;
  return tiles.best === tiles.chosen ? `${ratio}, its own` : `${ratio}, ${tiles.best}`;
}

/** @param {number} rate in TFLOP/s */
export function formatFlops(rate) {
  return rate < 0.1 ? `${formatFigure(1000 * rate)} GFLOP/s` : `${formatFigure(rate)} TFLOP/s`;
}

/** A workload's rate in the unit that suits it. @param {number} rate @param {Workload} workload */
export function formatRate(rate, workload) {
  return workload.bytes === null ? formatFlops(rate) : `${formatFigure(rate)} GB/s`;
}

/** @param {number | null | undefined} share */
export function formatShare(share) {
  return share == null ? '' : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
}
