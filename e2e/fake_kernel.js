/* What anywidget gives a front end, over a kernel that notes what it hears and says what it is told to. */

window.makeModel = (traits) => {
  const listeners = new Map();
  const heard = [];
  const waiting = [];
  const emit = (name, ...news) => { for (const one of [...(listeners.get(name) ?? [])]) one(...news); };
  return {
    heard, emit,
    get: (name) => traits[name],
    set: (name, value) => { traits[name] = value; emit(`change:${name}`); },
    save_changes() {},
    send(content, _, buffers) {
      heard.push({ ...content, buffers });
      for (const one of waiting.splice(0)) one();
    },
    on: (name, one) => listeners.set(name, (listeners.get(name) ?? new Set()).add(one)),
    off: (name, one) => listeners.get(name)?.delete(one),
    get listening() { return [...listeners.values()].reduce((sum, set) => sum + set.size, 0); },
    async next(kind) {
      for (;;) {
        const at = heard.findIndex((one) => one.kind === kind);
        if (at >= 0) return heard.splice(at, 1)[0];
        await new Promise((done) => waiting.push(done));
      }
    },
  };
};
window.traits = () => ({
  layer: 0, head: 0, selection: [0, 0], variant: "auto", coloring: {}, timings: {}, tokens: ["a", "b"],
  title: "Two letters", state: "live", message: "", still: new DataView(new ArrayBuffer(0)), still_text: "",
  source: { kind: "weights", layers: 1, heads: 1, kvHeads: 1, length: 2, headDim: 0, note: "", engine: "given" },
});
window.page = () => globalThis[Symbol.for("py-attn.page")];

/* A cell that is run 50 times; every tenth time its kernel uses the GPU. */
window.fiftyRuns = async () => {
  const said = [];
  for (let run = 0; run < 50; run++) {
    const model = makeModel(traits());
    const one = widget();
    const end = await one.initialize({ model });
    const leave = await one.render({ model, el: document.body });
    const { page: id, webgpu } = await model.next("hello");
    model.emit("msg:custom", { kind: "welcome", page: id, kernel: "k" }, []);
    const { id: call } = await model.next("call");
    model.emit("msg:custom", { kind: "answer", page: id, id: call, error: { type: "E", message: "m" } }, []);
    if (run % 10 === 0) {
      // Handles are the kernel's; the buffer of the message begins at an odd byte.
      const bytes = new DataView(Uint8Array.of(9, 1, 0, 0, 0, 2, 0, 0, 0).buffer, 1);
      const ops = [
        { op: "request_device", args: [], id: 1 },
        { op: "create_buffer", args: [7, 8, "eight"] },
        { op: "write_buffer", args: [7, 0, { $buffer: 0, dtype: "uint8", shape: [8] }] },
        { op: "read_buffer", args: [7, 0, 8], id: 2 },
        { op: "write_buffer", args: [8, 0, { $buffer: 0, dtype: "uint8", shape: [8] }] },
        { op: "synchronize", args: [], id: 3 },
        { op: "guess", args: [], id: 4 },
      ];
      model.emit("msg:custom", { kind: "bridge", page: "another", device: "k:1", ops }, [bytes]);
      model.emit("msg:custom", { kind: "bridge", page: id, device: `k:${run}`, ops }, [bytes]);
      const replies = [];
      for (let i = 0; i < 4; i++) replies.push(await model.next("bridge-answer"));
      replies.sort((a, b) => a.id - b.id);
      said.push({ webgpu, devices: page().devices.size, features: replies[0].result.features.length > 0,
        read: [...replies[1].buffers[replies[1].result.$buffer]], errors: replies[2].result,
        unknown: replies[3].error });
    }
    leave();
    end();
    said.push([model.listening, page().links.size, page().devices.size, document.body.children.length]);
    if (!model.heard.some(({ kind }) => kind === "closed")) said.push("not closed");
  }
  return said;
};
