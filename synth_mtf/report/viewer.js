// The attention viewer: two panels, each with a model, stack, layer, head and
// example, and a cell that the pointer or the arrow keys move.
'use strict';

const SIDES = { // whose tokens are a stack's queries, and its memory
  encoder: ['encoder', 'encoder'],
  decoder: ['decoder', 'decoder'],
  cross: ['decoder', 'encoder'],
};
const STACK_NAMES = {
  encoder: 'encoder',
  decoder: 'decoder',
  cross: 'decoder to encoder',
};
const SMALLEST_CELL = 12; // pixels
const LARGEST_CELL = 34;
const NUMBERS_FROM = 28; // cells of this size show their weight
const SHOWN_OF_A_ROW = 5;

const models = JSON.parse(document.getElementById('models').textContent);

function option(value, text) {
  const made = document.createElement('option');
  made.value = value;
  made.textContent = text;
  return made;
}

function fill(select, options) {
  const before = select.value;
  select.replaceChildren(...options);
  if (options.some((one) => one.value === before)) select.value = before;
}

/** A text of its tokens; SentencePiece begins a word with U+2581. */
function beginning(tokens) {
  const text = tokens.join('').replaceAll('\u2581', ' ').trim();
  return text.length > 60 ? `${text.slice(0, 59)}\u2026` : text;
}

/** Three digits behind the point, or two that are not 0. */
function number(weight) {
  if (weight === 0) return '0';
  return Math.abs(weight) < 0.1 ? weight.toPrecision(2) : weight.toFixed(3);
}

class Panel {
  constructor(element, place, onMove) {
    this.element = element;
    this.onMove = onMove;
    this.query = 0;
    this.memory = 0;
    this.pick = {};
    for (const name of ['model', 'stack', 'layer', 'example']) {
      this.pick[name] = element.querySelector(`[name=${name}]`);
      this.pick[name].addEventListener('change', () => this.changed(name));
    }
    this.heads = element.querySelector('.heads');
    this.heads.addEventListener('change', () => this.changed('head'));
    this.scroller = element.querySelector('.map');
    this.columns = element.querySelector('.columns');
    this.rows = element.querySelector('.rows');
    this.cells = element.querySelector('.cells');
    this.legend = element.querySelector('.ramp');
    this.most = element.querySelector('.most');
    this.least = element.querySelector('.least');
    this.alpha = element.querySelector('.alpha');
    this.reading = element.querySelector('output');
    this.row = element.querySelector('.row-of-weights');
    const move = (event) => this.pointed(event);
    this.cells.addEventListener('pointermove', move);
    this.cells.addEventListener('pointerdown', move);
    this.cells.addEventListener('keydown', (event) => this.typed(event));
    fill(
      this.pick.model,
      models.map((model, i) =>
        option(i, `${model.label}, step ${model.step} (${model.run})`),
      ),
    );
    this.head = place.head;
    this.pick.model.value = place.model;
    this.offer();
  }

  get model() {
    return models[Number(this.pick.model.value)];
  }

  get stackName() {
    return this.pick.stack.value;
  }

  get stack() {
    return this.model.stacks[this.stackName];
  }

  /** What the other panel may be asked to show, too. */
  get place() {
    return {
      stack: this.stackName,
      layer: this.pick.layer.value,
      example: this.pick.example.value,
      head: this.head,
    };
  }

  /** Shows a place as far as this panel's model has it. */
  follow(place) {
    for (const name of ['stack', 'layer', 'example']) {
      const options = [...this.pick[name].options].map((one) => one.value);
      if (options.includes(place[name])) this.pick[name].value = place[name];
      if (name === 'stack') this.offer();
    }
    this.head = Math.min(place.head, this.stack.heads - 1);
    return this.show();
  }

  /** Fills the lists with what the chosen model and stack have. */
  offer() {
    fill(
      this.pick.stack,
      Object.keys(STACK_NAMES)
        .filter((name) => name in this.model.stacks)
        .map((name) => option(name, STACK_NAMES[name])),
    );
    const layers = this.stack.layers;
    fill(
      this.pick.layer,
      [...Array(layers).keys()].map((i) =>
        option(i, `${i + 1} of ${layers}`),
      ),
    );
    const side = SIDES[this.stackName][0];
    fill(
      this.pick.example,
      this.model.examples.map((tokens, i) =>
        option(i, `${i + 1}: ${beginning(tokens[side])}`),
      ),
    );
    this.head = Math.min(this.head, this.stack.heads - 1);
  }

  changed(name) {
    if (name === 'head') {
      this.head = Number(this.heads.querySelector(':checked').value);
    } else {
      this.offer();
    }
    this.show().then(() => this.onMove(this, 'place'));
  }

  /** Draws what is chosen. */
  async show() {
    const { layer, example } = this.place;
    const { heads, blocks, signed } = this.stack;
    const name = [
      this.pick.model.value,
      this.stackName,
      layer,
      blocks > 1 ? example : 0,
    ].join('-');
    this.wanted = name;
    const block = await unpack(name, heads, signed);
    if (this.wanted !== name) return; // another choice was made meanwhile
    this.block = block;
    [this.queryTokens, this.memoryTokens] = SIDES[this.stackName].map(
      (side) => this.model.examples[example][side],
    );
    this.move(this.query, this.memory);
    this.drawHeads();
    this.draw();
  }

  move(query, memory) {
    const within = (at, tokens) =>
      Math.max(0, Math.min(at, tokens.length - 1));
    this.query = within(query, this.queryTokens);
    this.memory = within(memory, this.memoryTokens);
  }

  pointed(event) {
    if (!this.block) return;
    const box = this.cells.getBoundingClientRect();
    const at = (offset) => Math.floor(offset / this.cell);
    const query = at(event.clientY - box.top);
    const memory = at(event.clientX - box.left);
    if (query === this.query && memory === this.memory) return;
    this.moveTo(query, memory, false);
  }

  typed(event) {
    if (!this.block || event.altKey || event.metaKey) return;
    const last = [
      this.queryTokens.length - 1,
      this.memoryTokens.length - 1,
    ];
    const { query, memory } = this;
    const all = event.ctrlKey;
    const to = {
      ArrowUp: [query - 1, memory],
      ArrowDown: [query + 1, memory],
      ArrowLeft: [query, memory - 1],
      ArrowRight: [query, memory + 1],
      Home: [all ? 0 : query, 0],
      End: [all ? last[0] : query, last[1]],
      PageUp: [0, memory],
      PageDown: [last[0], memory],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    this.moveTo(...to, true);
  }

  moveTo(query, memory, scrolls) {
    this.move(query, memory);
    this.draw();
    if (scrolls) this.scrollToCell();
    this.onMove(this, 'cell');
  }

  scrollToCell() {
    const view = this.scroller;
    const [left, top] = [this.rows.offsetWidth, this.columns.offsetHeight];
    const x = this.memory * this.cell;
    const y = this.query * this.cell;
    const seen = (at, from, room) =>
      Math.min(at, Math.max(from, at + this.cell - room));
    view.scrollLeft = seen(x, view.scrollLeft, view.clientWidth - left);
    view.scrollTop = seen(y, view.scrollTop, view.clientHeight - top);
  }

  // ---------------------------------------------------------------- drawing

  drawHeads() {
    const colour = ramp();
    const size = [this.memoryTokens.length, this.queryTokens.length];
    const focused = this.heads.contains(document.activeElement);
    const made = [...Array(this.stack.heads).keys()].map((head) => {
      const label = document.createElement('label');
      const radio = document.createElement('input');
      radio.type = 'radio';
      radio.name = `head-${this.element.id}`;
      radio.value = head;
      radio.checked = head === this.head;
      const { most } = this.block.range(head, size[1], size[0]);
      const canvas = document.createElement('canvas');
      canvas.setAttribute('aria-hidden', 'true');
      const context = sized(canvas, 44, 44);
      const image = picture(...size, (x, y) =>
        colour(most && this.block.weight(head, y, x) / most),
      );
      context.drawImage(image, 0, 0, 44, 44);
      label.append(radio, canvas, String(head + 1));
      return label;
    });
    const legend = this.heads.querySelector('legend');
    this.heads.replaceChildren(legend, ...made);
    if (focused) this.heads.querySelector(':checked').focus();
  }

  draw() {
    const [queries, memory] = [this.queryTokens, this.memoryTokens];
    const range = this.block.range(this.head, queries.length, memory.length);
    const whole = document.querySelector('[name=scale]').value === 'one';
    const most = whole ? Math.max(1, range.most) : range.most;
    const colour = ramp();
    const share = (i, j) =>
      most && this.block.weight(this.head, i, j) / most;
    const context = this.drawAxes();
    const [width, height] = [memory, queries].map(
      (tokens) => tokens.length * this.cell,
    );
    context.imageSmoothingEnabled = false;
    const image = picture(memory.length, queries.length, (x, y) =>
      colour(share(y, x)),
    );
    context.drawImage(image, 0, 0, width, height);
    if (this.cell >= NUMBERS_FROM) this.drawNumbers(context, share);
    context.strokeStyle = style('--cursor');
    context.lineWidth = 2;
    context.strokeRect(
      this.memory * this.cell + 1,
      this.query * this.cell + 1,
      this.cell - 2,
      this.cell - 2,
    );
    this.drawLegend(colour, most, range.signed);
    this.say();
  }

  drawAxes() {
    const [queries, memory] = [this.queryTokens, this.memoryTokens];
    const font = Math.round(
      0.72 * parseFloat(getComputedStyle(this.element).fontSize),
    );
    const family = style('--mono');
    const measure = document.createElement('canvas').getContext('2d');
    measure.font = `bold ${font}px ${family}`;
    const room = this.scroller.clientWidth;
    const longest = (tokens) =>
      Math.ceil(
        Math.max(...tokens.map((t) => measure.measureText(t).width)),
      ) + 10;
    const left = Math.min(longest(queries), Math.round(room / 4));
    const top = Math.min(longest(memory), 120);
    const fitting = Math.floor((room - left) / memory.length);
    this.cell = Math.max(SMALLEST_CELL, Math.min(fitting, LARGEST_CELL));
    const [width, height] = [memory, queries].map(
      (tokens) => tokens.length * this.cell,
    );
    const rows = sized(this.rows, left, height);
    const columns = sized(this.columns, width, top);
    columns.translate(0, top);
    columns.rotate(-Math.PI / 2);
    const size = Math.min(font, this.cell);
    this.drawTokens(rows, queries, this.query, left, size, 'right');
    this.drawTokens(columns, memory, this.memory, top, size, 'left');
    return sized(this.cells, width, height);
  }

  /** Writes the tokens of an axis, each beside its row, from x = 0 to room. */
  drawTokens(context, tokens, chosen, room, font, align) {
    context.textBaseline = 'middle';
    context.textAlign = align;
    tokens.forEach((token, i) => {
      const middle = (i + 0.5) * this.cell;
      if (i === chosen) {
        context.fillStyle = style('--chosen');
        context.fillRect(0, i * this.cell, room, this.cell);
      }
      const weight = i === chosen ? 'bold' : 'normal';
      context.font = `${weight} ${font}px ${style('--mono')}`;
      context.fillStyle = style('--ink');
      const x = align === 'right' ? room - 5 : 5;
      context.fillText(token, x, middle);
    });
  }

  drawNumbers(context, share) {
    context.font = `${Math.round(this.cell / 3)}px ${style('--sans')}`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (let i = 0; i < this.queryTokens.length; i++) {
      for (let j = 0; j < this.memoryTokens.length; j++) {
        const weight = this.block.weight(this.head, i, j);
        const pale = Math.abs(share(i, j)) < 0.5;
        context.fillStyle = style(pale ? '--ink' : '--paper');
        const text = weight.toFixed(2).replace('0.', '.');
        context.fillText(
          text === '.00' ? '0' : text,
          (j + 0.5) * this.cell,
          (i + 0.5) * this.cell,
        );
      }
    }
  }

  drawLegend(colour, most, signed) {
    const context = sized(this.legend, 120, 12);
    const image = picture(120, 1, (x) =>
      colour(signed ? x / 60 - 1 : x / 119),
    );
    context.drawImage(image, 0, 0, 120, 12);
    this.least.textContent = signed ? number(-most) : '0';
    this.most.textContent = number(most);
  }

  /** Says in words what is drawn. */
  say() {
    const weight = (memory) =>
      this.block.weight(this.head, this.query, memory);
    const [from, to] = SIDES[this.stackName];
    const token = (tokens, at) => `\u201c${tokens[at]}\u201d`;
    this.reading.replaceChildren(
      `${from} ${this.query + 1} ${token(this.queryTokens, this.query)} ` +
        `\u2192 ${to} ${this.memory + 1} ` +
        `${token(this.memoryTokens, this.memory)}: `,
      Object.assign(document.createElement('strong'), {
        className: 'weight',
        textContent: number(weight(this.memory)),
      }),
    );
    const order = this.memoryTokens
      .map((_, at) => at)
      .sort((a, b) => Math.abs(weight(b)) - Math.abs(weight(a)))
      .slice(0, SHOWN_OF_A_ROW);
    this.row.textContent =
      `Most of ${token(this.queryTokens, this.query)}: ` +
      order
        .map((at) => `${token(this.memoryTokens, at)} ${number(weight(at))}`)
        .join(', ');
    const { alpha, functions } = this.stack;
    const layer = alpha && alpha[Number(this.pick.layer.value)];
    this.alpha.textContent = layer
      ? `alpha of this head: ${functions
          .map((name, i) => `${name} ${layer[this.head][i].toFixed(3)}`)
          .join(', ')}`
      : '';
    this.cells.setAttribute(
      'aria-label',
      `Attention weights, ${this.model.label}, ${this.stackName}, layer ` +
        `${Number(this.pick.layer.value) + 1}, head ${this.head + 1}: ` +
        `${this.queryTokens.length} queries by ` +
        `${this.memoryTokens.length} tokens`,
    );
  }
}

const together = document.querySelector('[name=together]');
const panels = [...document.querySelectorAll('.panel')].map((element, i) => {
  const model = Math.min(i, models.length - 1);
  return new Panel(element, { model, head: 0 }, moved);
});

function moved(panel, what) {
  if (!together.checked) return;
  for (const other of panels) {
    if (other === panel || !other.block) continue;
    if (what === 'place') {
      other.follow(panel.place);
    } else {
      other.move(panel.query, panel.memory);
      other.draw();
    }
  }
}

function drawAll() {
  for (const panel of panels) {
    if (!panel.block) continue;
    panel.drawHeads();
    panel.draw();
  }
}

together.addEventListener('change', () => moved(panels[0], 'place'));
document.querySelector('[name=scale]').addEventListener('change', drawAll);
matchMedia('(prefers-color-scheme: dark)').addEventListener(
  'change',
  drawAll,
);
let width = 0;
new ResizeObserver(([panel]) => {
  if (panel.contentRect.width === width) return; // drawing changes the height
  width = panel.contentRect.width;
  drawAll();
}).observe(panels[0].element);
for (const panel of panels) {
  panel.show().catch((error) => {
    panel.reading.textContent =
      `The weights cannot be unpacked (${error}). ` +
      'A browser of 2023 or later can.';
  });
}
