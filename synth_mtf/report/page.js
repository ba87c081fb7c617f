// The attention viewer: two panels, each with a model, stack, layer, head and
// example, and a cell that follows the pointer or the arrow keys.
'use strict';

// The sides of a stack's queries and of its memory.
const SIDES = {
  encoder: ['encoder', 'encoder'],
  decoder: ['decoder', 'decoder'],
  cross: ['decoder', 'encoder'],
};
const SMALLEST_CELL = 12; // pixels
const LARGEST_CELL = 34;
const HEAD_SIZE = 44;
const LARGEST_OF_ROW = 5;

const models = JSON.parse(document.getElementById('models').textContent);
const style = getComputedStyle(document.body);

/** Unpacks the weights of a layer and an example (report/weights.py). */
async function unpack({ data, queries, memory }, heads, signed) {
  const packed = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const stream = new Blob([packed])
    .stream()
    .pipeThrough(new DecompressionStream('deflate'));
  const bytes = await new Response(stream).arrayBuffer();
  const rows = heads * queries;
  const scales = new Float32Array(bytes, 0, rows);
  const Codes = signed ? Int8Array : Uint8Array;
  const codes = new Codes(bytes, 4 * rows);
  return (head, query, key) => {
    const row = head * queries + query;
    return scales[row] * codes[row * memory + key];
  };
}

/** The colours of 511 shares of the largest weight, from -1 to 1. */
function ramp() {
  const canvas = new OffscreenCanvas(511, 1);
  const context = canvas.getContext('2d');
  const gradient = context.createLinearGradient(0.5, 0, 510.5, 0);
  const stops = ['--negative-ramp', '--ramp']
    .flatMap((name) => style.getPropertyValue(name).split(','))
    .map((colour) => colour.trim());
  stops.forEach((colour, i) =>
    gradient.addColorStop(i / (stops.length - 1), colour),
  );
  context.fillStyle = gradient;
  context.fillRect(0, 0, 511, 1);
  const { data } = context.getImageData(0, 0, 511, 1);
  return new Uint32Array(data.buffer);
}

function make(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

/** Offers [value, text] pairs; chooses the wanted value if it is offered. */
function fill(select, entries, wanted) {
  select.replaceChildren(
    ...entries.map(
      ([value, text]) =>
        new Option(text, value, false, String(value) === wanted),
    ),
  );
}

/** The beginning of a text; SentencePiece starts a word with U+2581. */
function beginning(tokens) {
  const text = tokens.join('').replaceAll('\u2581', ' ').trim();
  return text.length > 60 ? `${text.slice(0, 59)}\u2026` : text;
}

/** Three decimals, or two significant digits of a small weight. */
function format(weight) {
  if (weight === 0) return '0';
  return Math.abs(weight) < 0.1 ? weight.toPrecision(2) : weight.toFixed(3);
}

function clamp(at, low, high) {
  return Math.max(low, Math.min(at, high));
}

class Panel {
  constructor(element) {
    this.id = element.id;
    this.pick = {};
    for (const name of ['model', 'stack', 'layer', 'example']) {
      this.pick[name] = element.querySelector(`[name=${name}]`);
    }
    for (const part of element.querySelectorAll('[class]')) {
      this[part.className] = part;
    }
    this.head = this.query = this.key = 0;
    element.addEventListener('change', ({ target }) => {
      if (target.type === 'radio') this.head = Number(target.value);
      this.show();
      if (together.checked) this.other.show(this.place);
    });
    for (const kind of ['pointermove', 'pointerdown']) {
      this.cells.addEventListener(kind, (event) => this.point(event));
    }
    this.cells.addEventListener('keydown', (event) => this.type(event));
  }

  get model() {
    return models[this.pick.model.value];
  }

  get stack() {
    return this.model.stacks[this.pick.stack.value];
  }

  get other() {
    return panels.find((panel) => panel !== this);
  }

  /** What the other panel may be asked to show, too. */
  get place() {
    const { stack, layer, example } = this.pick;
    return {
      stack: stack.value,
      layer: layer.value,
      example: example.value,
      head: this.head,
    };
  }

  /** Offers what the model has; chooses a place as far as it exists. */
  offer(place) {
    const names = Object.keys(SIDES).filter((s) => s in this.model.stacks);
    const titles = names.map((name) => [
      name,
      name === 'cross' ? 'decoder to encoder' : name,
    ]);
    fill(this.pick.stack, titles, place.stack);
    const { blocks, heads } = this.stack;
    const layers = blocks.map((_, i) => [i, `${i + 1} of ${blocks.length}`]);
    fill(this.pick.layer, layers, place.layer);
    const [side] = SIDES[this.pick.stack.value];
    const examples = this.model.examples.map((tokens, i) => [
      i,
      `${i + 1}: ${beginning(tokens[side])}`,
    ]);
    fill(this.pick.example, examples, place.example);
    this.head = Math.min(place.head, heads - 1);
  }

  /** Unpacks and draws a place. */
  async show(place = this.place) {
    this.offer(place);
    const { stack, layer, example } = this.place;
    const { blocks, heads, signed } = this.stack;
    // Weights that do not depend on the example are packed once.
    const block = blocks[layer][example] || blocks[layer][0];
    this.block = block;
    try {
      block.weight ||= unpack(block, heads, signed);
      const weight = await block.weight;
      if (this.block !== block) return; // another choice was made meanwhile
      this.weight = weight;
    } catch (error) {
      this.reading.textContent =
        `The weights cannot be unpacked (${error}). ` +
        'A browser of 2023 or later can.';
      return;
    }
    const tokens = this.model.examples[example];
    [this.queries, this.memory] = SIDES[stack].map((side) => tokens[side]);
    this.draw();
  }

  point(event) {
    if (!this.weight) return;
    const query = Math.floor(event.offsetY / this.cell);
    const key = Math.floor(event.offsetX / this.cell);
    this.moveBoth(query, key);
  }

  type(event) {
    if (!this.weight || event.altKey || event.metaKey) return;
    const { query, key } = this;
    const lastQuery = this.queries.length - 1;
    const lastKey = this.memory.length - 1;
    const target = {
      ArrowUp: [query - 1, key],
      ArrowDown: [query + 1, key],
      ArrowLeft: [query, key - 1],
      ArrowRight: [query, key + 1],
      Home: [event.ctrlKey ? 0 : query, 0],
      End: [event.ctrlKey ? lastQuery : query, lastKey],
      PageUp: [0, key],
      PageDown: [lastQuery, key],
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

  /** Moves the cursor to a cell, and describes it. */
  move(query, key) {
    this.query = clamp(query, 0, this.queries.length - 1);
    this.key = clamp(key, 0, this.memory.length - 1);
    this.cursor.style.top = `${this.query * this.cell}px`;
    this.cursor.style.left = `${this.key * this.cell}px`;
    for (const [axis, at] of [
      [this.rows, this.query],
      [this.columns, this.key],
    ]) {
      axis.querySelector('.chosen')?.classList.remove('chosen');
      axis.children[at].classList.add('chosen');
    }
    this.describe();
  }

  /** The largest weight of a head, and whether some are negative. */
  range(head) {
    let most = 0;
    let least = 0;
    for (let i = 0; i < this.queries.length; i++) {
      for (let j = 0; j < this.memory.length; j++) {
        const weight = this.weight(head, i, j);
        most = Math.max(most, weight);
        least = Math.min(least, weight);
      }
    }
    return { most: Math.max(most, -least), signed: least < 0 };
  }

  draw() {
    const { queries, memory, map } = this;
    this.drawHeads();
    for (const [axis, tokens] of [
      [this.rows, queries],
      [this.columns, memory],
    ]) {
      axis.replaceChildren(
        ...tokens.map((token) => make('span', { textContent: token })),
      );
    }
    const left = this.rows.offsetWidth;
    const fitting = Math.floor((map.clientWidth - left) / memory.length);
    this.cell = clamp(fitting, SMALLEST_CELL, LARGEST_CELL);
    map.style.setProperty('--cell', `${this.cell}px`);
    map.style.scrollPadding = `${this.columns.offsetHeight}px 0 0 ${left}px`;
    const { most, signed } = this.range(this.head);
    const end = scale.value === 'one' ? Math.max(1, most) : most;
    const [width, height] = [memory, queries].map((t) => t.length * this.cell);
    this.drawMap(this.cells, width, height, this.head, end);
    this.ramp.classList.toggle('signed', signed);
    this.least.textContent = signed ? format(-end) : '0';
    this.most.textContent = format(end);
    this.move(this.query, this.key);
  }

  drawHeads() {
    const focused = this.heads.contains(document.activeElement);
    const labels = Array.from({ length: this.stack.heads }, (_, head) => {
      const canvas = make('canvas', { ariaHidden: 'true' });
      this.drawMap(canvas, HEAD_SIZE, HEAD_SIZE, head, this.range(head).most);
      const radio = make('input', {
        type: 'radio',
        name: `head-${this.id}`,
        value: head,
        checked: head === this.head,
      });
      const label = make('label', {});
      label.append(radio, canvas, String(head + 1));
      return label;
    });
    this.heads.replaceChildren(this.heads.firstElementChild, ...labels);
    if (focused) this.heads.querySelector(':checked').focus();
  }

  /** Paints the weights of a head; colours end at a weight. */
  drawMap(canvas, width, height, head, end) {
    const [rows, columns] = [this.queries.length, this.memory.length];
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = ramp();
    for (let at = 0; at < pixels.length; at++) {
      const i = Math.floor(at / columns);
      const share = end && this.weight(head, i, at % columns) / end;
      pixels[at] = colours[255 + Math.round(255 * share)];
    }
    const small = new OffscreenCanvas(columns, rows);
    small.getContext('2d').putImageData(image, 0, 0);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, width, height);
  }

  /** Says in words what is drawn. */
  describe() {
    const { queries, memory, query, key, head } = this;
    const { stack, layer } = this.place;
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
    const { alpha, functions } = this.stack;
    const shares = functions.map(
      (name, i) => alpha && `${name} ${alpha[layer][head][i].toFixed(3)}`,
    );
    this.alpha.textContent = alpha && `Alpha of this head: ${shares.join(', ')}`;
    this.cells.ariaLabel =
      `Attention weights, ${this.model.label}, ${stack}, layer ` +
      `${Number(layer) + 1}, head ${head + 1}: ${queries.length} queries by ` +
      `${memory.length} tokens`;
  }
}

const together = document.querySelector('[name=together]');
const scale = document.querySelector('[name=scale]');
const panels = [...document.querySelectorAll('.panel')].map(
  (element) => new Panel(element),
);

function drawAll() {
  for (const panel of panels) if (panel.weight) panel.draw();
}

together.addEventListener('change', () => {
  if (together.checked) panels[1].show(panels[0].place);
});
scale.addEventListener('change', drawAll);
window.addEventListener('resize', drawAll);
matchMedia('(prefers-color-scheme: dark)').addEventListener(
  'change',
  drawAll,
);
for (const panel of panels) panel.show();
