import { describe, expect, it } from "vitest";
import { bars } from "../src/heatmap/margins.js";
import { describeMeaning, describeRows, describeShape, nameMap } from "../src/panels/wording.js";
import { allTokens, byToken, isSame, positionOf, refocus, showOf, tokenAt } from "../src/reading.js";

const TOKENS = ["[CLS]", "un", "##do", "it", "[SEP]"];
/** @type {any} */
const PLAIN = { tokens: TOKENS, length: 5, layers: 6, heads: 12, kvHeads: 12, headDim: 32, engine: "webgpu" };
/** @type {any} */
const WORDS = { ...PLAIN, tokens: ["undo", "it"], length: 2, base: { tokens: TOKENS, starts: [1, 3], stops: [3, 4] } };

describe("positions and tokens", () => {
  it("are the same where nothing is merged or hidden", () => {
    expect(allTokens(PLAIN)).toBe(TOKENS);
    expect([tokenAt(PLAIN, 3), positionOf(PLAIN, 3)]).toEqual([3, 3]);
    expect([...byToken(PLAIN, [1, 2, 3, 4, 5])]).toEqual([1, 2, 3, 4, 5]);
  });
  it("lead from words to tokens and back", () => {
    expect(allTokens(WORDS)).toBe(TOKENS);
    expect([tokenAt(WORDS, 0), tokenAt(WORDS, 1)]).toEqual([2, 3]);
    expect(TOKENS.map((_, token) => positionOf(WORDS, token))).toEqual([0, 0, 0, 1, 1]);
    expect([...byToken(WORDS, [0.5, 0.25])]).toEqual([0, 0.5, 0.5, 0.25, 0]);
  });
  it("keep the focus, and the pins that are shown", () => {
    const at = (/** @type {number} */ query, /** @type {number} */ key) => ({ query, key });
    const focus = { layer: 1, head: 2, heads: [], query: 3, key: 2, pins: [at(1, 3), at(2, 3), at(0, 3), at(3, 4)], view: { x: 0, y: 0, span: 2 } };
    const merged = refocus(PLAIN, WORDS, focus);
    expect(merged).toEqual({ layer: 1, head: 2, heads: [], query: 1, key: 0, pins: [at(0, 1)], view: null });
    expect(refocus(WORDS, PLAIN, merged)).toMatchObject({ query: 3, key: 1, pins: [at(1, 3)] });
  });
  it("compares readings", () => {
    expect(isSame({ words: true, special: "hide" }, { words: true, special: "hide" })).toBe(true);
    expect(isSame({ words: true, special: "hide" }, { words: true, special: "show" })).toBe(false);
  });
});

describe("maps of several heads", () => {
  it("are named", () => {
    expect(nameMap("head", 5, 11)).toBe("Layer 5, head 11");
    expect(nameMap("layer", 5, 11)).toBe("Layer 5, mean of its heads");
    expect(nameMap("rollout", 5, 11)).toBe("Rollout up to layer 5");
  });
  it("are explained", () => {
    expect(describeMeaning(PLAIN, "weights", "all", 0)).toBe("The mean weight over all 72 heads of 6 layers.");
    expect(describeMeaning(PLAIN, "gradient", "layer", 3)).toBe("The mean share of the output over the 12 heads of layer 3.");
    expect(describeMeaning(PLAIN, "weights", "rollout", 3)).toContain("after layer 3");
    expect(describeRows(PLAIN, "weights", "layer")).toBe("Every row is the mean of 12 heads’ rows over 5 keys.");
    expect(describeRows(WORDS, "weights")).toBe("Every row is one query’s attention to 2 keys, read from 5 tokens.");
  });
  it("have no gradients where they are multiplied", () => {
    /** @type {any} */
    const style = { show: "gradient" };
    expect([showOf({ over: "all", style }), showOf({ over: "rollout", style })]).toEqual(["gradient", "weights"]);
  });
  it("leave the kernel its tokens", () => expect(describeShape(WORDS)).toContain("12 heads, 5 × 5"));
});

describe("the bars beside a map", () => {
  it("are one for each cell in view", () => {
    expect(bars([1, 2, 4], 4, 1, 2, 100, 2)).toEqual([
      { at: 0, size: 49, value: 0.5, chosen: false },
      { at: 50, size: 49, value: 1, chosen: true },
    ]);
  });
  it("are cut where a cell is partly in view", () => {
    expect(bars([1, 1, 1], 1, 0.5, 2, 100, 0).map(({ at, size }) => [at, size])).toEqual([[0, 24], [25, 49], [75, 25]]);
  });
  it("are one for each pixel where cells are smaller, with the largest value", () => {
    const values = Array.from({ length: 1000 }, (_, i) => (i === 500 ? 1 : 0.25));
    const found = bars(values, 1, 0, 1000, 100, 999);
    expect(found.length).toBe(100);
    expect(found.map(({ value }) => value).filter((value) => value === 1).length).toBe(1);
    expect(found.at(-1)?.chosen).toBe(true);
    expect(found.reduce((end, { size }) => end + size, 0)).toBeCloseTo(100);
  });
  it("are flat where nothing is known", () => expect(bars([0, 0], 0, 0, 2, 10, 0).map(({ value }) => value)).toEqual([0, 0]));
});
