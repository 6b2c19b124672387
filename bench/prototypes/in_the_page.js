// What the pages here share that measure kernels in Python: they run it in the page itself, which lies beside them in
// dist/, and POST what it says to ?report=URL, line by line; DONE is the last.

const query = new URLSearchParams(location.search);

/** Inputs of random numbers, by turns so that no cache holds them, and the time of recorded programs. */
export const MEASURING = `
import itertools, json, time
import numpy as np
import py_attn as pa

device = pa.default_device()
device.autotune = False
COLD = 120 << 20

def pool_of(size):
    """So many random numbers; a power of two from 1 << 20 on."""
    numbers = np.random.default_rng(3).standard_normal(1 << 20).astype(np.float32)
    return device.tensor(np.tile(numbers, size >> 20))

def inputs_from(pool, shape, operands, most_sets):
    """Sets of so many operands of this shape, as many as make up COLD bytes together."""
    size, numbers = int(np.prod(shape)), pool.shape[0]
    sets = max(1, min(most_sets, numbers // (operands * size), -(-COLD // (4 * operands * size))))
    parts = (pool[n * size : (n + 1) * size].reshape(shape) for n in range(operands * sets))
    return list(itertools.batched(parts, operands))

async def microseconds(programs, calls, *, warm_up, pass_us, lead_us):
    """The time of a call in each program of so many, the least of three passes, each right after others of the kind."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < 0.25:
        for program in programs.values():
            program.submit(warm_up)
            await program.time()
    us = {}
    for name, program in programs.items():
        once = min([(await program.time()).gpu_us for _ in range(2)])
        times, lead = max(1, round(pass_us / once)), max(1, round(lead_us / once))
        passes = []
        for _ in range(3):
            program.submit(lead)
            passes.append((await program.time(times)).gpu_us / (calls * times))
        us[name] = round(min(passes), 2)
        program.destroy()
    return us
`;

/**
 * Run `source` in the page and then its `compare` for each shape, those of ?shapes=[[…],…] where given: lists of
 * Python's arguments.
 */
export async function measure(source, usual) {
  const out = document.getElementById('out');
  out.textContent = '';
  async function say(line) {
    out.textContent += `${line}\n`;
    if (query.has('report')) await fetch(query.get('report'), { method: 'POST', body: line }).catch(() => undefined);
  }
  try {
    const frame = document.createElement('iframe');
    frame.src = 'index.html';
    document.body.append(frame);
    while (!frame.contentWindow.pyAttn) await new Promise((done) => setTimeout(done, 100));
    const { pyAttn } = frame.contentWindow;
    await pyAttn.ready;
    await pyAttn.run(source);
    for (const shape of query.has('shapes') ? JSON.parse(query.get('shapes')) : usual) {
      await say(await pyAttn.run(`await compare(${shape.join(', ')})`));
    }
  } catch (error) {
    await say(String(error.stack ?? error));
  }
  await say('DONE');
}
