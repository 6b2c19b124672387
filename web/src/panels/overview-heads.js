/** Finding and sorting heads by what they do: plain functions over the answers of Python's `labels` and `heads`. */

/**
 * @typedef {import('../types').Label} Label
 * @typedef {import('../types').HeadFindings} HeadFindings
 * @typedef {'layer' | 'label' | 'entropy' | 'sparsity' | 'similarity'} Sort
 * @typedef {{ title: string, heads: number[] }} Group heads are counted through all layers
 * @typedef {{ labels: Label[], heads: number[], scores: number[] }} Found the best head first; the labels that were meant
 */

/** Words that say nothing about which head is meant. */
const FILLERS = new Set('a all an and at attend attending attends do does every find for head heads in is its layer look looking looks most of on that the their this to token tokens what where which with word words'.split(' '));

/** "Layer 5, head 11". @param {number} index @param {number} heads of a layer */
export function headName(index, heads) {
  return `Layer ${Math.floor(index / heads)}, head ${index % heads}`;
}

/** "L5 H11". @param {number} index @param {number} heads of a layer */
export function shortName(index, heads) {
  return `L${Math.floor(index / heads)} H${index % heads}`;
}

/** @param {number} score from 0 to 1 */
export function formatScore(score) {
  return score.toFixed(2);
}

/**
 * A head and what it does, for screen readers.
 * @param {string} name @param {{ name: string, score: number }[]} shown @param {Label[]} labels
 */
export function describeHead(name, shown, labels) {
  if (!shown.length) return name;
  return `${name}: ${shown.map((each) => `${titleOf(each.name, labels)} ${formatScore(each.score)}`).join(', ')}`;
}

/** @param {string} name @param {Label[]} labels */
export function titleOf(name, labels) {
  return labels.find((label) => label.name === name)?.title ?? name;
}

/**
 * The heads in an order, in groups with a heading where there are any.
 * @param {Sort} sort any but "layer" @param {HeadFindings} findings @param {Label[]} labels @returns {Group[]}
 */
export function arrange(sort, findings, labels) {
  const all = findings.shown.map((_, head) => head);
  if (sort === 'label') return byLabel(all, findings, labels);
  if (sort === 'similarity' && findings.order.length) return byGroup(findings, labels);
  const figure = sort === 'sparsity' ? findings.sparsity : findings.entropy;
  const sign = sort === 'sparsity' ? -1 : 1;
  // A head that sees nothing has no figure, and comes last.
  const place = (/** @type {number} */ head) => (Number.isNaN(figure[head]) ? Infinity : sign * figure[head]);
  return [{ title: '', heads: all.sort((a, b) => place(a) - place(b) || a - b) }];
}

/** @param {number[]} all @param {HeadFindings} findings @param {Label[]} labels */
function byLabel(all, { shown }, labels) {
  const score = (/** @type {number} */ head) => shown[head][0]?.score ?? 0;
  const groups = [...labels, { name: undefined, title: 'no label' }].map(({ name, title }) => ({
    title,
    heads: all.filter((head) => shown[head][0]?.name === name).sort((a, b) => score(b) - score(a) || a - b),
  }));
  return groups.filter(({ heads }) => heads.length);
}

/** Groups of like heads; those of a single head stand together at the end. @param {HeadFindings} findings @param {Label[]} labels */
function byGroup({ shown, groups, order }, labels) {
  /** @type {Map<number, number[]>} */
  const members = new Map();
  for (const head of order) members.set(groups[head], [...(members.get(groups[head]) ?? []), head]);
  const several = [...members.values()].filter((heads) => heads.length > 1);
  const alone = [...members.values()].filter((heads) => heads.length === 1).flat();
  const found = several.map((heads) => ({ title: `alike${mostly(heads, shown, labels)}`, heads }));
  if (alone.length) found.push({ title: 'unlike the others', heads: alone });
  return found;
}

/** What most heads of a group do. @param {number[]} heads @param {HeadFindings['shown']} shown @param {Label[]} labels */
function mostly(heads, shown, labels) {
  const common = labels.find(({ name }) => 2 * heads.filter((head) => shown[head][0]?.name === name).length > heads.length);
  return common ? `, mostly ${common.title}` : '';
}

/** Groups as lines of the grid, so many heads in each. @param {Group[]} groups @param {number} columns @returns {{ title: string, count: number, lines: number[][] }[]} */
export function linesOf(groups, columns) {
  return groups.map(({ title, heads }) => ({
    title,
    count: heads.length,
    lines: Array.from({ length: Math.ceil(heads.length / columns) }, (_, i) => heads.slice(i * columns, (i + 1) * columns)),
  }));
}

/**
 * The head that a key leads to from another one; undefined where it leads nowhere.
 * @param {string} key @param {number} head @param {number[][]} lines as they stand in the grid
 */
export function moveTo(key, head, lines) {
  const line = lines.findIndex((each) => each.includes(head));
  if (line < 0) return undefined;
  const column = lines[line].indexOf(head);
  const inLine = (/** @type {number[] | undefined} */ other) => other?.[Math.min(column, other.length - 1)];
  const moves = /** @type {Record<string, number | undefined>} */ ({
    ArrowUp: inLine(lines[line - 1]),
    ArrowDown: inLine(lines[line + 1]),
    ArrowLeft: lines[line][column - 1],
    ArrowRight: lines[line][column + 1],
    Home: lines[line][0],
    End: lines[line].at(-1),
  });
  return moves[key];
}

/**
 * The heads that a search means: by their place ("L5 H11", "layer 5", "head 11"), by what they do ("previous token",
 * "punct"), or both.
 * @param {string} text @param {HeadFindings | null} findings @param {Label[]} labels
 * @param {{ layers: number, heads: number }} shape
 * @returns {Found | null} null where the text is empty; no heads where none is meant
 */
export function search(text, findings, labels, shape) {
  const { layer, head, rest } = placeIn(text.toLowerCase());
  const words = wordsOf(rest);
  if (layer === null && head === null && !words.length) return null;
  const here = (/** @type {number} */ index) =>
    (layer === null || Math.floor(index / shape.heads) === layer) && (head === null || index % shape.heads === head);
  const places = Array.from({ length: shape.layers * shape.heads }, (_, index) => index).filter(here);
  if (!words.length) return { labels: [], heads: places, scores: places.map(() => 1) };
  const meant = labelsMeant(words, labels);
  const names = new Set(meant.map(({ name }) => name));
  const found = places
    .map((index) => ({ index, score: Math.max(0, ...(findings?.shown[index] ?? []).filter(({ name }) => names.has(name)).map(({ score }) => score)) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score || a.index - b.index);
  return { labels: meant, heads: found.map(({ index }) => index), scores: found.map(({ score }) => score) };
}

/** The head that comes closest to a label without reaching it. @param {Label} label @param {HeadFindings} findings @param {Label[]} labels */
export function closest(label, { scores }, labels) {
  const at = labels.indexOf(label);
  let best = { head: -1, score: 0 };
  for (let head = 0; (head + 1) * labels.length <= scores.length; head++) {
    const score = scores[head * labels.length + at];
    if (score > best.score) best = { head, score };
  }
  return best.head < 0 ? null : best;
}

/** Layer and head in a search, and what else it says. @param {string} text in small letters */
function placeIn(text) {
  /** @type {Record<string, number | null>} */
  const place = { l: null, h: null };
  const rest = text.replace(/(?<=\d)(?=h)/gu, ' ').replace(/(?<![a-z0-9])(layer|head|l|h)[\s.]*(\d+)(?![a-z0-9])/gu, (_, what, number) => {
    place[what[0]] = Number(number);
    return ' ';
  });
  return { layer: place.l, head: place.h, rest };
}

/** @param {string} text in small letters */
function wordsOf(text) {
  const words = text.split(/[^\p{L}\p{N}_+-]+/u).filter(Boolean);
  const telling = words.filter((word) => !FILLERS.has(word));
  // "token" alone still means something: every label that speaks of tokens.
  return telling.length ? telling : words.filter((word) => word.length > 3 && !/^(attend|head|layer|look)/u.test(word));
}

/** Labels that fit all words, and nearly as well as the one that fits best. @param {string[]} words @param {Label[]} labels */
function labelsMeant(words, labels) {
  const fits = labels.map((label) => ({ label, fit: fitOf(words, label) }));
  const best = Math.max(...fits.map(({ fit }) => fit));
  return fits
    .filter(({ fit }) => fit > 0 && fit >= 0.8 * best)
    .sort((a, b) => b.fit - a.fit)
    .map(({ label }) => label);
}

/** How well a label fits words, from 0 to 1. @param {string[]} words @param {Label} label */
function fitOf(words, { name, title, description, synonyms }) {
  const own = `${name} ${title}`.toLowerCase().split(' ');
  const texts = /** @type {[string[], number][]} */ ([
    [own, 1],
    [synonyms.split(' '), 0.9],
    [description.toLowerCase().split(/[^\p{L}\p{N}]+/u), 0.4],
  ]);
  const each = words.map((word) => Math.max(...texts.map(([texts_, weight]) => weight * Math.max(...texts_.map((other) => likeness(word, other))))));
  return Math.min(...each) > 0 ? each.reduce((sum, fit) => sum + fit, 0) / each.length : 0;
}

/** How alike a word that was typed and another one are, from 0 to 1. @param {string} typed @param {string} other */
function likeness(typed, other) {
  if (typed === other) return 1;
  if (typed.length >= 2 && other.startsWith(typed)) return 0.9;
  if (typed.length >= 4 && other.length >= 4 && typed.startsWith(other)) return 0.8;
  if (typed.length >= 4 && other.length >= 4 && isNearly(typed, other)) return 0.7;
  return 0;
}

/** Whether one letter more, less, other or exchanged with its neighbour makes one word of the other. @param {string} a @param {string} b */
function isNearly(a, b) {
  if (Math.abs(a.length - b.length) > 1) return false;
  let i = 0;
  while (i < a.length && a[i] === b[i]) i++;
  const ends = [a.slice(i + 1) === b.slice(i + 1), a.slice(i + 1) === b.slice(i), a.slice(i) === b.slice(i + 1)];
  return ends.includes(true) || (a[i] === b[i + 1] && a[i + 1] === b[i] && a.slice(i + 2) === b.slice(i + 2));
}
