import { describe, expect, it } from "vitest";
import {
  comparedCaches,
  describeEnd,
  describeEstimate,
  describeWritten,
  formatPercent,
  formatRate,
  formatSeconds,
  headsAfter,
  klPath,
  klPosition,
  moveInGrid,
  nameCache,
  smooth,
  surprise,
  tokenText,
} from "../src/panels/write-words.js";

const FULL = { cache: "float32", context: 2048, ring: false, sink_tokens: 0 };
const SHAPE = { layers: 3, heads: 2 };
const TIMING = { firstToken: 0.12, rate: 1024.4 };

describe("figures of a written text", () => {
  it("are short and say their unit", () => {
    expect([0.5, 0.0042, 0.00002, 0, 1].map(formatPercent)).toEqual(["50.0 %", "0.42 %", "< 0.01 %", "0.00 %", "100.0 %"]);
    expect([3.14, 1024.4].map(formatRate)).toEqual(["3.1 tokens/s", "1,024 tokens/s"]);
    expect([0.1234, 2.5].map(formatSeconds)).toEqual(["123 ms", "2.5 s"]);
  });
  it("leave out what was not measured", () => {
    const state = { cache: "float16", ring: false, capacity: 2048, sinkTokens: 0, room: 9, bytes: 23_600_000 };
    /** @type {any} */
    const written = { ...state, from: 0, tokens: [], length: 44, prompt: 10, finished: "", timing: TIMING };
    expect(describeWritten(written)).toBe("10 tokens read, 34 written · 1,024 tokens/s · first token after 120 ms · cache 24 MB");
    expect(describeWritten({ ...written, timing: {} })).toBe("10 tokens read, 34 written · cache 24 MB");
  });
  it("name the reason why a text ends", () => {
    const cache = { cache: "float32", ring: false, capacity: 2048, sinkTokens: 0, room: 0, bytes: 1 };
    expect(describeEnd("", cache)).toBe("");
    expect(describeEnd("end", cache)).toContain("ended its text");
    expect(describeEnd("context", cache)).toContain("room for 2,048 tokens");
    expect(describeEnd("context", { ...cache, ring: true })).toContain("up to which its maps are kept");
  });
  it("say what numpy would take, and what works", () => {
    const text = describeEstimate({ seconds: 0.42, bytes: 538_060_032 });
    expect(text).toContain("420 ms for every token");
    expect(text).toContain("538 MB");
    expect(text).toContain("What works without WebGPU");
  });
});

describe("tokens", () => {
  it("show line ends and incomplete characters", () => {
    expect([" sea", "a\nb", ""].map(tokenText)).toEqual([" sea", "a⏎\nb", "◌"]);
  });
  it("are surprising where they were unlikely, and not where they were given", () => {
    expect(surprise({ id: 1, text: "a", logProbability: Math.log(0.25) })).toBeCloseTo(0.75);
    expect(surprise({ id: 1, text: "a" })).toBe(0);
  });
});

describe("caches that are compared", () => {
  it("have names", () => {
    expect(nameCache({ ...FULL, cache: "turboquant4" })).toBe("TurboQuant 4 bits");
    expect(nameCache({ ...FULL, ring: true, context: 256, sink_tokens: 4 })).toBe("float32, ring of 256, first 4 kept");
    expect(nameCache({ ...FULL, ring: true, context: 64 })).toBe("float32, ring of 64, none kept");
  });
  it("include rings that the text goes through at least twice", () => {
    expect(comparedCaches(20, FULL).map(({ ring }) => ring)).toEqual([false, false, false, false, false]);
    const rings = comparedCaches(300, FULL).filter(({ ring }) => ring);
    expect(rings.map(({ context, sink_tokens: kept }) => [context, kept])).toEqual([[128, 0], [128, 4]]);
  });
  it("include the ring that is chosen, and of a text beyond the context only rings", () => {
    const ring = { ...FULL, ring: true, context: 64 };
    expect(comparedCaches(70, ring).filter((each) => each.ring).map(({ context }) => context)).toEqual([64, 64]);
    expect(comparedCaches(60, ring).some((each) => each.ring)).toBe(false);
    expect(comparedCaches(3000, ring).every((each) => each.ring)).toBe(true);
  });
});

describe("the grid of heads", () => {
  it("is walked by keys, layers from left to right", () => {
    expect(moveInGrid("ArrowRight", 1, 0, SHAPE)).toEqual([2, 0]);
    expect(moveInGrid("ArrowDown", 1, 0, SHAPE)).toEqual([1, 1]);
    expect(moveInGrid("End", 0, 1, SHAPE)).toEqual([2, 1]);
    expect(moveInGrid("ArrowUp", 1, 0, SHAPE)).toBeNull();
    expect(moveInGrid("ArrowRight", 2, 0, SHAPE)).toBeNull();
    expect(moveInGrid("Enter", 0, 0, SHAPE)).toBeNull();
  });
  it("switches a head, a layer, all others, or none off", () => {
    const off = new Set(["0/1"]);
    expect([...headsAfter("head", off, 2, 0, SHAPE)]).toEqual(["0/1", "2/0"]);
    expect([...headsAfter("head", off, 0, 1, SHAPE)]).toEqual([]);
    expect([...headsAfter("layer", off, 0, 0, SHAPE)]).toEqual(["0/1", "0/0"]);
    expect([...headsAfter("layer", new Set(["0/0", "0/1"]), 0, 0, SHAPE)]).toEqual([]);
    expect([...headsAfter("others", off, 0, 1, SHAPE)].sort()).toEqual(["0/0", "1/0", "1/1", "2/0", "2/1"]);
    expect(headsAfter("none", off, 0, 0, SHAPE).size).toBe(0);
    expect([...off]).toEqual(["0/1"]);
  });
});

describe("the chart of the KL divergence", () => {
  it("has a logarithmic axis", () => {
    expect([0, 1e-6, 10, 100].map(klPosition)).toEqual([0, 0, 1, 1]);
    expect(klPosition(Math.sqrt(1e-5))).toBeCloseTo(0.5);
  });
  it("draws the mean of neighbours, as wide as the text is long", () => {
    expect(smooth([0, 3, 0, 0], 1)).toEqual([1.5, 1, 1, 0]);
    expect(klPath([10, 0, 10], 100, 50)).toBe("M0.0 0.0L50.0 50.0L100.0 0.0");
    expect(klPath([], 100, 50)).toBe("");
  });
});
