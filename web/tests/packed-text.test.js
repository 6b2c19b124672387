import { describe, expect, it } from "vitest";
import { MAX_PACKED, MAX_TEXT, packText, unpackText } from "../src/packed-text.js";

describe("packed texts", () => {
  it.each(["", "x", "@compute fn main() {}\n".repeat(400), "Größe ≤ 2 × 🙂\u0000", "\r\n\t"])("come back as they were: %#", async (text) => {
    const packed = await packText(text);
    expect(packed).toMatch(/^[\w-]*$/u);
    expect(await unpackText(packed)).toBe(text);
  });
  it("are short", async () => {
    expect((await packText("let row = workgroup.x * WORKGROUP + thread_index;\n".repeat(200))).length).toBeLessThan(300);
  });
  it("have a limit in both directions", async () => {
    await expect(packText("x".repeat(MAX_TEXT + 1))).rejects.toThrow("200000 are the most");
    await expect(unpackText("A".repeat(MAX_PACKED + 1))).rejects.toThrow("60000 are the most");
  });
  it("are not unpacked beyond the limit", async () => {
    const zeros = new Blob([new Uint8Array(30_000_000)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    const bytes = new Uint8Array(await new Response(zeros).arrayBuffer());
    const packed = btoa(String.fromCharCode(...bytes)).replace(/\+/gu, "-").replace(/\//gu, "_").replace(/=+$/u, "");
    await expect(unpackText(packed)).rejects.toThrow("longer than 200000 characters");
  });
  it.each(["!", "a b", "%41", "AAAA", "_____", "é"])("that are none are refused: %s", async (packed) => {
    await expect(unpackText(packed)).rejects.toThrow("This is no packed text");
  });
  it("that were cut are refused", async () => {
    const packed = await packText("a text of some length, which does not fit into a few characters");
    await expect(unpackText(packed.slice(0, -12))).rejects.toThrow("This is no packed text");
  });
});
