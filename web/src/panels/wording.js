/** What the panels say about a source, its maps and how they were computed. */

import { formatCount, formatToken, formatWeight } from '../format.js';

/**
 * @typedef {import('../types').SourceInfo} SourceInfo
 * @typedef {import('../types').Show} Show
 * @typedef {import('../types').Over} Over
 */

/** What the large map shows, in a sentence. */
export const MEANING = {
  weights: 'How much each query attends to each key.',
  gradient:
    'Weight × the gradient of ½‖out‖² with respect to it, over ‖out‖²: each key’s share of the output. Negative shares work against it.',
};

/** @param {SourceInfo} source */
export function describeMaps({ layers, heads, length }) {
  const what = layers === 1 ? '1 layer' : `${layers} layers`;
  return `${what} × ${heads === 1 ? '1 head' : `${heads} heads`}, each ${formatCount(length)} × ${formatCount(length)} weights.`;
}

/** One row of all maps. @param {SourceInfo} source @param {number} query */
export function describeRow({ layers, heads, tokens }, query) {
  return `${layers} layers × ${heads} heads: what “${formatToken(tokens[query])}” at position ${formatCount(query)} attends to, from the first token at the left to itself at the right.`;
}

/** How the maps were computed. @param {SourceInfo} source @param {{ software: boolean } | null} info */
export function describeEngine({ kind, engine }, info) {
  if (kind === 'weights') return 'shown as they were given';
  if (engine !== 'webgpu') return 'computed by the numpy reference';
  return info?.software ? 'computed by WGSL on a software adapter' : 'computed by WGSL on the GPU';
}

/** Which map the large one is. @param {Over} over @param {number} layer @param {number} head */
export function nameMap(over, layer, head) {
  const names = { head: `Layer ${layer}, head ${head}`, layer: `Layer ${layer}, mean of its heads`, all: 'Mean of all heads', rollout: `Rollout up to layer ${layer}` };
  return names[over];
}

const SCALES = { linear: '', sqrt: ' (√ scale)', log: ' (logarithmic scale)' };

/** What the colours of a figure mean. @param {Show} show @param {keyof typeof SCALES} scale */
export function meaningOf(show, scale) {
  return `${show === 'gradient' ? 'Weight × gradient, share of the output' : 'Attention weight'}${SCALES[scale]}`;
}

/** The model that a source comes from, '' where it is the visitor's own or none. @param {SourceInfo} source */
export function modelOf({ kind }) {
  if (kind === 'sample' || kind === 'text') return 'all-MiniLM-L6-v2';
  return kind === 'written' ? 'SmolLM2-135M-Instruct' : '';
}

/** What the large map shows, in a sentence. @param {SourceInfo} source @param {Show} show @param {Over} over @param {number} layer */
export function describeMeaning({ layers, heads }, show, over, layer) {
  const what = show === 'gradient' ? 'The mean share of the output over' : 'The mean weight over';
  if (over === 'layer') return `${what} the ${heads} heads of layer ${layer}.`;
  if (over === 'all') return `${what} all ${layers * heads} heads of ${layers} layers.`;
  if (over === 'rollout') {
    return `Where each token’s vector after layer ${layer} comes from: the layers’ mean weights, each mixed half and half with the residual connection, multiplied.`;
  }
  return MEANING[show];
}

/** What a row of the large map is. @param {SourceInfo} source @param {Show} [show] @param {Over} [over] */
export function describeRows(source, show, over = 'head') {
  const { length, layers, heads, base, edited = [] } = source;
  const mods = edited.length ? ` Your ${edited.join(' and ')} ${edited.length > 1 ? 'are' : 'is'} applied.` : '';
  if (show === 'gradient') {
    return `Every row shows where one query’s output comes from: the shares of ${formatCount(length)} keys, which sum to 1.${mods}`;
  }
  const keys = `${formatCount(length)} keys`;
  if (over === 'rollout') return `Every row is one query’s rollout to ${keys}.${mods}`;
  if (over !== 'head') return `Every row is the mean of ${over === 'all' ? layers * heads : heads} heads’ rows over ${keys}.${mods}`;
  if (base) return `Every row is one query’s attention to ${keys}, read from ${formatCount(base.tokens.length)} tokens.${mods}`;
  return `Every row is one query’s softmax over ${keys}, ${originOfRows(source)}.${mods}`;
}

/** Whether the maps came with the page, and were not computed here. @param {SourceInfo | null} source */
export function isBuilt(source) {
  return source?.engine === 'built';
}

/** @param {SourceInfo} source */
function originOfRows({ kind, engine }) {
  if (kind === 'weights') return 'as it was given';
  return engine === 'webgpu' ? 'recomputed from Q, K and the row’s LSE' : 'computed by the numpy reference';
}

/** The shape of a layer's attention call. @param {SourceInfo} source */
export function describeShape(source) {
  const { heads, kvHeads, headDim, base, edited = [] } = source;
  const length = base?.tokens.length ?? source.length;
  const count = heads === kvHeads ? `${heads} heads` : `${heads} heads over ${kvHeads}`;
  const mods = edited.length ? `, with your ${edited.join(' and ')}` : '';
  return `${count}, ${formatCount(length)} × ${formatCount(length)}, head dim ${headDim}, float32${mods}`;
}

/** What the links of a row leave out. @param {import('../types').Row} row @param {boolean} shares */
export function describeRest({ links, weights }, shares) {
  if (!links.length) return 'Everything in this row is masked: its weights are all zero.';
  const others = weights.reduce((count, weight) => count + Number(weight !== 0), 0) - links.length;
  if (others <= 0) return 'The row has no other nonzero weights.';
  const sum = links.reduce((total, { weight }) => total + weight, 0);
  return `Together ${(100 * sum).toFixed(1)} % of the ${shares ? 'output' : 'row'}; the rest is spread over ${others} more keys.`;
}

/** The strongest links of a row for screen readers. @param {import('../types').Row} row @param {string[]} tokens @param {boolean} shares */
export function describeLinks({ query, links }, tokens, shares) {
  const strongest = links.slice(0, 3).map(({ key, weight }) => `${tokens[key]} ${formatWeight(weight)}`);
  return `${tokens[query]} ${relation(shares)} ${strongest.join(', ')}`;
}

/** Between a query and its keys. @param {boolean} shares */
export function relation(shares) {
  return shares ? 'gets its output from' : 'attends to';
}

/** How caches are compared. @param {import('../types').CacheStep} step @param {number} head @param {SourceInfo | null} source */
export function describeComparison({ time, clock }, head, source) {
  const times = !time
    ? 'Without WebGPU numpy computes the same, and there is no time worth showing.'
    : clock === 'gpu'
      ? 'Times by GPU timestamps.'
      : 'Times by wall clock.';
  const stored =
    source?.kind === 'sample' ? ' The sample was stored as float16, so a float16 cache loses nothing.' : '';
  return `The strip below each cache shows the weights of head ${head}, and below them their differences from the float32 cache (blue: smaller). ${times}${stored}`;
}
