import { describe, expect, it } from "vitest";
import { axisLabels, labelRoom, labelSize, MAX_LABEL, roundStep, shorten } from "../src/heatmap/labels.js";

const measure = (text) => 7 * [...text].length;

describe("labels of an axis", () => {
  const whole = { first: 0, span: 20, count: 20, side: 400, chosen: 3 };

  it("writes every token where cells are large, the chosen one last", () => {
    const labels = axisLabels(whole);
    expect(labels.map(({ index }) => index)).toEqual([...Array(20).keys()].filter((i) => i !== 3).concat(3));
    expect(labels[0].at).toBe(10); // the centre of a cell of 20 pixels
    expect(labels.filter(({ chosen }) => chosen)).toEqual([{ index: 3, at: 70, chosen: true }]);
  });

  it("leaves out tokens where cells are small, and those that the chosen label would cover", () => {
    const indices = axisLabels({ first: 0, span: 200, count: 200, side: 400, chosen: 11 }).map(({ index }) => index);
    expect(indices.slice(0, 3)).toEqual([0, 20, 30]); // a step of 10; 10 is 2 pixels from 11
    expect(indices.at(-1)).toBe(11);
  });

  it("writes every token in a smaller font where that is enough", () => {
    expect([30, 14, 12, 10.5, 10, 2].map(labelSize)).toEqual([12, 12, 10, 9, 12, 12]);
    const labels = axisLabels({ ...whole, side: 20 * 11 });
    expect(labels.length).toBe(20); // cells of 11 pixels
    expect(axisLabels({ ...whole, side: 20 * 10 }).length).toBeLessThan(12);
  });

  it("writes nothing outside of the view", () => {
    const labels = axisLabels({ ...whole, first: 5.5, span: 4 });
    expect(labels.map(({ index }) => index)).toEqual([6, 7, 8]); // the centre of 9 lies on the border
    expect(labels.every(({ at }) => at > 0 && at < 400)).toBe(true);
  });

  it("survives a map without tokens", () => {
    expect(axisLabels({ ...whole, count: 0, chosen: 0 })).toEqual([]);
  });
});

describe("the step between labels", () => {
  it.each([[0.1, 1], [1, 1], [1.4, 2], [3, 5], [7, 10], [50, 50], [51, 100]])("of at least %d is %d", (least, step) => {
    expect(roundStep(least)).toBe(step);
  });
});

describe("shortening", () => {
  it("keeps what fits", () => expect(shorten("token", measure)).toBe("token"));
  it("cuts between characters and fits then", () => {
    const short = shorten("🙂".repeat(40), measure);
    expect(short).toBe(`${"🙂".repeat(13)}…`);
    expect(measure(short)).toBeLessThanOrEqual(MAX_LABEL);
  });
  it("leaves at least one character", () => expect(shorten("abc", measure, 1)).toBe("a…"));
});

describe("room for labels", () => {
  it("follows the widest token within bounds", () => {
    expect(labelRoom(["a"], measure)).toBe(34);
    expect(labelRoom(["abcdefghij"], measure)).toBe(80);
    expect(labelRoom(["x".repeat(99)], measure)).toBe(MAX_LABEL + 10);
  });
  it("measures a part of a long text", () => {
    const measured = [];
    labelRoom(Array(20_000).fill("a"), (text) => measured.push(text));
    expect(measured.length).toBe(620);
  });
});
