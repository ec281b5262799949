/* Curves of runs over their steps: the loss first, then small pictures of the other numbers. A run has one
 * colour in all of them. A row of a series is [step, value], or, of several steps,
 * [last step, count, mean, step of the least, least, step of the greatest, greatest]. */
const RUN_COLORS = 8, DASHES = [null, '7 4', '2 3', '9 3 2 3'];
const SETS = ['eval', 'validation', 'test'];
const runs = data.runs || [];

function runColor(index) { return 'run' + index % RUN_COLORS; }
function runDash(index) { return DASHES[Math.floor(index / RUN_COLORS) % DASHES.length]; }
function runSwatch(index) { return swatch(runColor(index)); }
function isOne(row) { return row.length === 2; }
function meanOf(row) { return isOne(row) ? row[1] : row[2]; }
function lowOf(row) { return isOne(row) ? row[1] : row[4]; }
function highOf(row) { return isOne(row) ? row[1] : row[6]; }
/* Every extreme of a series at its step, in the order of steps. */
function extremes(rows) {
  return rows.flatMap((r) => isOne(r) ? [r] : r[4] === r[6] ? [[r[0], r[4]]] : [[r[3], r[4]], [r[5], r[6]]].sort((a, b) => a[0] - b[0]));
}
/* Means that forget by e in a fiftieth of the steps; without the weight of a first value that stands for nothing. */
function smooth(rows) {
  const span = rows[rows.length - 1][0] - rows[0][0], forget = Math.max(1e-9, span / 50);
  let sum = 0, weight = 0, before = rows[0][0];
  return rows.map((row) => {
    const keep = Math.exp(-(row[0] - before) / forget), steps = isOne(row) ? 1 : row[1];
    before = row[0];
    sum = keep * sum + steps * meanOf(row);
    weight = keep * weight + steps;
    return [row[0], sum / weight];
  });
}
function nearest(rows, step) {
  let low = 0, high = rows.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (rows[middle][0] <= step) low = middle; else high = middle; }
  return Math.abs(rows[low][0] - step) <= Math.abs(rows[high][0] - step) ? low : high;
}
function pathOf(points, x, y) {
  let d = '';
  points.forEach((p, i) => { d += (i ? 'L' : 'M') + x(p[0]).toFixed(1) + ' ' + y(p[1]).toFixed(1); });
  return d;
}

/* The first and the last step of all runs: every curve has this axis. */
const firstStep = Math.min(...runs.filter((r) => r.steps).map((r) => r.first_step), Infinity);
const lastStep = Math.max(...runs.map((r) => r.last_step), 0);

/* Words for the readout of one run at a step. */
function wordsAt(entry, step, words) {
  const row = entry.rows[nearest(entry.rows, step)], near = (lastStep - firstStep) / 50;
  if (step > entry.run.last_step + near || step < entry.run.first_step - near) return null;
  const parts = [runSwatch(entry.index), (runs.length > 1 ? entry.run.name + ': ' : '') + words(meanOf(row))];
  if (!isOne(row)) parts.push(` (${words(lowOf(row))} to ${words(highOf(row))} in ${count(row[1])} steps)`);
  for (const [set, rows] of Object.entries(entry.evals || {})) {
    const there = rows[nearest(rows, step)];
    if (Math.abs(there[0] - step) <= near) parts.push(`, ${set} ${words(meanOf(there))} at step ${count(there[0])}`);
  }
  return el('span', { class: 'entry' }, ...parts);
}
function evalMark(set, x, y, index) {
  const color = 'var(--' + runColor(index) + ')', size = set === 'test' ? 5 : 3.5;
  return set === 'test'
    ? svg('path', { class: 'mark', d: `M${x} ${y - size}l${size} ${size}l${-size} ${size}l${-size} ${-size}z`, fill: color })
    : svg('circle', { class: 'mark', cx: x.toFixed(1), cy: y.toFixed(1), r: size, fill: color });
}

/* `what`: {key, title, words (value), smooths, evals, fromZero, height} */
function curvePicture(what, parent) {
  const entries = runs.map((run, index) => ({ run, index, rows: run.curves[what.key] || [], evals: what.evals ? run.evals : null })).filter((e) => e.rows.length);
  if (entries.length === 0) return;
  const values = entries.flatMap((e) => [...e.rows.flatMap((r) => [lowOf(r), highOf(r)]), ...Object.values(e.evals || {}).flat().map(meanOf)]);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  if (what.fromZero) low = Math.min(0, low);
  if (high - low < 1e-9 * Math.abs(high)) { high += Math.abs(high) * .05 || 1; if (!what.fromZero) low -= Math.abs(low) * .05; }
  const box = el('div', { class: 'whole' }, el('h3', {}, what.title));
  (parent || main).append(box);
  picture(what.title + ' by step; arrow keys move', (width) => {
    const left = 64, top = 10, height = what.height, inner = width - left - 14;
    const x = (step) => left + inner * (step - firstStep) / Math.max(1, lastStep - firstStep), y = (value) => top + height * (1 - (value - low) / (high - low));
    const root = svg('svg', { viewBox: `0 0 ${width} ${top + height + 24}` });
    const values = what.bytes ? byteSteps(high) : ticks(low, high, Math.round(height / 44));
    for (const value of values) root.append(line(left, y(value), left + inner, y(value), 'grid'), text(left - 6, y(value) + 4, value === 0 ? '0' : what.axis ? what.axis(value, values) : what.words(value), { 'text-anchor': 'end', class: 'small' }));
    root.append(line(left, top + height, left + inner, top + height, 'axis'));
    const steps = ticks(firstStep, lastStep, Math.max(1, Math.floor(inner / 90))).filter((s) => Number.isInteger(s));
    steps.forEach((s) => root.append(text(clamp(x(s), left, left + inner), top + height + 17, (s === steps[0] ? 'step ' : '') + count(s), { 'text-anchor': x(s) > left + inner - 24 ? 'end' : 'middle', class: 'small' })));
    for (const e of entries) {
      const style = { fill: 'none', stroke: 'var(--' + runColor(e.index) + ')', 'stroke-dasharray': runDash(e.index), 'stroke-linejoin': 'round' };
      const curve = what.smooths ? smooth(e.rows) : extremes(e.rows);
      if (what.smooths) root.append(svg('path', Object.assign({ class: 'raw', d: pathOf(extremes(e.rows), x, y) }, style, { 'stroke-dasharray': 'none' })));
      root.append(add(svg('path', { class: 'curve', d: pathOf(curve, x, y) }), style, []));
      if (curve.length === 1) root.append(svg('circle', { cx: x(curve[0][0]), cy: y(curve[0][1]), r: 2.5, fill: style.stroke }));
      for (const [set, rows] of Object.entries(e.evals || {})) for (const row of rows) root.append(evalMark(set, x(row[0]), y(meanOf(row)), e.index));
    }
    const cursor = line(0, top, 0, top + height, 'cursor');
    root.append(cursor);
    const longest = entries.reduce((a, b) => b.rows.length > a.rows.length ? b : a).rows;
    let now = longest.length - 1;
    const show = () => {
      now = clamp(now, 0, longest.length - 1);
      const step = longest[now][0];
      add(cursor, { x1: x(step), x2: x(step) }, []);
      return [bold('step ' + count(step) + ': '), ...entries.map((e) => wordsAt(e, step, what.words)).filter((words) => words).flatMap((words) => [words, ' '])];
    };
    return { svg: root, most: longest.length - 1, now: () => now, start: show,
      at: (px) => { now = nearest(longest, firstStep + (px - left) / inner * (lastStep - firstStep)); return show(); },
      move: (dx) => { now += dx; return show(); } };
  }, box);
}

function fixed(value, values) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : Math.abs(value) || 1;
  return value.toFixed(clamp(Math.ceil(-Math.log10(step) - 1e-9), 0, 8));
}
function rateWords(value) { return value === 0 ? '0' : value >= .01 ? String(+value.toPrecision(3)) : value.toExponential(2).replace(/\.?0+e/, 'e'); }

/* What the model wrote, the newest first. */
function samples() {
  const rows = runs.flatMap((run, i) => (run.samples || []).map((s) => ({ run, i, s }))).sort((a, b) => b.s.step - a.s.step || a.i - b.i);
  if (rows.length === 0) return;
  heading('Texts', 'What the model wrote after these steps; the prompt is bold.');
  const names = runs.length > 1;
  main.append(table('Texts', [['step'], ...(names ? [['run', 'text']] : []), ['text', 'text']],
    rows.map(({ run, i, s }) => [count(s.step), ...(names ? [el('span', {}, runSwatch(i), run.name)] : []), el('span', { class: 'sample' }, bold(s.prompt), s.text)])));
}

function curves() {
  if (lastStep === 0) { main.append(el('p', {}, 'No step is logged yet.')); return; }
  const sets = SETS.filter((set) => runs.some((run) => run.evals[set]));
  const loss = { key: 'loss', title: 'Loss', words: (v) => v.toFixed(4), axis: fixed, smooths: true, evals: true, height: 230 };
  const items = runs.length > 1 ? runs.map((run, i) => [runSwatch(i), run.name]) : [];
  items.push('pale: the training loss of each step; strong: smoothed');
  for (const set of sets) items.push((set === 'test' ? 'diamonds: ' : 'dots: ') + set + ' loss');
  main.append(legend(...items));
  curvePicture(loss);
  const plots = el('div', { class: 'plots' });
  main.append(plots);
  const small = [
    { key: 'lr', title: 'Learning rate', words: rateWords, fromZero: true },
    { key: 'grad_norm', title: 'Norm of the gradient', words: (v) => String(+v.toPrecision(4)), fromZero: true, smooths: true },
    { key: 'step_ms', title: 'Time of a step', words: (v) => seconds(v / 1e3), fromZero: true, smooths: true },
    { key: 'tokens_per_s', title: 'Tokens a second', words: (v) => amount(v, ''), fromZero: true, smooths: true },
    ...['device', 'host', 'disk'].map((tier) => ({ key: tier + '_bytes', title: `Peak of the ${tier} so far`, words: bytes, bytes: true, fromZero: true })),
  ];
  for (const what of small)
    if (runs.some((run) => (run.curves[what.key] || []).some((row) => highOf(row) !== 0))) curvePicture(Object.assign({ height: 130 }, what), plots);
}
