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
}

export interface Overview {
  layer: number;
  heads: number;
  size: number;
  step: number;
  rgba: Uint8Array<ArrayBuffer>;
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

/** Whose weights a row shows: one head's, or a mean over heads. */
export type Over = 'head' | 'layer' | 'all';

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
