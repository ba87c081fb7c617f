// The weights on the page: see analysis/report/weights.py. They are unpacked
// when they are looked at, and kept.
'use strict';

/** The weights of a layer and an example: see analysis/report/weights.py. */
class Block {
  constructor(bytes, heads, queries, memory, signed) {
    this.heads = heads;
    this.queries = queries;
    this.memory = memory;
    this.scales = new Float32Array(bytes, 0, heads * queries);
    const Codes = signed ? Int8Array : Uint8Array;
    this.codes = new Codes(bytes, 4 * heads * queries);
  }

  weight(head, query, memory) {
    const row = head * this.queries + query;
    return this.scales[row] * this.codes[row * this.memory + memory];
  }

  /** The largest weight of a head, and whether there are negative ones. */
  range(head, queries, memory) {
    let most = 0;
    let least = 0;
    for (let i = 0; i < queries; i++) {
      for (let j = 0; j < memory; j++) {
        const weight = this.weight(head, i, j);
        most = Math.max(most, weight);
        least = Math.min(least, weight);
      }
    }
    return { most: Math.max(most, -least), signed: least < 0 };
  }
}

const unpacked = new Map();

function unpack(name, heads, signed) {
  if (!unpacked.has(name)) unpacked.set(name, read(name, heads, signed));
  return unpacked.get(name);
}

async function read(name, heads, signed) {
  const element = document.getElementById(`weights-${name}`);
  const packed = Uint8Array.from(atob(element.textContent), (c) =>
    c.charCodeAt(0),
  );
  const stream = new Blob([packed])
    .stream()
    .pipeThrough(new DecompressionStream('deflate'));
  const { queries, memory } = element.dataset;
  return new Block(
    await new Response(stream).arrayBuffer(),
    heads,
    Number(queries),
    Number(memory),
    signed,
  );
}
