import { describe, expect, it } from "vitest";
import { draw } from "../src/heatmap/draw.js";
import { toJson } from "../src/heatmap/export.js";
import { SvgPen } from "../src/heatmap/svg.js";

const THEME = { ink: "#111", muted: "#222", line: "#333", accent: "#444", sunken: "#555", surface: "#666" };
const SCENE = {
  width: 300,
  left: 90,
  top: 90,
  side: 200,
  view: { x: 0, y: 0, span: 4 },
  tokens: ["[CLS]", "<b>", "a & b", "\u0001"],
  picture: {
    canvas: { toDataURL: () => "data:image/png;base64,AA==" },
    rows: [0, 4],
    columns: [0, 4],
  },
  row: 1,
  column: 2,
  theme: THEME,
};

function svg(scene, title = "A map") {
  const pen = new SvgPen((text) => 7 * [...text].length);
  draw(pen, scene);
  return pen.finish(scene.width, scene.width, title);
}

describe("the map as SVG", () => {
  const drawing = svg({ ...SCENE, background: THEME.surface });

  it("is one document with balanced groups", () => {
    expect(drawing.startsWith('<svg xmlns="http://www.w3.org/2000/svg" width="300" height="300"')).toBe(true);
    expect(drawing.match(/<g /gu)?.length).toBe(drawing.match(/<\/g>/gu)?.length);
  });
  it("has the picture within its plot", () => {
    expect(drawing).toContain('<image x="90" y="90" width="200" height="200"');
  });
  it("writes every token twice, escaped, also what XML cannot express", () => {
    for (const token of ["[CLS]", "&#60;b&#62;", "a␣&#38;␣b", "\uFFFD"]) expect(drawing.split(`>${token}</text>`).length).toBe(3);
    expect(drawing).not.toContain("<b>");
  });
  it("turns the labels of the columns and marks the cursor's", () => {
    expect(drawing).toContain('transform="translate(115 82)rotate(-90)"');
    expect(drawing.match(/600 12px/gu)?.length).toBe(2);
  });
  it("draws a grid between large cells only", () => {
    expect(drawing).toContain("M89.5 90L89.5 290");
    const tokens = Array(100).fill("t");
    expect(svg({ ...SCENE, tokens, view: { x: 0, y: 0, span: 100 } })).not.toContain("M89.5 90L");
  });
  it("escapes its title", () => expect(svg(SCENE, '<"&>')).toContain("<title>&#60;&#34;&#38;&#62;</title>"));
});

describe("the weights as JSON", () => {
  it("has float32's digits, row by row", async () => {
    const source = { title: "Nine", engine: "webgpu", tokens: ["a", "b", "c"] };
    /** @type {any} */
    const state = { source, layer: 1, head: 2, query: 0, key: 1, show: "weights" };
    /** @type {any} */
    const part = { weights: new Float32Array([0.1, 0.2, 0.3, 1]), rows: [1, 3], columns: [0, 2] };
    const blob = toJson(state, part);
    expect(blob.type).toBe("application/json");
    const content = JSON.parse(await blob.text());
    expect(content).toMatchObject({ format: "py-attn/attention-map", title: "Nine", layer: 1, selection: [0, 1], rows: [1, 3] });
    expect(content.weights).toEqual([[0.100000001, 0.200000003], [0.300000012, 1]]);
  });
});
