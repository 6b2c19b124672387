/** The examples of the score editor. @type {{ name: string, source: string }[]} */
export const PRESETS = [
  {
    name: 'None',
    source: `# The score of query q_idx and key kv_idx, before the softmax.
# Change it, and every map of this page follows.
def score_mod(score, b, h, q_idx, kv_idx):
    return score
`,
  },
  {
    name: 'Sliding window',
    source: `# Only what is near may be seen.
def mask_mod(b, h, q_idx, kv_idx):
    return pa.abs(q_idx - kv_idx) <= 3
`,
  },
  {
    name: 'ALiBi',
    source: `# A penalty for distance: steep in the first heads, slight in the last.
slopes = device.tensor(2.0 ** (-8 * np.arange(1, heads + 1) / heads))

def score_mod(score, b, h, q_idx, kv_idx):
    return score - slopes[h] * pa.abs(q_idx - kv_idx)
`,
  },
  {
    name: 'Dilated window',
    source: `# Every other position, four to either side.
def mask_mod(b, h, q_idx, kv_idx):
    distance = pa.abs(q_idx - kv_idx)
    return (distance <= 8) & (distance % 2 == 0)
`,
  },
  {
    name: 'Documents',
    source: `# Three documents in a row; none sees another.
document = device.tensor(np.arange(length) * 3 // length)

def mask_mod(b, h, q_idx, kv_idx):
    return document[q_idx] == document[kv_idx]
`,
  },
  {
    name: 'Prefix-LM',
    source: `# A prefix that all may see; behind it, each sees what came before.
prefix = length // 3

def mask_mod(b, h, q_idx, kv_idx):
    return (kv_idx < prefix) | (kv_idx <= q_idx)
`,
  },
  {
    name: 'Softcap',
    source: `# No score goes beyond the cap, however large it was.
cap = 2.0

def score_mod(score, b, h, q_idx, kv_idx):
    return cap * pa.tanh(score / cap)
`,
  },
  {
    name: 'Distance decay',
    source: `# Every weight falls off as a power of the distance.
def score_mod(score, b, h, q_idx, kv_idx):
    return score - 1.5 * pa.log(1.0 + pa.abs(q_idx - kv_idx))
`,
  },
];
