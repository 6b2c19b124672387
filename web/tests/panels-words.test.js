import { describe, expect, it } from "vitest";
import { summary } from "../src/panels/console-output.js";
import { describeAdapter, describeMeasurement, namesToRun, partCells, partShares, timeColumns, timesFastest, totalOf, withTiming } from "../src/panels/measured.js";
import { describeChip, describeProgress } from "../src/panels/status.js";
import { describeComparison, describeEngine, describeLinks, describeMaps, describeRest, describeRows, describeShape } from "../src/panels/wording.js";

/** Of a source what the texts need. @type {any} */
const SOURCE = { kind: "text", engine: "webgpu", layers: 6, heads: 12, kvHeads: 12, length: 1200, headDim: 32 };
/** @type {any} */
const MEASURED = {
  variant: "tiled",
  repeats: 5,
  clock: "gpu",
  parts: { upload: { median: 10, low: 9, high: 12 }, dispatch: { median: 30, low: 29, high: 31 } },
  error: 1e-7,
  plain: 2e-7,
  rows: 64,
  allRows: 1200,
};

describe("what is said about a source", () => {
  it("counts layers and heads", () => {
    expect(describeMaps(SOURCE)).toBe("6 layers × 12 heads, each 1,200 × 1,200 weights.");
    expect(describeMaps({ ...SOURCE, layers: 1, heads: 1 })).toContain("1 layer × 1 head,");
  });
  it("names the shape and what is edited", () => {
    expect(describeShape({ ...SOURCE, kvHeads: 3, edited: ["score_mod"] })).toBe(
      "12 heads over 3, 1,200 × 1,200, head dim 32, float32, with your score_mod",
    );
  });
  it("says how the maps were computed", () => {
    expect(describeEngine(SOURCE, { software: true })).toContain("on a software adapter");
    expect(describeEngine(SOURCE, null)).toContain("on the GPU");
    expect(describeEngine({ ...SOURCE, engine: "numpy" }, null)).toContain("by the numpy reference");
    expect(describeEngine({ ...SOURCE, kind: "weights" }, null)).toBe("shown as they were given");
  });
  it("says what a row is", () => {
    expect(describeRows(SOURCE)).toBe("Every row is one query’s softmax over 1,200 keys, recomputed from Q, K and the row’s LSE.");
    expect(describeRows({ ...SOURCE, edited: ["score_mod", "mask_mod"] })).toContain(" Your score_mod and mask_mod are applied.");
    expect(describeRows({ ...SOURCE, edited: ["mask_mod"] }, "gradient")).toMatch(/sum to 1\. Your mask_mod is applied\.$/u);
  });
});

describe("the links of a row", () => {
  const row = { query: 0, weights: new Float32Array([0.5, 0.25, 0.25, 0]), links: [{ key: 0, weight: 0.5 }, { key: 2, weight: 0.25 }] };
  it("are summed up", () => {
    expect(describeRest(row, false)).toBe("Together 75.0 % of the row; the rest is spread over 1 more keys.");
    expect(describeRest({ ...row, weights: new Float32Array([0.5, 0, 0.25]) }, true)).toContain("no other nonzero weights");
    expect(describeRest({ ...row, weights: new Float32Array(4), links: [] }, false)).toContain("Everything in this row is masked");
  });
  it("are spoken", () => {
    expect(describeLinks(row, ["it", "is", "cat"], false)).toBe("it attends to it 0.5000, cat 0.2500");
    expect(describeLinks(row, ["it", "is", "cat"], true)).toContain("it gets its output from it");
  });
});

describe("timings", () => {
  it("run what was chosen", () => {
    expect(namesToRun("all", ["naive", "tiled"], ["sdpa"])).toEqual(["naive", "tiled"]);
    expect(namesToRun("operations", ["naive"], ["sdpa"])).toEqual(["sdpa"]);
    expect(namesToRun("tiled", ["naive", "tiled"], [])).toEqual(["tiled"]);
  });
  it("keep one measurement of each variant, the last", () => {
    const again = { ...MEASURED, repeats: 9 };
    const other = { ...MEASURED, variant: "naive" };
    expect(withTiming([MEASURED, other], again)).toEqual([other, again]);
  });
  it("share the time between the parts", () => {
    expect(partShares(MEASURED)).toEqual([["upload", 0.25], ["compile", 0], ["dispatch", 0.75], ["readback", 0]]);
    expect(partShares({ ...MEASURED, parts: {} }).map(([, share]) => share)).toEqual([0, 0, 0, 0]);
  });
  it("show a figure, or why there is none", () => {
    const columns = timeColumns([MEASURED]);
    expect(partCells(MEASURED, columns)[0]).toEqual({ text: "10 µs", below: "9.0–12 µs" });
    expect(partCells(MEASURED, columns)[1].text).toBe("–");
    expect(partCells(MEASURED, columns)[4].text).toBe("40 µs");
    expect(partCells(null, columns).map(({ text }) => text)).toEqual(["·", "·", "·", "·", "·"]);
  });
  it("are in one unit a column, that of its largest", () => {
    const slow = { ...MEASURED, variant: "naive", parts: { upload: { median: 800, low: 790, high: 1100 }, dispatch: { median: 1_250_000, low: 9e5, high: 2e6 } } };
    const columns = timeColumns([MEASURED, slow]);
    expect(partCells(slow, columns).map(({ text, below }) => `${text} ${below}`)).toEqual([
      "0.80 ms 0.79–1.10 ms", "–  ", "1.25 s 0.90–2.00 s", "–  ", "1.25 s  ",
    ]);
    expect(partCells(MEASURED, columns)[2]).toEqual({ text: "< 0.01 s", below: "< 0.01–< 0.01 s" });
  });
  it("are compared with the fastest dispatch", () => {
    const slow = { ...MEASURED, parts: { dispatch: { median: 96, low: 90, high: 99 } } };
    expect(timesFastest(MEASURED, [MEASURED, slow])).toBe("1.0 ×");
    expect(timesFastest(slow, [MEASURED, slow])).toBe("3.2 ×");
    expect(timesFastest(undefined, [])).toBe("·");
    expect(timesFastest({ ...MEASURED, parts: {} }, [])).toBe("–");
    expect(totalOf(MEASURED)).toBe(40);
  });
  it("are explained", () => {
    expect(describeMeasurement(MEASURED, undefined, SOURCE, 2)).toBe(
      "Layer 2: 12 heads, 1,200 × 1,200, head dim 32, float32. Medians of 5 runs with their quartiles; dispatch by GPU " +
        "timestamps, the rest by wall clock. Error: largest difference to float64 over 64 of 1,200 rows; plain numpy in " +
        "float32 has an error of 2.0e-7.",
    );
    const operation = { call: "pa.attention_backward", about: "gradients", label: "backward" };
    expect(describeMeasurement({ ...MEASURED, clock: "wall" }, operation, SOURCE, 0)).toContain(
      "pa.attention_backward: gradients. Layer 0, the first 64 positions. Medians",
    );
  });
  it("say what a software adapter's times are worth", () => {
    const adapter = { webgpu: true, software: true, adapter: "SwiftShader" };
    expect(describeAdapter(adapter)).toContain("the times say nothing about a GPU");
    expect(describeAdapter({ ...adapter, software: false })).toBe("SwiftShader.");
    expect(describeAdapter({ ...adapter, webgpu: false })).toContain("WebGPU is not available");
  });
});

describe("the comparison of caches", () => {
  /** Of a step what the text needs. @param {number | null} time @param {string} clock @returns {any} */
  const timed = (time, clock) => ({ time, clock });
  it("says which clock was used, and what the sample is", () => {
    expect(describeComparison(timed(5, "gpu"), 0, null)).toContain("weights of head 0");
    expect(describeComparison(timed(5, "wall"), 0, { ...SOURCE, kind: "sample" })).toMatch(/wall clock\. The sample was stored as float16/u);
    expect(describeComparison(timed(null, "none"), 0, null)).toContain("no time worth showing");
  });
});

describe("the state of the page", () => {
  it("counts bytes, else steps", () => {
    expect(describeProgress({ stage: "download", loaded: 7e6, total: 14e6 })).toMatchObject({ detail: "7.0 MB of 14 MB", share: 0.35 });
    expect(describeProgress({ stage: "sample", loaded: 0, total: 0 })).toMatchObject({ number: 4, detail: "step 5 of 5" });
  });
  it("calls the adapter what it is", () => {
    const info = { webgpu: true, software: true, adapter: "google swiftshader with a very long description" };
    expect(describeChip(info)).toEqual({ state: "software", text: "google swiftshader: software adapter" });
    expect(describeChip({ ...info, adapter: "unnamed software adapter" }).text).toBe("unnamed software adapter");
    expect(describeChip({ ...info, software: false, adapter: "nvidia" })).toEqual({ state: "gpu", text: "nvidia" });
    expect(describeChip({ ...info, webgpu: false }).state).toBe("none");
  });
});

describe("texts that are kept", () => {
  it("of the console are echoed by their first line of code", () => {
    expect(summary("# about\n\nx = 1\ny = 2\n")).toBe(">>> x = 1  …");
    expect(summary("1 + 1")).toBe(">>> 1 + 1");
    expect(summary("# only\n# comments")).toBe(">>> # only  …");
  });
});
