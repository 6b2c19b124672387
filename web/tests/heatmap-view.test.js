import { describe, expect, it } from "vitest";
import { cellAt, centreOf, clamp, drag, fit, pan, pinch, reveal, visible, zoom } from "../src/heatmap/view.js";

const LENGTH = 20;
const whole = fit(LENGTH);

describe("zooming", () => {
  it("keeps the cell under the pointer where it is", () => {
    const at = { x: 0.75, y: 0.25 };
    const near = zoom(whole, 2, at, LENGTH);
    expect(near.span).toBe(10);
    expect(near.x + at.x * near.span).toBe(15);
    expect(near.y + at.y * near.span).toBe(5);
  });
  it("never leaves the map", () => {
    expect(zoom(whole, 1 / 8, { x: 0.5, y: 0.5 }, LENGTH)).toEqual(whole);
    expect(zoom(whole, 1000, { x: 0, y: 0 }, LENGTH).span).toBe(4);
    expect(clamp({ x: -3, y: 99, span: 10 }, LENGTH)).toEqual({ x: 0, y: 10, span: 10 });
  });
  it("shows a map that is smaller than the closest view as a whole", () => {
    expect(zoom(fit(2), 10, { x: 0, y: 0 }, 2)).toEqual(fit(2));
  });
});

describe("moving", () => {
  const near = { x: 5, y: 5, span: 10 };
  it("pans by cells and stops at the border", () => {
    expect(pan(near, 2, -3, LENGTH)).toEqual({ x: 7, y: 2, span: 10 });
    expect(pan(near, 99, -99, LENGTH)).toEqual({ x: 10, y: 0, span: 10 });
  });
  it("drags the cell along with the pointer", () => {
    expect(drag(near, { x: 0.5, y: 0.5 }, { x: 0.3, y: 0.6 }, LENGTH)).toEqual({ x: 7, y: 4, span: 10 });
  });
  it("pinches: twice the distance is half the span", () => {
    const view = pinch(whole, { x: 0.25, y: 0 }, { x: 0.5, y: 0 }, { x: 0, y: 0 }, LENGTH);
    expect(view).toEqual({ x: 2.5, y: 0, span: 10 });
  });
  it("reveals a cell with the least move", () => {
    expect(reveal(near, 7, 7, LENGTH)).toBe(near);
    expect(reveal(near, 17, 2, LENGTH)).toEqual({ x: 2, y: 8, span: 10 });
  });
});

describe("cells", () => {
  const near = { x: 2.5, y: 5, span: 10 };
  it("counts those that are visible in part", () => {
    expect(visible(near, LENGTH)).toEqual({ rows: [5, 15], columns: [2, 13] });
    expect(visible(whole, LENGTH)).toEqual({ rows: [0, 20], columns: [0, 20] });
  });
  it("finds the one at a point", () => {
    expect(cellAt(near, { x: 0.5, y: 0.99 })).toEqual({ row: 14, column: 7 });
    for (const at of [-0.01, 1]) expect(cellAt(near, { x: at, y: 0.5 })).toBeNull();
  });
  it("knows the centre of one in view, else of the plot", () => {
    expect(centreOf(near, 5, 7)).toEqual({ x: 0.5, y: 0.05 });
    expect(centreOf(near, 0, 7)).toEqual({ x: 0.5, y: 0.5 });
  });
});
