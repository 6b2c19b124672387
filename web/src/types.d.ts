/** What Python's viewer answers with (py_attn/viewer), and what the panels share. */

export interface SourceInfo {
  kind: 'sample' | 'text' | 'synthetic' | 'written' | 'tensors' | 'weights';
  title: string;
  tokens: string[];
  layers: number;
  heads: number;
  kvHeads: number;
  length: number;
  headDim: number;
  note: string;
  engine: string;
  /** which of the visitor's score_mod and mask_mod apply to it */
  edited?: string[];
  /** why the visitor's text does not apply to it */
  editError?: EditError | null;
  /** whether each query sees only the keys up to its own position */
  causal?: boolean;
  /** a text that is being written: the next version of it comes soon */
  growing?: boolean;
  /** whether a word has several pieces, which can be merged */
  canMergeWords?: boolean;
  /** how many tokens are special ones, such as [CLS] */
  specialTokens?: number;
  /** how tokens are read */
  reading?: { words: boolean; special: 'show' | 'hide' | 'renormalise' };
  /** what that does here, in words */
  readingNote?: string;
  /** where positions do not stand for single tokens: all tokens, and which of them each position stands for */
  base?: { tokens: string[]; starts: number[]; stops: number[] };
}

/** Sums and entropies of a map. */
export interface Margins {
  rowSum: Float32Array;
  /** attention that a key receives from all queries */
  columnSum: Float32Array;
  /** of each row, in bits */
  entropy: Float32Array;
}

/** A source from a file, with what was found there. */
export interface OpenedFile extends SourceInfo {
  file: {
    kind: 'npz' | 'npy' | 'safetensors' | 'json';
    found: string[];
    /** the order in which the axes were read, such as "BHSD", and those in which they can be read */
    layout: string;
    layouts: string[];
    hasTokens: boolean;
  };
}

/** What a visitor says about a file, instead of the file itself. */
export interface FileChoices {
  layout?: string;
  tokens?: string[];
}

export type Holds = 'queries' | 'attentions';

export interface MadeFile {
  name: string;
  data: Uint8Array<ArrayBuffer>;
}

export interface Overview {
  layer: number;
  heads: number;
  size: number;
  step: number;
  /** the largest weight of the layer with the range "map", otherwise 1; none for what came with the page */
  maximum?: number;
  rgba: Uint8Array<ArrayBuffer>;
}

/** Something that a head may do (py_attn/findings). */
export interface Label {
  name: string;
  title: string;
  description: string;
  synonyms: string;
}

/** What each head does, for all heads of all layers in order. */
export interface HeadFindings {
  /** the labels that a head gets, the highest score first */
  shown: { name: string; score: number }[][];
  /** of every head for every label; NaN where there is none */
  scores: Float32Array;
  /** in bits */
  entropy: Float32Array;
  sparsity: Float32Array;
  /** of like heads; empty where there are too many to compare */
  groups: Int32Array;
  order: Int32Array;
  /** how many rows the score of each label is a mean over */
  rows: Record<string, number>;
  /** 1, or n where only every n-th row was looked at */
  step: number;
}

/** One row of every map. */
export interface OverviewRow {
  query: number;
  size: number;
  rgba: Uint8Array<ArrayBuffer>;
}

export interface MapWindow {
  rgba: Uint8Array<ArrayBuffer>;
  height: number;
  width: number;
  rows: [number, number];
  columns: [number, number];
  exact: boolean;
  step: number;
  /** the weight that has the last colour */
  maximum?: number;
  /** 1, or n where the maximum is the largest of every n-th row */
  maximum_step?: number;
}

/** The map of the head in focus, of what it is compared with, and their difference where there is one. */
export interface Compared {
  a: MapWindow;
  b: MapWindow;
  difference?: MapWindow | null;
}

/** How far two maps lie apart; without the optional figures where they cannot be subtracted. */
export interface CompareFigures {
  /** of the map that is compared with */
  tokens: string[];
  /** the largest weight of both maps */
  maximum: number;
  note: string;
  /** why there is no difference, '' where there is one */
  whyNot: string;
  step: number;
  rows?: number;
  variation?: number;
  /** bits */
  shannon?: number;
  largest?: { query: number; key: number; a: number; b: number; difference: number };
}

/** One query's weights in both maps. */
export interface CompareRow {
  query: number;
  a: Float32Array;
  b?: Float32Array | null;
}

export interface Weights {
  weights: Float32Array;
  rows: [number, number];
  columns: [number, number];
}

export interface Row {
  query: number;
  weights: Float32Array;
  links: { key: number; weight: number }[];
}

/** One token's weights in several heads, one head after the other. */
export interface TokenWeights {
  weights: Float32Array;
  /** the weight that has the last colour */
  maximum: number;
}

/** The strongest links of a part of several heads' maps, the strongest first. */
export interface Strongest {
  /** which of the heads that were asked for */
  head: Int32Array;
  query: Int32Array;
  key: Int32Array;
  weight: Float32Array;
  /** how many weights of the part are not zero */
  count: number;
  maximum: number;
}

export interface Legend {
  rgba: Uint8Array<ArrayBuffer>;
  ticks: { value: number; at: number }[];
}

/** What a map shows: weights, or each weight times the gradient of its row's output with respect to it. */
export type Show = 'weights' | 'gradient';

export interface Style {
  show?: Show;
  colormap: string;
  scale: 'linear' | 'sqrt' | 'log';
  pool: 'max' | 'mean';
  /** which weights the colours span: 0 to 1, or 0 to the map's largest */
  range?: 'unit' | 'map';
}

export type Shown =
  | { kind: 'none' }
  | { kind: 'text'; text: string }
  | { kind: 'table'; columns: string[]; rows: string[][]; total: number }
  | {
      kind: 'map';
      text: string;
      rgba: Uint8Array<ArrayBuffer>;
      width: number;
      height: number;
      low: number;
      high: number;
    };

export interface SyntheticShape {
  length: number;
  heads: number;
  kv_heads: number;
  head_dim: number;
  mask: string;
  window: number | null;
  softcap: number | null;
  seed: number;
}

export interface Spread {
  median: number;
  low: number;
  high: number;
}

export type Part = 'upload' | 'compile' | 'dispatch' | 'readback';

export interface Measurement {
  variant: string;
  kernel: string;
  repeats: number;
  clock: 'gpu' | 'wall';
  parts: Partial<Record<Part, Spread>>;
  workgroups: number[];
  wgsl: string;
  constants: Record<string, string>;
  error: number;
  plain: number;
  ok: boolean;
  rows: number;
  allRows: number;
  /** of a kernel of the visitor's own: what of the plan stays although a constant was changed */
  fixed?: string;
}

/** What the WGSL compiler says; line and column from 1 on, 0 for none. */
export interface WgslMessage {
  kind: 'error' | 'warning' | 'info';
  message: string;
  line: number;
  column: number;
}

export interface DecodeStep {
  position: number;
  first: number;
  length: number;
  capacity: number;
  nbytes: number;
  weights: Float32Array;
  lse: number;
  splits: { start: number; stop: number; lse: number; factor: number }[];
  combined: number;
  error: number;
}

/** One decoding step over a cache of some dtype. */
export interface CacheStep {
  dtype: string;
  position: number;
  first: number;
  length: number;
  nbytes: number;
  error: number;
  relative: number;
  weights: Float32Array;
  change: number;
  time?: number | null; // none without a GPU
  clock: 'gpu' | 'wall' | 'none';
}

/** The steps from a query and a key to their weight; null for one that does not apply. */
export interface Explanation {
  query: Float32Array;
  key: Float32Array;
  products: Float32Array;
  kvHead?: number | null;
  dot: number;
  scale: number;
  scaled: number;
  softcap?: number | null;
  capped?: number | null;
  modded?: number | null;
  bias?: number | null;
  hiddenBy: string[];
  score: number;
  rowMax: number;
  exp: number;
  rowSum: number;
  visible: number;
  weight: number;
  computed: number;
}

/** What became of the text of a score_mod. */
export interface EditError {
  message: string;
  line: number | null;
  /** false where the text ran until something ended it */
  finished: boolean;
}

export interface Edited {
  error?: EditError | null;
  edited: string[];
  wgsl: string;
  kernel: string;
}

/** Whose map is shown: one head's, a mean over heads, or the attention rollout up to a layer. */
export type Over = 'head' | 'layer' | 'all' | 'rollout';

export interface WrittenToken {
  id: number;
  text: string;
  /** none where it was given */
  logProbability?: number | null;
}

/** How the language model keeps what it has read. */
export interface CacheChoice {
  cache: string;
  /** tokens that a cache, or a ring, has room for */
  context: number;
  ring: boolean;
  /** first tokens that a ring never drops */
  sink_tokens: number;
}

export interface CacheState {
  cache: string;
  ring: boolean;
  capacity: number;
  sinkTokens: number;
  /** how many tokens more it has room for */
  room: number;
  bytes: number;
}

/** The text of the language model from some token on. */
export interface Written extends CacheState {
  from: number;
  tokens: WrittenToken[];
  length: number;
  prompt: number;
  finished: '' | 'end' | 'context';
  timing: WriteTiming;
}

export interface WriteTiming {
  /** seconds */
  firstToken?: number | null;
  /** tokens a second */
  rate?: number | null;
}

/** What a cache does to a text. */
export interface WriteComparison {
  perplexity: number;
  equal: number;
  kl: Float32Array;
  bytes: number;
}

export interface Sampling {
  temperature: number;
  top_k: number | null;
  top_p: number | null;
  seed: number;
}
