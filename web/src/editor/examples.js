/** The examples of the console. @type {{ name: string, needsGpu: boolean, source: string }[]} */
export const EXAMPLES = [
  {
    name: 'Attention, checked',
    needsGpu: true,
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
    needsGpu: true,
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
    needsGpu: true,
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
  {
    name: 'The head in focus',
    needsGpu: false,
    source: `# What the page shows, as arrays: which tokens receive the most attention from this head?
received = page.weights.mean(axis=0)
print(page)
[{"token": page.tokens[i], "position": int(i), "mean weight": float(received[i])} for i in np.argsort(-received)[:8]]
`,
  },
  {
    name: 'Show an array',
    needsGpu: false,
    source: `# The same weights computed here; page.show opens any square array as a map in the place of the page's.
scores = page.query @ page.key.T / np.sqrt(page.query.shape[1])
weights = np.exp(scores - scores.max(axis=1, keepdims=True))
weights /= weights.sum(axis=1, keepdims=True)
print("largest difference to the page, which masks or changes scores perhaps:", abs(weights - page.weights).max())

page.show([weights, (weights + weights.T) / 2], page.tokens, title="softmax, and made symmetric")
`,
  },
  {
    name: 'Write a kernel',
    needsGpu: true,
    source: `# A kernel of your own: the sum of each row's softmax weights times the key's position, one row to an invocation.
from py_attn.gpu.params import ParamsLayout
from py_attn.gpu.shader import Binding, from_text

wgsl = """
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.x;
  if (row >= params.rows) { return; }
  var largest = -3.4e38;
  for (var j = 0u; j < params.columns; j++) { largest = max(largest, scores[row * params.columns + j]); }
  var sum = 0.0;
  var place = 0.0;
  for (var j = 0u; j < params.columns; j++) {
    let weight = exp(scores[row * params.columns + j] - largest);
    sum += weight;
    place += weight * f32(j);
  }
  centre[row] = place / sum;
}
"""
params = ParamsLayout(rows="u32", columns="u32")
shader = from_text(
    wgsl, "centre", "naive", params=params, constants={"WORKGROUP": 64},
    bindings=(Binding("scores", "f32"), Binding("centre", "f32", writes=True)),
)

x = np.random.default_rng(0).standard_normal((500, 300), np.float32)
scores, centre = device.tensor(x), device.empty((500,))
buffers = [device.bind(scores, "scores"), device.bind(centre, "centre")]
device.dispatch(shader, params.pack(rows=500, columns=300), buffers, device.grid(-(-500 // 64), "rows"))

weights = np.exp(x.astype(np.float64))
exact = (weights * np.arange(300)).sum(1) / weights.sum(1)
{"largest relative error": float((abs(await centre.numpy() - exact) / exact).max())}
`,
  },
  {
    name: 'Record and replay',
    needsGpu: true,
    source: `# Calls are recorded once, and the program then crosses to the GPU in one message, as often as you like.
import time

rng = np.random.default_rng(2)
q, k, v = (device.tensor(rng.standard_normal((1, 4, 64, 32), dtype=np.float32)) for _ in range(3))
with device.record() as program:
    x = q
    for _ in range(20):
        x = pa.attention(x, k, v)

async def seconds(work):
    await device.synchronize()
    begun = time.perf_counter()
    work()
    await device.synchronize()
    return time.perf_counter() - begun

def call():
    y = q
    for _ in range(20):
        y = pa.attention(y, k, v)

call()  # plans and compiles
[
    {"how": "20 calls", "ms": 1000 * await seconds(call)},
    {"how": f"a program of {len(program)} dispatches", "ms": 1000 * await seconds(program.submit)},
]
`,
  },
  {
    name: 'TurboQuant: error by bits',
    needsGpu: false,
    source: `# Keys of 128 numbers in 1 to 4 bits each: the error that remains, and what a dot product with a query keeps.
from py_attn import turboquant_reference as turboquant

rng = np.random.default_rng(3)
keys, query = rng.standard_normal((2000, 128)), rng.standard_normal(128)
rows = []
for bits in (1, 2, 3, 4):
    rough = turboquant.roundtrip(keys, bits)
    rows.append({
        "bits": bits,
        "relative error": float(np.linalg.norm(rough - keys) / np.linalg.norm(keys)),
        "correlation of the scores": float(np.corrcoef(keys @ query, rough @ query)[0, 1]),
    })
rows
`,
  },
  {
    name: 'A model by hand',
    needsGpu: true,
    source: `# One layer of a transformer's attention: projections with numpy, attention on the GPU, checked against float64.
rng = np.random.default_rng(4)
tokens, width, heads = 24, 64, 4
x = rng.standard_normal((tokens, width)).astype(np.float32)
wq, wk, wv, wo = rng.standard_normal((4, width, width)).astype(np.float32) / np.sqrt(width)

def split(a):  # [tokens, width] to [1, heads, tokens, width / heads]
    return np.ascontiguousarray(a.reshape(tokens, heads, -1).transpose(1, 0, 2))[None]

q, k, v = split(x @ wq), split(x @ wk), split(x @ wv)
mixed = await pa.attention(q, k, v, causal=True, score_mod=lambda s, b, h, i, j: s - 0.1 * pa.abs(i - j)).numpy()
out = x + mixed[0].transpose(1, 0, 2).reshape(tokens, width) @ wo

exact = pa.reference.attention(q, k, v, causal=True, score_mod=lambda s, b, h, i, j: s - 0.1 * abs(i - j))
print("largest error of attention:", float(abs(mixed - exact).max()))
out
`,
  },
];
