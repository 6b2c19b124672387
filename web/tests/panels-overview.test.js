import { describe, expect, it } from "vitest";
import { arrange, closest, describeHead, linesOf, moveTo, search } from "../src/panels/overview-heads.js";

const LABELS = [
  { name: "previous", title: "previous token", description: "Attends to the token before the query.", synonyms: "prev preceding last" },
  { name: "next", title: "next token", description: "Attends to the token after the query.", synonyms: "following succeeding" },
  { name: "first", title: "first token", description: "Attends to the first token of the text ([CLS] in BERT’s family).", synonyms: "cls bos sink" },
  { name: "punctuation", title: "punctuation", description: "Attends to punctuation marks.", synonyms: "comma period full stop" },
  { name: "broad", title: "broad", description: "Spreads its weight evenly over the keys that it may see.", synonyms: "uniform even" },
];
/** Two layers of three heads. @type {any} */
const FINDINGS = {
  shown: [
    [{ name: "first", score: 0.4 }],
    [{ name: "previous", score: 0.9 }, { name: "first", score: 0.31 }],
    [],
    [{ name: "previous", score: 0.95 }],
    [{ name: "broad", score: 0.9 }],
    [{ name: "first", score: 0.8 }],
  ],
  scores: Float32Array.from({ length: 30 }, (_, i) => (i === 2 * 5 + 3 ? 0.2 : 0)),
  entropy: Float32Array.of(3, 1, 2, 0, 4, Number.NaN),
  sparsity: Float32Array.of(0.2, 0.8, 0.5, 1, 0, 0.1),
  groups: Int32Array.of(1, 0, 2, 0, 3, 1),
  order: Int32Array.of(3, 1, 2, 0, 5, 4),
  rows: {},
  step: 1,
};
const SHAPE = { layers: 2, heads: 3 };

/** @param {string} text */
const heads = (text) => search(text, FINDINGS, LABELS, SHAPE)?.heads;
/** @param {string} text */
const names = (text) => search(text, FINDINGS, LABELS, SHAPE)?.labels.map(({ name }) => name);

describe("a search", () => {
  it.each([
    "previous token", "prev", "attends to previous token", "Heads that attend to the previous token", "PREVIUOS", "previos", "preceding",
  ])("finds what %s means, the best first", (text) => {
    expect(heads(text)).toEqual([3, 1]);
    expect(names(text)).toEqual(["previous"]);
  });

  it.each([["[CLS]", "first"], ["comma", "punctuation"], ["punct", "punctuation"], ["even", "broad"], ["uniform", "broad"]])(
    "knows %s for %s", (text, name) => expect(names(text)).toEqual([name]),
  );

  it.each([
    ["L1 H2", [5]], ["l1h2", [5]], ["layer 1 head 2", [5]], ["Layer 1, head 2", [5]], ["layer 0", [0, 1, 2]], ["h2", [2, 5]], ["L7", []],
  ])("finds the place %s", (text, wanted) => expect(heads(text)).toEqual(wanted));

  it("takes place and label together", () => {
    expect(heads("previous in layer 0")).toEqual([1]);
    expect(heads("L1 first")).toEqual([5]);
  });

  it("finds nothing for what no head does, and nothing at all for nothing", () => {
    expect(search("punctuation", FINDINGS, LABELS, SHAPE)).toMatchObject({ labels: [LABELS[3]], heads: [] });
    expect(closest(LABELS[3], FINDINGS, LABELS)).toEqual({ head: 2, score: expect.closeTo(0.2) });
    expect(closest(LABELS[0], FINDINGS, LABELS)).toBe(null);
    expect(names("zebra")).toEqual([]);
    expect(search("  ", FINDINGS, LABELS, SHAPE)).toBe(null);
    expect(search("heads", FINDINGS, LABELS, SHAPE)).toBe(null);
  });

  it("finds places before the labels are known", () => {
    expect(search("L1", null, [], SHAPE)?.heads).toEqual([3, 4, 5]);
    expect(search("prev", null, [], SHAPE)?.heads).toEqual([]);
  });

  it("means every label of tokens by token", () => expect(names("token")).toEqual(["previous", "next", "first"]));
});

describe("sorting", () => {
  it("by label puts each head under its best one", () => {
    expect(arrange("label", FINDINGS, LABELS)).toEqual([
      { title: "previous token", heads: [3, 1] },
      { title: "first token", heads: [5, 0] },
      { title: "broad", heads: [4] },
      { title: "no label", heads: [2] },
    ]);
  });

  it("by entropy begins with the narrowest, by sparsity with the sparsest, and ends with what has no figure", () => {
    expect(arrange("entropy", FINDINGS, LABELS)).toEqual([{ title: "", heads: [3, 1, 2, 0, 4, 5] }]);
    expect(arrange("sparsity", FINDINGS, LABELS)).toEqual([{ title: "", heads: [3, 1, 2, 0, 5, 4] }]);
  });

  it("by similarity keeps groups and their order", () => {
    expect(arrange("similarity", FINDINGS, LABELS)).toEqual([
      { title: "alike, mostly previous token", heads: [3, 1] },
      { title: "alike, mostly first token", heads: [0, 5] },
      { title: "unlike the others", heads: [2, 4] },
    ]);
  });

  it.each(/** @type {const} */ (["label", "entropy", "sparsity", "similarity"]))("by %s shows every head once", (sort) => {
    const all = arrange(sort, FINDINGS, LABELS).flatMap((group) => group.heads);
    expect(all.sort()).toEqual([0, 1, 2, 3, 4, 5]);
  });
});

describe("the keyboard", () => {
  const lines = linesOf([{ title: "a", heads: [4, 5, 6, 7, 8] }, { title: "b", heads: [1] }, { title: "c", heads: [0, 2, 3] }], 3).flatMap((group) => group.lines);

  it("moves along lines as they stand", () => {
    expect(lines).toEqual([[4, 5, 6], [7, 8], [1], [0, 2, 3]]);
    expect(moveTo("ArrowRight", 4, lines)).toBe(5);
    expect(moveTo("ArrowRight", 6, lines)).toBe(undefined);
    expect(moveTo("ArrowLeft", 4, lines)).toBe(undefined);
    expect(moveTo("Home", 3, lines)).toBe(0);
    expect(moveTo("End", 7, lines)).toBe(8);
    expect(moveTo("Enter", 7, lines)).toBe(undefined);
  });

  it("goes to the end of a shorter line", () => {
    expect(moveTo("ArrowDown", 6, lines)).toBe(8);
    expect(moveTo("ArrowDown", 8, lines)).toBe(1);
    expect(moveTo("ArrowUp", 3, lines)).toBe(1);
    expect(moveTo("ArrowUp", 4, lines)).toBe(undefined);
  });
});

it("tells screen readers what a head does", () => {
  expect(describeHead("Layer 0, head 1", FINDINGS.shown[1], LABELS)).toBe("Layer 0, head 1: previous token 0.90, first token 0.31");
  expect(describeHead("Layer 0, head 2", [], LABELS)).toBe("Layer 0, head 2");
});
