// The attention viewer: two panels, each with a model, stack, layer, head and
// example, and a cursor that follows the pointer or the arrow keys.
'use strict';

// Maps each stack to the sides that provide its queries and its memory.
const SIDES = {
  encoder: ['encoder', 'encoder'],
  decoder: ['decoder', 'decoder'],
  cross: ['decoder', 'encoder'],
};
const LARGEST_OF_ROW = 5;

const models = JSON.parse(document.getElementById('models').textContent);
const together = document.querySelector('[name=together]');

/** Unpacks a block of weights; the inverse of report/weights.py. */
async function unpack({ data, queries, memory }, heads, signed) {
  const packed = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const stream = new Blob([packed])
    .stream()
    .pipeThrough(new DecompressionStream('deflate'));
  const bytes = await new Response(stream).arrayBuffer();
  const rows = heads * queries;
  const scales = new Float32Array(bytes, 0, rows);
  const codes = new (signed ? Int8Array : Uint8Array)(bytes, 4 * rows);
  return (head, query, key) => {
    const row = head * queries + query;
    return scales[row] * codes[row * memory + key];
  };
}

/** Returns a colour of the page, which may be light or dark. */
function colour(name) {
  return getComputedStyle(document.body).getPropertyValue(name);
}

function make(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

/** Fills a select with texts by value; selects the wanted value if present. */
function fill(select, texts, wanted) {
  const options = Object.entries(texts).map(
    ([value, text]) => new Option(text, value, false, value === wanted),
  );
  select.replaceChildren(...options);
}

/** Formats a weight with three decimals, or two significant digits if small. */
function format(weight) {
  if (weight === 0) return '0';
  return Math.abs(weight) < 0.1 ? weight.toPrecision(2) : weight.toFixed(3);
}

class Panel {
  constructor(element) {
    this.id = element.id;
    for (const part of element.querySelectorAll('[class], [name]')) {
      this[part.name || part.className] = part;
    }
    this.query = this.key = 0;
    element.addEventListener('change', () => {
      this.show();
      if (together.checked) this.other.show(this.place);
    });
    for (const kind of ['pointermove', 'pointerdown']) {
      this.cells.addEventListener(kind, (event) => this.point(event));
    }
    this.cells.addEventListener('keydown', (event) => this.type(event));
  }

  get other() {
    return panels.find((panel) => panel !== this);
  }

  /** The choices that the other panel follows if the panels are linked. */
  get place() {
    const names = ['stack', 'layer', 'head', 'example'];
    return Object.fromEntries(names.map((name) => [name, this[name].value]));
  }

  /** Shows a place, with defaults for the choices that the model lacks. */
  async show(place = this.place) {
    const { stacks, examples } = models[this.model.value];
    const names = Object.keys(SIDES).filter((name) => name in stacks);
    const titles = names.map((name) => [name, SIDES[name].join(' to ')]);
    fill(this.stack, Object.fromEntries(titles), place.stack);
    const [from, to] = SIDES[this.stack.value];
    const { blocks, heads, signed } = stacks[this.stack.value];
    const layers = blocks.map((_, i) => `${i + 1} of ${blocks.length}`);
    fill(this.layer, layers, place.layer);
    // SentencePiece starts a word with U+2581.
    const texts = examples.map((tokens, i) => {
      const text = tokens[from].join('').replaceAll('\u2581', ' ').trim();
      return `${i + 1}: ${text.slice(0, 60)}`;
    });
    fill(this.example, texts, place.example);
    const numbers = Array.from({ length: heads }, (_, i) => `${i + 1} of ${heads}`);
    fill(this.head, numbers, place.head);
    const block = blocks[this.layer.value][this.example.value];
    this.block = block;
    block.weight ||= unpack(block, heads, signed);
    const weight = await block.weight;
    if (this.block !== block) return; // the selection has changed
    this.weight = weight;
    const tokens = examples[this.example.value];
    [this.queries, this.memory] = [tokens[from], tokens[to]];
    this.draw();
  }

  point(event) {
    if (!this.weight) return;
    const { clientWidth, clientHeight } = this.cells;
    this.moveBoth(
      Math.floor((event.offsetY / clientHeight) * this.queries.length),
      Math.floor((event.offsetX / clientWidth) * this.memory.length),
    );
  }

  type(event) {
    if (!this.weight || event.altKey || event.metaKey) return;
    const { query, key } = this;
    const target = {
      ArrowUp: [query - 1, key],
      ArrowDown: [query + 1, key],
      ArrowLeft: [query, key - 1],
      ArrowRight: [query, key + 1],
      Home: [event.ctrlKey ? 0 : query, 0],
      End: [event.ctrlKey ? Infinity : query, Infinity],
    }[event.key];
    if (!target) return;
    event.preventDefault();
    this.moveBoth(...target);
    this.cursor.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }

  moveBoth(query, key) {
    this.move(query, key);
    if (together.checked && this.other.weight) this.other.move(query, key);
  }

  /** Moves the cursor to the nearest valid cell, and describes it. */
  move(query, key) {
    this.query = Math.max(0, Math.min(query, this.queries.length - 1));
    this.key = Math.max(0, Math.min(key, this.memory.length - 1));
    this.map.style.setProperty('--query', this.query);
    this.map.style.setProperty('--key', this.key);
    for (const chosen of this.map.querySelectorAll('.chosen')) {
      chosen.classList.remove('chosen');
    }
    this.rows.children[this.query].classList.add('chosen');
    this.columns.children[this.key].classList.add('chosen');
    this.describe();
  }

  /** Paints the head, one pixel per weight, with its tokens and its scale. */
  draw() {
    const { signed } = models[this.model.value].stacks[this.stack.value];
    const label = (token) => make('span', { textContent: token });
    this.rows.replaceChildren(...this.queries.map(label));
    this.columns.replaceChildren(...this.memory.map(label));
    this.map.style.setProperty('--rows', this.queries.length);
    this.map.style.setProperty('--columns', this.memory.length);
    this.cells.width = this.memory.length;
    this.cells.height = this.queries.length;
    const context = this.cells.getContext('2d');
    const rows = this.queries.map((_, i) =>
      this.memory.map((_, j) => this.weight(this.head.value, i, j)),
    );
    const most = rows.flat().reduce((m, w) => Math.max(m, Math.abs(w)), 0);
    const [positive, negative] = [colour('--positive'), colour('--negative')];
    rows.forEach((row, i) => row.forEach((weight, j) => {
      context.fillStyle = weight < 0 ? negative : positive;
      context.globalAlpha = Math.abs(weight) / (most || 1);
      context.fillRect(j, i, 1, 1);
    }));
    this.ramp.classList.toggle('signed', signed);
    this.least.textContent = signed ? format(-most) : '0';
    this.most.textContent = format(most);
    this.move(this.query, this.key);
  }

  /** Describes the current cell, row and head in words. */
  describe() {
    const { queries, memory, query, key } = this;
    const { stack, layer, head } = this.place;
    const model = models[this.model.value];
    const [from, to] = SIDES[stack];
    const quoted = (token) => `\u201c${token}\u201d`;
    const weights = memory.map((_, at) => this.weight(head, query, at));
    this.reading.replaceChildren(
      `${from} ${query + 1} ${quoted(queries[query])} \u2192 ` +
        `${to} ${key + 1} ${quoted(memory[key])}: `,
      make('strong', { textContent: format(weights[key]) }),
    );
    const largest = [...weights.keys()]
      .sort((a, b) => Math.abs(weights[b]) - Math.abs(weights[a]))
      .slice(0, LARGEST_OF_ROW)
      .map((at) => `${quoted(memory[at])} ${format(weights[at])}`);
    this.largest.textContent =
      `Most of ${quoted(queries[query])}: ${largest.join(', ')}`;
    const { alpha, functions } = model.stacks[stack];
    const shares = functions.map(
      (name, i) => alpha && `${name} ${alpha[layer][head][i].toFixed(3)}`,
    );
    this.alpha.textContent = alpha && `Alpha of this head: ${shares.join(', ')}`;
    this.cells.ariaLabel =
      `Attention weights, ${model.label}, ${stack}, layer ` +
      `${Number(layer) + 1}, head ${Number(head) + 1}: ${queries.length} queries by ` +
      `${memory.length} tokens`;
  }
}

const panels = [...document.querySelectorAll('.panel')].map(
  (element) => new Panel(element),
);
together.addEventListener('change', () => {
  if (together.checked) panels[1].show(panels[0].place);
});
const dark = matchMedia('(prefers-color-scheme: dark)');
dark.addEventListener('change', () => panels.forEach((panel) => panel.show()));
for (const panel of panels) panel.show();
