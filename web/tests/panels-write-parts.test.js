import { describe, expect, it } from "vitest";
import { nextPortion } from "../src/panels/write-speech.js";
import { buttonStates, describeError, describeFailure, describeLooking } from "../src/panels/write-words.js";

const STATE = { able: true, loaded: true, busy: "", length: 20, prompt: 8, finished: "" };
const LONG = "word ".repeat(100);

describe("the buttons", () => {
  /** @param {any} change */
  const enabled = (change) => {
    const { generate, goOn, step, back } = buttonStates({ ...STATE, ...change });
    return { generate, goOn, step, back };
  };
  it("say what they do", () => {
    expect(buttonStates({ ...STATE, loaded: false }).label).toBe("Load SmolLM2 (98 MB) and generate");
    expect(buttonStates(STATE).label).toBe("Generate");
    expect(buttonStates({ ...STATE, busy: "writing" })).toMatchObject({ label: "Stop", does: "stop", generate: true });
  });
  it("can be pressed only where they do something", () => {
    expect(enabled({})).toEqual({ generate: true, goOn: true, step: true, back: true });
    expect(enabled({ busy: "writing" })).toEqual({ generate: true, goOn: false, step: false, back: false });
    expect(enabled({ busy: "loading" })).toEqual({ generate: false, goOn: false, step: false, back: false });
    expect(enabled({ able: false })).toEqual({ generate: false, goOn: false, step: false, back: false });
    expect(enabled({ length: 0, prompt: 0 })).toEqual({ generate: true, goOn: false, step: true, back: false });
    expect(enabled({ length: 8 })).toMatchObject({ goOn: true, back: false });
    expect(enabled({ finished: "end" })).toEqual({ generate: true, goOn: false, step: false, back: true });
  });
});

describe("a model that could not be loaded", () => {
  it("has a plain sentence that says what to do", () => {
    const cases = [
      ["smollm2/model.gguf: the server answered 404 Not Found for /x", "does not have the model’s file", "Reload the page"],
      ["smollm2/model.gguf: the server answered 503  for /x", "server answered 503", "Wait a moment"],
      ["smollm2/model.gguf: no connection to 127.0.0.1:1 (Failed to fetch)", "no connection to this site", "Check the connection"],
      ["smollm2/model.gguf: the download broke off after 49000000 of 98362432 bytes (x)", "after 49 MB of 98 MB", "Check the connection"],
      ["smollm2/model.gguf: the download ended after 5 of 98362432 bytes", "after 5 B of 98 MB", "Check the connection"],
      ["smollm2/model.gguf: the file's SHA-256 is ab, expected cd", "not the file that this page expects", "Reload the page"],
      ["smollm2/model.gguf: more than the expected 5 bytes were received", "not the file that this page expects", "Reload the page"],
      ["cache of 1,572,864 bytes: Out of memory (2 more errors)", "the GPU has no room for another 1.6 MB", "Choose a smaller cache below"],
      ["weights: not a GGUF file", "weights: not a GGUF file. Press", "the button to try again."],
    ];
    for (const [error, what, advice] of cases) {
      expect(describeFailure(error)).toContain(what);
      expect(describeFailure(error)).toContain(advice);
      expect(describeFailure(error)).toMatch(/the button to try again\.$/u);
      expect(describeFailure(error)).not.toMatch(/SHA|\.gguf:|bytes/u);
    }
  });
});

describe("a text that could not be written on", () => {
  it("says what there is no room for, and what to do", () => {
    const error = "cache of 1,572,864 bytes: Out of memory";
    expect(describeError(error, true)).toMatch(/^The GPU has no room for another 1\.6 MB\. Choose .* then press “Go on”: the text is kept\.$/u);
    expect(describeError(error, false)).toMatch(/then press “Generate” again\.$/u);
    expect(describeError("top_p: expected at most 1, got 2", true)).toBe("top_p: expected at most 1, got 2");
  });
});

describe("what a screen reader is told", () => {
  it("waits for the end of a sentence, and of the text", () => {
    expect(nextPortion("The old man went down to the sea and", false)).toBe("");
    expect(nextPortion("The old man went down to the sea and saw it. Then he", false)).toBe("The old man went down to the sea and saw it.");
    expect(nextPortion("Then he", true)).toBe("Then he");
  });
  it("does not take a point in a number for the end, nor say single words", () => {
    expect(nextPortion("It costs about three times as much as 3.14", false)).toBe("");
    expect(nextPortion("No. Yes. The", false)).toBe("");
  });
  it("ends at a word where no sentence does", () => {
    for (const ended of [false, true]) {
      const portion = nextPortion(LONG, ended);
      expect(portion.length).toBeLessThanOrEqual(300);
      expect(LONG.startsWith(`${portion} word`)).toBe(true);
    }
    expect(nextPortion("字".repeat(400), false)).toHaveLength(300);
  });
});

describe("what the text is coloured by", () => {
  it("is named", () => {
    expect(describeLooking("head", 3, 5)).toBe("Layer 3, head 5: what the token under the pointer attends to.");
    expect(describeLooking("layer", 3, 5)).toContain("mean of layer 3");
    expect(describeLooking("all", 3, 5)).toContain("mean of all heads");
  });
});
