/* Draws the page of a planned cluster. */
const plan = data.plan, pipeline = data.picture, best = plan.best[0];
const GAP = 26; /* pixels of the cut in the time axis */

function tile(words, value) { return el('li', {}, el('b', {}, value), el('span', {}, words)); }
function filled(color) { return el('span', { class: 'swatch', style: 'background:' + color, 'aria-hidden': 'true' }); }
function name(way) { return `TP ${way.tp} × DP ${way.dp} × PP ${way.pp}`; }
function detail(way) { return `ZeRO ${way.zero}, ${count(way.accumulate)} micro-batches of ${way.micro_batch} ${way.micro_batch === 1 ? 'row' : 'rows'}, ${way.order}, recompute ${way.recompute}, ${way.placement}`; }
function state(way) { return (way.drawn ? 'planned as a whole and verified' : 'put together from planned layers') + (way.runnable ? '' : '; more ranks than train takes'); }

const SHARES = [['compute', '--param'], ['tensor exchange', '--moment1'], ['visits', '--grad'], ['bubble', '--grid'], ['data exchange', '--moment2'], ['update', '--master']];
const FORWARD = 'var(--moment1)', BACKWARD = 'var(--param)', TAIL = 'var(--master)';

main.append(el('h1', {}, `${(plan.parameters / 1e9).toFixed(1)} billion parameters on ${count(plan.ranks)} GPUs`),
  el('p', { class: 'quiet' }, `${plan.assumed.name}; ${count(plan.global_batch)} rows of ${count(plan.seq)} tokens a step`),
  el('p', {}, el('b', {}, name(best)), ', ' + detail(best) + ` (${state(best)})`),
  el('ul', { class: 'tiles' }, tile('a step', seconds(best.predicted_step_ms / 1e3)), tile('tokens a second', count(Math.round(plan.global_batch * plan.seq / best.predicted_step_ms * 1e3))),
    tile('limits the step', best.bound_by), tile('of the step is bubble', (100 * best.seconds.bubble / (best.predicted_step_ms / 1e3)).toFixed(1) + ' %'),
    ...['device', 'host', 'disk'].filter((t) => best.peak_bytes[t] > 0).map((t) => tile(`${t}, of ${bytes(best.budget_bytes[t])}`, bytes(best.peak_bytes[t])))));

/* ---- where the time goes ---- */

function shareBar(way, most) {
  const width = 520, root = svg('svg', { viewBox: `0 0 ${width} 18`, role: 'img', 'aria-label': 'Shares of the step', style: `width:${width}px;max-width:100%` });
  let x = 0;
  for (const [share, color] of SHARES) {
    const w = width * way.seconds[share] / most;
    root.append(svg('rect', { x, y: 1, width: Math.max(0, w), height: 16, fill: `var(${color})` }, svg('title', {}, `${share}: ${seconds(way.seconds[share])}`)));
    x += w;
  }
  return root;
}
const slowest = Math.max(...plan.best.map((way) => way.predicted_step_ms / 1e3));
main.append(el('h2', {}, 'The fastest layouts'),
  el('p', { class: 'quiet' }, `${count(plan.considered)} combinations of options were considered, ${count(plan.fitting)} fit, ${count(plan.simulated)} were simulated. Here is the fastest of each layout.`),
  el('ul', { class: 'legend' }, ...SHARES.map(([share, color]) => el('li', {}, filled(`var(${color})`), share))),
  table('The fastest layouts', [['layout', 'text'], ['where the step goes', 'text'], ['step'], ['device'], ['host'], ['disk']], plan.best.map((way) =>
    [name(way), shareBar(way, slowest), seconds(way.predicted_step_ms / 1e3), bytes(way.peak_bytes.device), bytes(way.peak_bytes.host), bytes(way.peak_bytes.disk)])),
  ...plan.best.map((way) => el('p', { class: 'quiet' }, `${name(way)}: ${detail(way)} (${state(way)})`)));

/* ---- the pipeline ---- */

function pipelinePicture(width) {
  const left = 74, top = 10, stages = pipeline.stages, row = Math.max(5, Math.min(26, Math.floor(560 / stages)));
  const inner = width - left - 10, height = row * stages, windows = pipeline.windows;
  const shown = windows.reduce((sum, w) => sum + w[1] - w[0], 0), scale = (inner - GAP * (windows.length - 1)) / shown;
  const starts = [left];
  for (let i = 1; i < windows.length; i++) starts.push(starts[i - 1] + (windows[i - 1][1] - windows[i - 1][0]) * scale + GAP);
  const root = svg('svg', { viewBox: `0 0 ${width} ${top + height + 46}`, role: 'img', 'aria-label': 'Stages of the pipeline over the time of a step' });
  root.append(svg('defs', {}, svg('pattern', { id: 'idle', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
    svg('rect', { width: 6, height: 6, fill: 'var(--ground)' }), svg('rect', { width: 1.5, height: 6, fill: 'var(--line)' }))));
  windows.forEach((w, i) => root.append(svg('rect', { x: starts[i], y: top, width: (w[1] - w[0]) * scale, height, fill: 'url(#idle)' })));
  const paths = ['', ''], labels = [];
  for (const [stage, micro, isBackward, start, end] of pipeline.passes) {
    const i = windows.findIndex((w) => end > w[0] && start < w[1]);
    if (i < 0) continue;
    const from = starts[i] + (Math.max(start, windows[i][0]) - windows[i][0]) * scale;
    const w = (Math.min(end, windows[i][1]) - Math.max(start, windows[i][0])) * scale, y = top + stage * row;
    const gap = w > 4 ? .8 : 0;
    paths[isBackward] += `M${from.toFixed(2)} ${y + .6}h${Math.max(.2, w - gap).toFixed(2)}v${row - 1.2}h${(-Math.max(.2, w - gap)).toFixed(2)}z`;
    if (row >= 13 && w > 7 * String(micro + 1).length + 4) labels.push(text(from + w / 2, y + row / 2 + 4, String(micro + 1), { 'text-anchor': 'middle', class: 'small', style: isBackward ? 'fill:#fff' : 'fill:#111' }));
  }
  root.append(svg('path', { d: paths[0], fill: FORWARD }), svg('path', { d: paths[1], fill: BACKWARD }));
  const last = windows.length - 1, tail = pipeline.step_seconds - pipeline.pipeline_seconds;
  if (tail > 0) {
    const x = starts[last] + (pipeline.pipeline_seconds - windows[last][0]) * scale;
    root.append(svg('rect', { x, y: top, width: Math.max(1, tail * scale), height, fill: TAIL }));
  }
  root.append(...labels);
  const every = Math.ceil(14 / row);
  for (let s = 0; s < stages; s++) if (s % every === 0 || s === stages - 1 && every === 1) root.append(text(left - 6, top + s * row + Math.min(row, 14) / 2 + 5, every === 1 && row >= 13 ? 'stage ' + s : String(s), { 'text-anchor': 'end', class: 'small' }));
  windows.forEach((w, i) => {
    const a = starts[i], b = a + (w[1] - w[0]) * scale, y = top + height;
    root.append(svg('line', { x1: a, x2: b, y1: y, y2: y, class: 'axis' }), text(a, y + 16, i === 0 ? '0' : seconds(w[0]), { class: 'small' }), text(b, y + 16, seconds(w[1]), { class: 'small', 'text-anchor': 'end' }));
    if (i > 0) root.append(text(a - GAP / 2, top + height / 2, '⋯', { 'text-anchor': 'middle' }));
  });
  return root;
}
function drawPipeline() {
  main.append(el('h2', {}, pipeline.stages > 1 ? 'The pipeline' : 'The micro-batches'),
    el('p', { class: 'quiet' }, `${pipeline.stages > 1 ? `${pipeline.stages} stages, ` : ''}${count(pipeline.micro_batches)} micro-batches, numbered from 1 where there is room. ` +
      (pipeline.windows.length > 1 ? 'The beginning and the end of a step; between them a forward and a backward pass take turns. ' : '') + 'Hatched is the bubble: a stage waits for another one.'),
    el('ul', { class: 'legend' }, el('li', {}, filled(FORWARD), 'forward'), el('li', {}, filled(BACKWARD), 'backward'),
      el('li', {}, filled('repeating-linear-gradient(45deg, var(--ground) 0 2px, var(--line) 2px 3px)'), 'bubble'), el('li', {}, filled(TAIL), 'sums, gathers and updates that no pass hides')));
  const holder = el('div', {});
  main.append(el('figure', {}, holder));
  let width = 0;
  pictures.push((paper) => {
    const now = paper || Math.round(holder.clientWidth || 960);
    if (now !== width) holder.replaceChildren(pipelinePicture(width = now));
  });
  main.append(el('details', {}, el('summary', {}, 'Ranks and layers of the stages'),
    table('Stages', [['stage'], ['ranks', 'text'], ['layers', 'text']], pipeline.layers.map(([first, n], s) => {
      const each = plan.ranks / pipeline.stages;
      return [String(s), `${count(s * each)} – ${count((s + 1) * each - 1)}`, `${first} – ${first + n - 1}` + (s === 0 ? ', embedding' : '') + (s === pipeline.stages - 1 ? ', head' : '')];
    }))));
}
drawPipeline();

/* ---- what was assumed ---- */

function figure(key, value) {
  if (typeof value !== 'number') return String(value);
  if (/bytes$/.test(key)) return bytes(value);
  if (/seconds$/.test(key)) return seconds(value);
  if (/flop_rate/.test(key)) return amount(value, 'FLOP/s');
  return /rate$/.test(key) ? amount(value, 'B/s') : count(value);
}
function breakable(key) { return el('span', {}, ...key.split(/(?<=[._])/).flatMap((part, i) => i ? [el('wbr'), part] : [part])); }
function flatten(object, prefix) {
  return Object.entries(object).flatMap(([key, value]) => value !== null && typeof value === 'object' ? flatten(value, prefix + key + '.') : [[breakable(prefix + key), figure(prefix + key, value)]]);
}
main.append(el('h2', {}, 'What was assumed'), el('p', { class: 'quiet' }, 'The description of the cluster. An efficiency is the share of a rate that is reached.'),
  table('What was assumed of the cluster', [['key', 'text'], ['value']], flatten(plan.assumed, '')), el('p', { class: 'quiet' }, data.version));
drawPictures();
