/** The roofline picture: rate over arithmetic intensity, under the adapter's two ceilings, as SVG. */

import { formatFigure } from './figures.js';

/** @typedef {import('./types').Report} Report */

const WIDTH = 720;
const HEIGHT = 380;
const LEFT = 64;
const BOTTOM = 44;
const TOP = 18;
const RIGHT = 18;
const SVG = 'http://www.w3.org/2000/svg';

/**
 * Bytes that a row has to move at least: every input and output once.
 * @param {import('./types').Workload} workload
 */
function leastBytes({ kind, batch, heads, queries, keys, kv_heads, head_dim, bytes, dtype, flops, causal }) {
  if (bytes !== null) return bytes;
  const size = dtype === 'float16' ? 2 : 4;
  const backward = kind === 'backward';
  // A packed batch has as many rows as dense sequences of its mean length would.
  const packedRows = Math.sqrt(((causal ? 2 : 1) * flops * batch) / (4 * (backward ? 2.5 : 1) * heads * head_dim));
  const once = queries ? batch * (2 * heads * queries + 2 * kv_heads * keys) : 4 * heads * packedRows;
  return size * head_dim * once * (backward ? 2 : 1);
}

/** @param {Report} report @returns {SVGSVGElement | null} */
export function roofline({ rows, ceilings }) {
  const points = rows.flatMap(({ workload, ours }) =>
    ours && workload.variant !== 'matrix'
      ? [{ name: workload.name, x: workload.flops / leastBytes(workload), y: workload.flops / ours.gpu_us / 1e3, kind: workload.kind }]
      : [],
  );
  if (!ceilings || !points.length) return null;
  const peak = 1e3 * ceilings.fma_tflops; // GFLOP/s, as read_gbs × FLOP/B
  const xs = [Math.min(0.25, ...points.map(({ x }) => x / 2)), Math.max(...points.map(({ x }) => x * 2), (4 * peak) / ceilings.read_gbs)];
  const ys = [Math.min(...points.map(({ y }) => y / 3)), peak * 2];
  const px = scale(xs, LEFT, WIDTH - RIGHT);
  const py = scale(ys, HEIGHT - BOTTOM, TOP);
  const svg = node('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', class: 'roofline', 'aria-label': 'Roofline: rate over arithmetic intensity' });
  for (const tick of powers(xs)) {
    svg.append(node('line', { x1: px(tick), x2: px(tick), y1: TOP, y2: HEIGHT - BOTTOM, class: 'grid' }));
    svg.append(label(px(tick), HEIGHT - BOTTOM + 16, String(tick), 'middle'));
  }
  for (const tick of powers(ys)) {
    svg.append(node('line', { x1: LEFT, x2: WIDTH - RIGHT, y1: py(tick), y2: py(tick), class: 'grid' }));
    svg.append(label(LEFT - 8, py(tick) + 4, tick >= 1000 ? `${tick / 1000} T` : tick >= 1 ? `${tick} G` : `${Math.round(1000 * tick)} M`, 'end'));
  }
  svg.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, 'FLOP per byte that must be moved', 'middle'));
  svg.append(label(LEFT, TOP - 6, 'FLOP/s', 'start'));
  const ridge = peak / ceilings.read_gbs;
  const roof = [[xs[0], xs[0] * ceilings.read_gbs], [ridge, peak], [xs[1], peak]];
  svg.append(node('polyline', { points: roof.map(([x, y]) => `${px(x)},${py(Math.max(y, ys[0]))}`).join(' '), class: 'roof' }));
  const placed = /** @type {number[][]} */ ([]);
  for (const { name, x, y, kind } of points) {
    const dot = node('circle', { cx: px(x), cy: py(y), r: 5, class: 'dot', 'data-kind': kind });
    const title = node('title', {});
    title.textContent = `${name}: ${formatFigure(y)} GFLOP/s at ${formatFigure(x)} FLOP/B`;
    dot.append(title);
    svg.append(dot);
    const side = px(x) > WIDTH - 130 ? -1 : 1;
    let at = py(y) + 4;
    while (placed.some(([a, b]) => Math.abs(a - px(x)) < 100 && Math.abs(b - at) < 13)) at += 13;
    placed.push([px(x), at]);
    svg.append(label(px(x) + 9 * side, at, name, side > 0 ? 'start' : 'end', 'name'));
  }
  return /** @type {SVGSVGElement} */ (svg);
}

/** A logarithmic axis. @param {number[]} range @param {number} from @param {number} to */
function scale([low, high], from, to) {
  const span = Math.log(high / low);
  return (/** @type {number} */ value) => from + ((to - from) * Math.log(value / low)) / span;
}

/** @param {number[]} range */
function powers([low, high]) {
  const ticks = [];
  for (let n = Math.ceil(Math.log10(low)); n <= Math.log10(high); n++) ticks.push(Number(`1e${n}`));
  return ticks;
}

/** @param {string} tag @param {Record<string, string | number>} attributes */
function node(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/** @param {number} x @param {number} y @param {string} text @param {string} anchor @param {string} [kind] */
function label(x, y, text, anchor, kind = 'tick') {
  const element = node('text', { x, y, 'text-anchor': anchor, class: kind });
  element.textContent = text;
  return element;
}
