import type { Profile } from '../runtime/profile.js';

export interface Goal {
  metric: 'rate' | 'time' | 'wall';
  sign: '>=' | '<=';
  value: number;
  of: string;
}

export interface Workload {
  name: string;
  title: string;
  kind: 'attention' | 'decode' | 'varlen' | 'backward';
  batch: number;
  heads: number;
  kv_heads: number;
  queries: number;
  keys: number;
  head_dim: number;
  causal: boolean;
  dtype: string;
  variant: string;
  flops: number;
  /** bytes that a decode must read, else null */
  bytes: number | null;
  goals: Goal[];
}

export interface Wall {
  alone_us: number;
  row_us: number;
  calls: number;
}

export interface Ours {
  name: string;
  gpu_us: number;
  low_us: number;
  high_us: number;
  calls: number;
  passes: number;
  clock: 'gpu' | 'wall';
  rate: number;
  ran: string[];
  tile: string;
  naive_us?: number;
  wall?: Wall;
  replay?: Wall;
  error: number;
  bound: number;
  ok: boolean;
  error_is: 'absolute' | 'relative';
  sets: number;
  tuned: { key: string; choice: string; us: Record<string, number> }[];
  /** every tile of the table against the one that the call takes, with `?tiles=1` */
  tiles?: { chosen: string; best: string; ratio: number; us: Record<string, number> };
  make_s: number;
  check_s: number;
  expected?: number[][];
  rows?: number[][];
}

export interface PeerTask {
  workload: Workload;
  sets: number;
  rows: number[][];
  seconds: number;
  f16: boolean;
}

export interface PeerResult {
  wall: Wall;
  got: Float32Array[];
}

export interface Peer {
  peer: string;
  wall?: Wall;
  rate?: number;
  error?: number;
  ok?: boolean;
  unavailable?: string;
}

export interface Verdict {
  text: string;
  value: number | null;
  met: boolean | null;
}

export interface Row {
  workload: Workload;
  ours?: Ours;
  peers: Peer[];
  failed?: string;
  share?: number | null;
  goals: Verdict[];
}

/** A row of the language model's table, from bench/language.py. */
export interface ModelWork {
  name: string;
  title: string;
  unit: string;
  /** `of` is a peer, or empty */
  goals: { sign: '>=' | '<='; value: number; of: string }[];
}

export interface ModelResult {
  value: number | null;
  /** whether what was computed is right */
  ok: boolean;
  notes: string[];
  table: { columns: string[]; rows: (string | number | null)[][] } | null;
}

export interface ModelPeerTask {
  /** what is written after the prompt, and how many tokens of it */
  checked: { prompt: string; text: string; count: number };
  decode: { prompt: string; count: number };
  prefill: { prompt: string; count: number };
  context: number;
  repeats: number;
}

export interface ModelPeerResult {
  /** the figures by the names of our rows */
  values: Record<string, number>;
  text: string;
  notes: string[];
}

export interface ModelPeer {
  peer: string;
  value?: number;
  ok?: boolean;
  notes?: string[];
  unavailable?: string;
}

export interface ModelRow {
  work: ModelWork;
  result?: ModelResult;
  failed?: string;
  peers: ModelPeer[];
  goals: Verdict[];
}

export interface Ceilings {
  read_gbs: number;
  copy_gbs: number;
  fma_tflops: number;
  /** of float16 subgroup matrices; null without them, undefined in older reports */
  matrix_tflops?: number | null;
  empty_us: number;
  empty_pair_us: number;
  empty_wall_us: number;
  /** The browser's own share of a wait (floor.js). */
  least_wait_us: number;
  clock_ratio: number | null;
  timestamps: boolean;
}

export type Visit = 'first' | 'repeated' | 'profiled';

export interface Start {
  visit: Visit;
  /** milliseconds after navigation at which a stage began */
  marks: Record<string, number>;
  /** what the worker did meanwhile */
  profile: Profile;
}

export interface Report {
  when: string;
  browser: string;
  adapter: string;
  software: boolean;
  features: string[];
  versions: Record<string, string>;
  size: 'small' | 'full';
  options: Record<string, string>;
  ceilings: Ceilings | null;
  processor: { call_us: number; awaited_us: number; read_us: number; submit_300_us: number } | null;
  rows: Row[];
  model: ModelRow[];
  starts: Start[];
  seconds: number;
}
