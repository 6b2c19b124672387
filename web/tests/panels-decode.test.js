import { describe, expect, it } from "vitest";
import { colorOffset, comparisonPixels, rowPixels, signedColorOffset } from "../src/panels/palette.js";
import { capacityChoices, isCrowded, positionIn, slotsOf } from "../src/panels/slots.js";

const GREYS = Uint8Array.from({ length: 1024 }, (_, i) => (i % 4 === 3 ? 255 : i >> 2));

/** A step over a ring, with the position as its weight. @param {number} position @param {number} capacity @returns {any} */
function step(position, capacity) {
  const first = Math.max(0, position + 1 - capacity);
  const length = position + 1 - first;
  const weights = Float32Array.from({ length }, (_, i) => first + i);
  const half = first + Math.ceil(length / 2);
  const splits = [{ start: first, stop: half }, { start: half, stop: first + length }];
  return { position, capacity, first, length, weights, splits };
}

describe("capacities", () => {
  it("are the whole source, half of it and eight, without repeats", () => {
    expect(capacityChoices(20)).toEqual([["20", "20 (all)"], ["10", "10 (ring)"], ["8", "8 (ring)"]]);
    expect(capacityChoices(1)).toEqual([["1", "1 (all)"]]);
    expect(capacityChoices(8)).toEqual([["8", "8 (all)"], ["4", "4 (ring)"]]);
  });
});

describe("slots of a cache", () => {
  it("are filled one by one", () => {
    const slots = slotsOf(step(2, 5));
    expect(slots.map((slot) => slot?.position ?? null)).toEqual([0, 1, 2, null, null]);
    expect(slots.map((slot) => slot?.split ?? null)).toEqual([0, 0, 1, null, null]);
  });
  it("of a ring hold the newest position where the oldest was", () => {
    expect(slotsOf(step(10, 4)).map((slot) => slot?.position)).toEqual([8, 9, 10, 7]);
    expect(slotsOf(step(10, 4)).map((slot) => slot?.weight)).toEqual([8, 9, 10, 7]);
    expect(positionIn(3, { position: 10, capacity: 4, first: 7 })).toBe(7);
    expect(positionIn(3, { position: 2, capacity: 4, first: 0 })).toBeNull();
  });
  it("of a large cache are the newest positions in their order", () => {
    const positions = slotsOf(step(999, 1000)).map((slot) => slot?.position);
    expect(positions.length).toBe(256);
    expect([positions[0], positions.at(-1)]).toEqual([744, 999]);
    expect(slotsOf(step(9, 1000)).filter(Boolean).length).toBe(10);
  });
  it("are small from 65 on", () => expect([64, 65].map((capacity) => isCrowded({ capacity }))).toEqual([false, true]));
});

describe("colours of weights", () => {
  it("follow the square root, within the colour map", () => {
    expect([0, 0.25, 1, 2, -1].map(colorOffset)).toEqual([0, 4 * 128, 1020, 1020, 0]);
    expect([-1, 0, 1, 9].map(signedColorOffset)).toEqual([0, 4 * 128, 1020, 1020]);
  });
  it("put differences below the weights", () => {
    const pixels = comparisonPixels(new Float32Array([1, 0]), new Float32Array([0, 0]), GREYS, GREYS);
    expect([...pixels].filter((_, i) => i % 4 === 0)).toEqual([255, 0, 255, 128]);
  });
  it("leave unknown rows transparent", () => {
    const pixels = rowPixels(2, [{ position: 1, first: 0, weights: new Float32Array([1, 0.25]) }], GREYS);
    expect([...pixels]).toEqual([0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 128, 128, 128, 255]);
  });
});
