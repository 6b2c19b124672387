/** The examples of the console. @type {{ name: string, source: string }[]} */
export const EXAMPLES = [
  {
    name: 'Attention, checked',
    source: `# Our kernel against the float64 reference, on grouped heads with a causal mask.
rng = np.random.default_rng(0)
q = rng.standard_normal((1, 8, 200, 64), dtype=np.float32)
k, v = rng.standard_normal((2, 1, 2, 200, 64), dtype=np.float32)

out = pa.attention(q, k, v, causal=True)
exact = pa.reference.attention(q, k, v, causal=True)
got = await out.numpy()

{"shape": list(out.shape), "largest error": float(abs(got - exact).max())}
`,
  },
  {
    name: 'A map of weights',
    source: `# The weights are never stored: a window of them is recomputed from Q, K and the row's LSE.
n = 96
turn = 2 * np.pi * np.arange(n)[:, None] / [8, 24, 96]
x = np.concatenate([np.cos(turn), np.sin(turn)], -1)[None, None].astype(np.float32)

masking = dict(causal=True, window=64, scale=1.2)
out, lse = pa.attention(x, x, x, **masking, return_lse=True)
pa.attention_weights(x, x, lse, **masking)
`,
  },
  {
    name: 'Time the variants',
    source: `rng = np.random.default_rng(1)
q, k, v = (device.tensor(rng.standard_normal((1, 4, 256, 64), dtype=np.float32)) for _ in range(3))

rows = []
for variant in ("naive", "tiled", "subgroup"):
    pa.attention(q, k, v, variant=variant)  # compiles
    with device.timer() as timer:
        for _ in range(5):
            pa.attention(q, k, v, variant=variant)
    times = [t.gpu_us or t.wall_us for t in await timer.results()]
    rows.append({"variant": variant, "median µs": float(np.median(times)), "best µs": min(times)})
    print(variant, "done")
rows
`,
  },
];
