import { describe, expect, it } from "vitest";
import { EXAMPLES } from "../src/editor/examples.js";
import { wgslToken } from "../src/editor/wgsl.js";
import { changed, describeFailure, freeName, isSameText, packForks, summarize, unpackForks } from "../src/panels/fork-list.js";
import { packText } from "../src/packed-text.js";
import { problemOf } from "../src/panels/synthetic.js";

/** @param {string} kind @returns {any} */
const message = (kind) => ({ kind, message: "", line: 1, column: 1 });

describe("kernels of one's own", () => {
  it("get a name that no other row has", () => {
    expect(freeName("yours · tiled", ["tiled"])).toBe("yours · tiled");
    expect(freeName(" tiled ", ["tiled", "tiled 2"])).toBe("tiled 3");
    expect(freeName("  ", [])).toBe("yours");
    expect(freeName("x".repeat(99), []).length).toBe(40);
  });
  it("are changed one at a time", () => {
    const forks = [{ name: "a", of: "tiled", text: "1" }, { name: "b", of: "naive", text: "2" }];
    expect(changed(forks, "b", { text: "3" })).toEqual([forks[0], { name: "b", of: "naive", text: "3" }]);
  });
  it("are the same with other ends of lines", () => {
    expect(isSameText("a\r\nb", "a\nb\n")).toBe(true);
    expect(isSameText("a b", "a\nb")).toBe(false);
  });
  it("are summed up", () => {
    expect(summarize([])).toBe("The WGSL compiler has no objections.");
    expect(summarize([message("info")])).toBe("The WGSL compiler has no objections.");
    expect(summarize([message("error"), message("warning"), message("warning")])).toBe("The WGSL compiler reports 1 error and 2 warnings.");
  });
  it("that fail keep their text", () => {
    expect(describeFailure({ name: "DeviceLostError", message: "" }, "")).toContain("kept, and is not run again by itself");
    expect(describeFailure({ name: "ShaderError", message: "" }, "line 3: no")).toBe("It could not be run: line 3: no");
  });
});

describe("kernels in an address", () => {
  const forks = [{ name: "a", of: "tiled", text: "fn main() {}\n// ü" }, { name: "b · c", of: "naive", text: "" }];
  it("come back as they were", async () => {
    expect(await unpackForks(await packForks(forks))).toEqual(forks);
    expect(await packForks([])).toBe("");
    expect(await unpackForks("")).toEqual([]);
  });
  it("have names of their own", async () => {
    const twice = [{ ...forks[0], name: "tiled" }, { ...forks[0], name: "tiled" }];
    const names = (await unpackForks(await packForks(twice))).map(({ name }) => name);
    expect(new Set([...names, "tiled"]).size).toBe(3);
  });
  it.each(["[1]", "{}", "null", "no JSON", '[["a","b"]]', '[["a","b",1]]', JSON.stringify(Array(13).fill(["a", "b", "c"]))])(
    "that are something else are refused: %s",
    async (text) => await expect(unpackForks(await packText(text))).rejects.toThrow("These are no kernels"),
  );
});

describe("WGSL in the editor", () => {
  /** A line as CodeMirror reads it. @param {string} line @param {{ inComment: boolean }} [state] */
  function tokens(line, state = { inComment: false }) {
    let at = 0;
    const stream = {
      /** @param {string | RegExp} pattern */
      match(pattern) {
        const rest = line.slice(at);
        const found = typeof pattern === "string" ? (rest.startsWith(pattern) ? [pattern] : null) : rest.match(pattern);
        if (found) at += found[0].length;
        return found;
      },
      next: () => line[at++],
      skipToEnd: () => (at = line.length),
    };
    const found = [];
    while (at < line.length) {
      const begin = at;
      const style = wgslToken(/** @type {any} */ (stream), state);
      expect(at).toBeGreaterThan(begin);
      if (style) found.push(`${line.slice(begin, at)}:${style}`);
    }
    return found;
  }
  it("is coloured by token", () => {
    expect(tokens("@compute fn main() { let x: u32 = 0x1fu + 2.5e-3f; } // end")).toEqual([
      "@compute:meta", "fn:keyword", "let:keyword", "u32:typeName", "0x1fu:number", "2.5e-3f:number", "// end:comment",
    ]);
  });
  it("has comments over several lines", () => {
    const state = { inComment: false };
    expect(tokens("a /* b", state)).toEqual(["/* b:comment"]);
    expect(tokens("let c", state)).toEqual(["let c:comment"]);
    expect(tokens("d */ let", state)).toEqual(["d */:comment", "let:keyword"]);
  });
});

describe("the form for synthetic input", () => {
  it.each([
    ["kv_heads", "2", "7", "KV heads must divide Heads (7)"],
    ["kv_heads", "7", "7", ""],
    ["length", "", "8", "Length is missing"],
    ["length", "40000", "8", "Length: 1 to 32,768"],
    ["length", "2.5", "8", "Length: a whole number"],
    ["length", "no number", "8", "Length: 1 to 32,768"],
    ["window", "", "8", ""],
    ["softcap", "2.5", "8", ""],
  ])("%s = %s with %s heads: %s", (name, text, heads, problem) => {
    expect(problemOf(name, text, heads)).toBe(problem);
  });
});

describe("the examples of the console", () => {
  it("have names of their own", () => {
    expect(new Set(EXAMPLES.map(({ name }) => name)).size).toBe(EXAMPLES.length);
  });
  it("that use a kernel say that they need a GPU", () => {
    for (const { source, needsGpu } of EXAMPLES) expect(/pa\.attention\w*\(|\bdevice\b/u.test(source)).toBe(needsGpu);
  });
});
