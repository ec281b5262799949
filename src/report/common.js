/* What the scripts of all pages share: words, elements, tables and pictures. All text goes in as
 * text, never as markup. Every picture is a slider: pointer, finger and arrow keys move a cursor, and
 * the line below it says what stands there. The script of the page comes behind this one and draws
 * from the JSON that stands in the page. */
'use strict';
const data = JSON.parse(document.getElementById('sluice-data').textContent);
const main = document.querySelector('main');

/* ---- words ---- */

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (n >= 1024 && unit + 1 < units.length) { n /= 1024; unit++; }
  return (unit ? n.toFixed(2) : String(n)) + ' ' + units[unit];
}
function seconds(s) {
  if (s >= 1) return s.toFixed(2) + ' s';
  if (s >= 1e-3) return (s * 1e3).toFixed(2) + ' ms';
  return (s * 1e6).toFixed(1) + ' µs';
}
function percent(part, all) { return all > 0 ? (100 * part / all).toFixed(1) + ' %' : '–'; }
function count(n) { return n.toLocaleString('en'); }
function amount(n, unit) {
  const steps = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'K']];
  for (const [size, prefix] of steps) if (n >= size) return (n / size).toFixed(2) + ' ' + prefix + unit;
  return n.toFixed(0) + ' ' + unit;
}

/* ---- elements ---- */

const SVG = 'http://www.w3.org/2000/svg';
function add(element, attributes, children) {
  for (const key in attributes) if (attributes[key] !== null) element.setAttribute(key, attributes[key]);
  for (const child of children) if (child !== null) element.append(child);
  return element;
}
function el(tag, attributes, ...children) { return add(document.createElement(tag), attributes || {}, children); }
function svg(tag, attributes, ...children) { return add(document.createElementNS(SVG, tag), attributes || {}, children); }
function swatch(color) { return el('span', { class: 'swatch', style: 'background:var(--' + color + ')', 'aria-hidden': 'true' }); }
function stripes(color) { return el('span', { class: 'swatch', style: `background:repeating-linear-gradient(135deg, var(--ground) 0 2px, var(--${color}) 2px 4px)`, 'aria-hidden': 'true' }); }
function stroke(name) { return svg('svg', { class: 'key', viewBox: '0 0 22 10', 'aria-hidden': 'true' }, svg('line', { x1: 0, y1: 5, x2: 22, y2: 5, class: name })); }
function text(x, y, content, attributes) { return svg('text', Object.assign({ x: x.toFixed(1), y: y.toFixed(1) }, attributes), content); }
function line(x1, y1, x2, y2, name) { return svg('line', { x1, y1, x2, y2, class: name }); }
function clamp(n, low, high) { return Math.max(low, Math.min(high, n)); }

function legend(...items) { return el('ul', { class: 'legend' }, ...items.map((parts) => el('li', {}, ...[].concat(parts)))); }
function heading(title, ...paragraphs) {
  main.append(el('h2', {}, title), ...paragraphs.map((words) => el('p', { class: 'quiet' }, words)));
}
/* columns: [name, 'text'?]; a cell is a string, a number or an element. On a narrow screen a table of many
 * columns is drawn as one block a row, in which each cell has the name of its column before it. */
function table(label, columns, rows) {
  const head = el('tr', {}, ...columns.map((c) => el('th', { scope: 'col', class: c[1] || null }, c[0])));
  const body = rows.map((row) => el('tr', {}, ...row.map((cell, i) => el('td', { class: columns[i][1] || null, 'data-name': columns[i][0], 'data-empty': cell === '–' ? '' : null }, cell))));
  return el('div', { class: columns.length > 3 ? 'scroll stack' : 'scroll', role: 'region', tabindex: '0', 'aria-label': label },
    el('table', {}, el('thead', {}, head), el('tbody', {}, ...body)));
}
function withBar(words, share) {
  return el('span', {}, words, el('span', { class: 'bar', style: 'width:' + (60 * clamp(share, 0, 1)).toFixed(0) + 'px', 'aria-hidden': 'true' }));
}

/* ---- pictures ---- */

function patterns() {
  const pattern = (id, color, width) => svg('pattern', { id, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
    svg('rect', { width: 6, height: 6, fill: 'var(--ground)' }), svg('rect', { width, height: 6, fill: color }));
  return svg('svg', { width: 0, height: 0, 'aria-hidden': 'true', style: 'position:absolute' },
    svg('defs', {}, pattern('holes', 'var(--line)', 2), pattern('over', 'var(--bad)', 2)));
}
const pictures = [];
/* `draw(width)` returns {svg, at(x, y), move(dx, dy), start}; they return words for the readout. */
function picture(label, draw, parent) {
  const readout = el('div', { class: 'readout' });
  const holder = el('div', {});
  const figure = el('figure', {}, holder, readout);
  let width = 0;
  function redraw(paper) {
    const now = paper ? paper / (holder.closest('.plots') ? 2 : 1) : Math.round(holder.clientWidth || 960);
    if (now === width) return;
    width = now;
    const drawn = draw(width);
    const root = drawn.svg;
    const show = (parts) => {
      if (!parts) return;
      readout.replaceChildren(...parts);
      root.setAttribute('aria-valuetext', readout.textContent);
      root.setAttribute('aria-valuenow', drawn.now());
    };
    add(root, { tabindex: 0, role: 'slider', 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': drawn.most, 'aria-valuenow': 0 }, []);
    root.addEventListener('pointermove', (event) => {
      const box = root.getBoundingClientRect();
      show(drawn.at((event.clientX - box.left) * width / box.width, (event.clientY - box.top) * width / box.width));
    });
    root.addEventListener('keydown', (event) => {
      const keys = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], PageUp: [-20, 0], PageDown: [20, 0], Home: [-1e9, 0], End: [1e9, 0] };
      const step = keys[event.key];
      if (!step) return;
      event.preventDefault();
      show(drawn.move(step[0], step[1]));
    });
    holder.replaceChildren(root);
    show(drawn.start());
  }
  pictures.push(redraw);
  (parent || main).append(figure);
  return figure;
}
function bold(words) { return el('b', {}, words); }
/* To be called once, when the page stands. On paper a picture is as wide as on a small screen, so that its
 * words are as large as the text around it. */
function drawPictures() {
  const redraw = (paper) => pictures.forEach((draw) => draw(paper));
  const PAPER = 660;
  redraw();
  new ResizeObserver(() => redraw()).observe(main);
  window.addEventListener('beforeprint', () => redraw(PAPER));
  window.addEventListener('afterprint', () => redraw());
}

/* ---- axes ---- */

/* Round numbers between two, about `most` of them. */
function ticks(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * .999);
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) values.push(i * step);
  return values;
}
/* Round numbers of bytes up to `most`. */
function byteSteps(most) {
  let step = 1;
  while (most / step > 5) step *= 2;
  const values = [];
  for (let value = step; value <= most; value += step) values.push(value);
  return values;
}

