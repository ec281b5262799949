/* Draws the report of a plan, and of a run or a profile what was measured beside it. */
const account = data.account;
const GAP = 22; /* pixels of a cut in the time axis */

/* Phases and repeated sections below the ticks; returns what it drew. */
function tickAxis(x0, width, y) {
  const group = svg('g', {});
  const at = (tick) => x0 + width * tick / account.op_count;
  const phases = ['forward', 'recompute', 'backward', 'update'];
  const columns = account.phases.length;
  for (let first = 0; first < columns;) {
    let end = first;
    while (end < columns && account.phases[end] === account.phases[first]) end++;
    const x = x0 + width * first / columns, w = width * (end - first) / columns;
    group.append(svg('rect', { x: x.toFixed(1), y, width: w.toFixed(1), height: 14, fill: 'var(--' + phases[account.phases[first]] + ')' }));
    if (w > 58) group.append(text(x + w / 2, y + 11, phases[account.phases[first]], { 'text-anchor': 'middle', class: 'small' }));
    first = end;
  }
  for (const [first, ticks, repeat] of account.sections) {
    if (repeat === 1) continue;
    const from = at(first) + 1, to = at(first + ticks) - 1;
    group.append(svg('path', { class: 'axis', d: `M${from} ${y + 17}v5H${to}v-5` }));
    if (to - from > 30) group.append(text((from + to) / 2, y + 34, '× ' + repeat, { 'text-anchor': 'middle', class: 'small' }));
  }
  return group;
}
/* What the strip below the ticks says by colour. */
function phaseLegend() {
  const used = ['forward', 'recompute', 'backward', 'update'].filter((name, i) => account.phases.includes(i));
  return legend('below the ticks:', ...used.map((name) => [swatch(name), name]));
}

/* Tiers differ by orders of magnitude. The largest one has the full height; one of less than an eighth of it
 * two thirds, of less than a hundredth half: more would look as if it mattered as much, less could not be read. */
function heightOf(name, full) {
  const share = account.memory[name].arena_bytes / largestArena();
  return Math.round(full * (share > 1 / 8 ? 1 : share > 1 / 100 ? 2 / 3 : 1 / 2));
}
function largestArena() { return Math.max(...account.tiers.map((tier) => account.memory[tier].arena_bytes)); }
/* All tiers on one scale. */
function scaleBars(tiers) {
  const all = tiers.map((name) => account.memory[name].arena_bytes);
  if (tiers.length < 2) return;
  main.append(el('p', { class: 'quiet' }, 'All tiers on one scale:'), el('div', { class: 'bars' }, ...tiers.flatMap((name, i) => [el('span', {}, name),
    el('span', { class: 'track', 'aria-hidden': 'true' }, el('span', { style: `width:${Math.max(.2, 100 * all[i] / Math.max(...all)).toFixed(2)}%` })), el('span', { class: 'number' }, bytes(all[i]))])));
}
/* The column that is told by the tick of the peak. */
function peakColumn(tier) {
  const found = tier.columns.findIndex((column) => column[0] === tier.peak_tick);
  return found < 0 ? Math.floor(tier.peak_tick * tier.columns.length / account.op_count) : found;
}
/* What is not divided between two sheets of paper. */
function whole(...parts) { const box = el('div', { class: 'whole' }, ...parts); main.append(box); return box; }
function memoryPicture(name) {
  const tier = account.memory[name], peak = peakColumn(tier);
  const kinds = account.kinds.filter((kind, k) => tier.columns.some((c) => c[k + 1] > 0));
  const shownBudget = tier.budget_bytes !== null && tier.budget_bytes < 1.7 * tier.arena_bytes;
  const keys = [[stroke('peak'), 'peak']];
  if (shownBudget) keys.push([stroke('budget'), 'budget']);
  if (tier.overflow_bytes > 0) keys.push([stripes('bad'), 'above the budget']);
  const box = whole(el('h3', {}, name + ': ' + bytes(tier.arena_bytes) + (tier.budget_bytes === null ? '' : ' of ' + bytes(tier.budget_bytes))),
    legend(...kinds.map((kind) => [swatch(kind), kind + ' ' + bytes(tier.kind_bytes[kind])]), 'holes ' + bytes(tier.hole_bytes), ...keys));
  if (tier.arena_bytes < largestArena() / 8)
    box.append(el('p', { class: 'quiet' }, `This scale ends at ${bytes(tier.arena_bytes)}, the largest tier’s at ${bytes(largestArena())}.`));
  if (tier.overflow_bytes > 0)
    box.append(el('p', { class: 'bad' }, bytes(tier.overflow_bytes) + ' more than the budget: what stands above the dashed line does not fit.'));
  picture('Bytes by kind in the ' + name + ' tier over the ticks of a step; arrow keys move', (width) => {
    const left = 66, top = 18, height = heightOf(name, width < 500 ? 170 : 220), inner = width - left - 8, columns = tier.columns.length;
    const most = 1.04 * Math.max(tier.arena_bytes, shownBudget ? tier.budget_bytes : 0, 1);
    const y = (n) => top + height * (1 - n / most), x = (column) => left + inner * column / columns;
    const root = svg('svg', { viewBox: `0 0 ${width} ${top + height + 44}` });
    for (const value of byteSteps(most)) root.append(line(left, y(value), left + inner, y(value), 'grid'), text(left - 6, y(value) + 4, bytes(value), { 'text-anchor': 'end', class: 'small' }));
    const below = tier.columns.map(() => 0);
    for (const kind of kinds) {
      const k = account.kinds.indexOf(kind) + 1;
      let up = '', down = '';
      tier.columns.forEach((column, i) => {
        const low = y(below[i]).toFixed(1), high = y(below[i] + column[k]).toFixed(1);
        up += (i ? 'V' : `M${x(0).toFixed(1)} `) + high + 'H' + x(i + 1).toFixed(1);
        down = 'V' + low + 'H' + x(i).toFixed(1) + down;
        below[i] += column[k];
      });
      root.append(svg('path', { class: 'area', d: up + down + 'Z', fill: 'var(--' + kind + ')' }));
    }
    if (tier.overflow_bytes > 0) {
      let over = '';
      below.forEach((n, i) => {
        if (n > tier.budget_bytes) over += `M${x(i).toFixed(1)} ${y(n).toFixed(1)}H${x(i + 1).toFixed(1)}V${y(tier.budget_bytes).toFixed(1)}H${x(i).toFixed(1)}Z`;
      });
      root.append(svg('path', { class: 'over', d: over }));
    }
    if (shownBudget) root.append(line(left, y(tier.budget_bytes), left + inner, y(tier.budget_bytes), 'budget'), text(left + 4, y(tier.budget_bytes) + (y(tier.budget_bytes) > top + height - 18 ? -5 : 13), 'budget ' + bytes(tier.budget_bytes), { class: 'small over-area' }));
    const px = x(peak + .5);
    root.append(line(px, top - 2, px, top + height, 'peak'), text(clamp(px, left + 60, width - 70), top - 6, 'peak ' + bytes(tier.live_peak_bytes), { 'text-anchor': 'middle' }),
      line(left, top + height, left + inner, top + height, 'axis'), tickAxis(left, inner, top + height + 4));
    const cursor = line(0, top, 0, top + height, 'cursor');
    root.append(cursor);
    let now = 0;
    const show = (column) => {
      now = clamp(column, 0, columns - 1);
      cursor.setAttribute('x1', x(now + .5));
      cursor.setAttribute('x2', x(now + .5));
      const values = tier.columns[now], all = values.slice(1).reduce((a, b) => a + b, 0);
      const section = account.sections.find((s) => values[0] < s[0] + s[1]);
      const parts = [bold((now === peak ? 'the peak: ' : '') + 'tick ' + count(values[0]) + ', ' + tier.ops[now] + (section && section[2] > 1 ? ' (× ' + section[2] + ')' : '') + ': ' + bytes(all)), ' '];
      kinds.forEach((kind) => { const n = values[account.kinds.indexOf(kind) + 1]; if (n) parts.push(el('span', { class: 'item' }, swatch(kind), kind + ' ' + bytes(n)), ' '); });
      return parts;
    };
    return { svg: root, most: columns - 1, now: () => now, start: () => show(peak),
      at: (pointer) => show(Math.abs(pointer - px) < 5 ? peak : Math.floor((pointer - left) / inner * columns)), move: (dx) => show(now + dx) };
  }, box);
}

function mapPicture(name) {
  const tier = account.memory[name];
  const over = tier.overflow_bytes > 0;
  const kinds = account.kinds.filter((kind, k) => tier.regions.some((r) => r[0] === k));
  const box = whole(el('h3', {}, name + ': ' + bytes(tier.arena_bytes)),
    legend(...kinds.map((kind) => [swatch(kind), kind]), [stripes('line'), 'hole'], ...(over ? [[stripes('bad'), 'above the budget'], [stroke('budget'), 'budget']] : []), [stroke('peak'), 'peak']));
  picture('Address map of the ' + name + ' tier: offsets upwards, ticks to the right; arrow keys move', (width) => {
    const left = 66, top = 8, height = heightOf(name, width < 500 ? 220 : 300), inner = width - left - 8;
    const most = Math.max(tier.arena_bytes, 1), y = (n) => top + height * (1 - n / most), x = (tick) => left + inner * Math.min(tick, account.op_count) / account.op_count;
    const root = svg('svg', { viewBox: `0 0 ${width} ${top + height + 44}` });
    root.append(svg('rect', { class: 'hatch', x: left, y: top, width: inner, height }));
    for (const value of byteSteps(most)) root.append(text(left - 6, y(value) + 4, bytes(value), { 'text-anchor': 'end', class: 'small' }));
    const paths = account.kinds.map(() => '');
    const piece = (r, from, to) => { /* neighbours are told apart where there is room for a gap */
      const low = y(r[1]), high = y(r[1] + r[2]), gap = low - high > 3 ? .8 : 0;
      paths[r[0]] += `M${x(from).toFixed(1)} ${low.toFixed(2)}H${x(to).toFixed(1)}V${(high + gap).toFixed(2)}H${x(from).toFixed(1)}Z`;
    };
    for (const r of tier.regions) {
      if (r[3] <= r[4]) piece(r, r[3], r[4] + 1);
      else { piece(r, r[3], account.op_count); piece(r, 0, r[4] + 1); }
    }
    paths.forEach((d, k) => { if (d) root.append(svg('path', { d, fill: 'var(--' + account.kinds[k] + ')' })); });
    if (over) root.append(svg('rect', { class: 'over', opacity: .55, x: left, y: top, width: inner, height: Math.max(0, y(tier.budget_bytes) - top) }), line(left, y(tier.budget_bytes), left + inner, y(tier.budget_bytes), 'budget'));
    root.append(line(x(tier.peak_tick + .5), top, x(tier.peak_tick + .5), top + height, 'peak'), tickAxis(left, inner, top + height + 4));
    const frameBox = svg('rect', { class: 'box' });
    root.append(frameBox);
    let tick = tier.peak_tick, offset = 0;
    const holds = (r) => r[3] <= r[4] ? tick >= r[3] && tick <= r[4] : tick >= r[3] || tick <= r[4];
    const alive = () => tier.regions.filter(holds).sort((a, b) => a[1] - b[1]);
    const frame = (r, from, to) => add(frameBox, { x: x(from), y: y(r[1] + r[2]), width: Math.max(1, x(to) - x(from)), height: Math.max(1, y(r[1]) - y(r[1] + r[2])) }, []);
    const show = () => {
      const list = alive(), found = list.find((r) => offset >= r[1] && offset < r[1] + r[2]);
      if (!found) {
        const low = list.filter((r) => r[1] + r[2] <= offset).pop(), high = list.find((r) => r[1] > offset);
        const from = low ? low[1] + low[2] : 0, to = high ? high[1] : tier.arena_bytes;
        frame([0, from, to - from], tick, tick + 1);
        return [bold('hole of ' + bytes(to - from)), ` from ${bytes(from)} at tick ${count(tick)}` + (tier.regions.length < tier.all_regions ? ' (or something small that is not drawn)' : '')];
      }
      frame(found, found[3] <= found[4] ? found[3] : tick, found[3] <= found[4] ? found[4] + 1 : tick + 1);
      const life = found[5] ? 'permanent' : found[3] <= found[4] ? `ticks ${count(found[3])} to ${count(found[4])}` : `from tick ${count(found[3])} into the next step, to ${count(found[4])}`;
      return [bold(found[7] + (found[6] > 1 ? ` and ${found[6] - 1} more` : '') + ': ' + bytes(found[2])), ` ${account.kinds[found[0]]}, at ${bytes(found[1])}, ${life}`];
    };
    const step = (dy) => {
      const list = alive(), i = list.findIndex((r) => offset < r[1] + r[2]);
      const next = list[clamp((i < 0 ? list.length : i) + dy, 0, list.length - 1)];
      if (next) offset = next[1];
    };
    return { svg: root, most: account.op_count - 1, now: () => tick, start: show,
      at: (px, py) => { tick = clamp(Math.floor((px - left) / inner * account.op_count), 0, account.op_count - 1); offset = clamp((1 - (py - top) / height) * most, 0, most - 1); return show(); },
      move: (dx, dy) => { tick = clamp(tick + dx * Math.max(1, Math.round(account.op_count / 360)), 0, account.op_count - 1); if (dy) step(-dy); return show(); } };
  }, box);
}

const PLACES = ['nowhere', 'device', 'host', 'device and host', 'disk', 'device and disk', 'host and disk', 'device, host and disk'];
function placeColor(mask) { return ['grid', 'at-device', 'at-host', 'at-both', 'at-disk', 'at-both', 'at-host', 'at-both'][mask]; }
function residencyPicture() {
  const groups = account.residency;
  const rows = groups.flatMap((g) => g.rows.map((runs, i) => ({ group: g.group, first: i * g.chunks_a_row, last: Math.min((i + 1) * g.chunks_a_row, account.chunk_count) - 1, runs, cells: runs.reduce((all, n, j) => j % 2 ? all.concat(Array(n).fill(runs[j - 1])) : all, []) })));
  if (rows.length === 0) return;
  const used = [...new Set(rows.flatMap((r) => r.cells))].sort();
  main.append(el('ul', { class: 'legend' }, ...used.map((mask) => el('li', {}, swatch(placeColor(mask)), PLACES[mask]))));
  picture('Where each chunk is over the ticks of a step; arrow keys move', (width) => {
    const left = 76, inner = width - left - 8, columns = account.phases.length, size = clamp(Math.floor(360 / rows.length), 3, 16);
    const tops = [];
    let y = 4;
    rows.forEach((row, i) => { if (i && row.group !== rows[i - 1].group) y += 8; tops.push(y); y += size; });
    const root = svg('svg', { viewBox: `0 0 ${width} ${y + 44}` });
    const paths = {};
    rows.forEach((row, i) => {
      let column = 0;
      for (let j = 0; j < row.runs.length; j += 2) {
        const x = left + inner * column / columns, w = inner * row.runs[j + 1] / columns;
        paths[placeColor(row.runs[j])] = (paths[placeColor(row.runs[j])] || '') + `M${x.toFixed(1)} ${tops[i]}h${w.toFixed(1)}v${size - (size > 6 ? 1 : 0)}h${(-w).toFixed(1)}z`;
        column += row.runs[j + 1];
      }
      if (i === 0 || row.group !== rows[i - 1].group) root.append(text(left - 6, tops[i] + 10, row.group, { 'text-anchor': 'end', class: 'small' }));
    });
    for (const color in paths) root.append(svg('path', { d: paths[color], fill: 'var(--' + color + ')' }));
    root.append(tickAxis(left, inner, y + 4));
    const box = svg('rect', { class: 'box', width: Math.max(3, inner / columns), height: size });
    root.append(box);
    let row = 0, column = 0;
    const show = () => {
      row = clamp(row, 0, rows.length - 1);
      column = clamp(column, 0, columns - 1);
      add(box, { x: left + inner * column / columns, y: tops[row] }, []);
      const it = rows[row], name = it.first === it.last ? 'chunk ' + it.first : `chunks ${it.first} to ${it.last}`;
      return [bold(it.group + ' ' + name), ` at tick ${count(Math.floor(column * account.op_count / columns))}: ${PLACES[it.cells[column]]}`];
    };
    return { svg: root, most: columns - 1, now: () => column, start: show,
      at: (px, py) => { column = Math.floor((px - left) / inner * columns); row = tops.findIndex((t) => py < t + size); if (row < 0) row = rows.length - 1; return show(); },
      move: (dx, dy) => { column += dx; row += dy; return show(); } };
  });
}

const LANE_COLORS = { compute: 'param', h2d: 'grad', d2h: 'activation', host: 'master', read: 'moment2', write: 'workspace', comm: 'moment1', input: 'staging' };
/* Times stand in the page as whole nanoseconds. */
function inSeconds(gantt) {
  const lanes = {};
  for (const name in gantt.lanes) lanes[name] = gantt.lanes[name].map((b) => [b[0] * 1e-9, b[1] * 1e-9, b[2], b[3], b[4]]);
  return { begin: gantt.begin * 1e-9, end: gantt.end * 1e-9, cuts: gantt.cuts.map((c) => [c[0] * 1e-9, c[1] * 1e-9, c[2]]), lanes };
}
/* `gantt`: {begin, end, cuts: [[from, to, repetitions]], lanes: {name: [[start, end, runs, name, cause]]}} */
function lanePicture(label, inNanoseconds) {
  const gantt = inSeconds(inNanoseconds);
  const names = account.lanes.filter((name) => gantt.lanes[name] && gantt.lanes[name].length);
  if (names.length === 0) return;
  const shown = gantt.end - gantt.begin - gantt.cuts.reduce((sum, cut) => sum + cut[1] - cut[0], 0);
  if (gantt.cuts.length) main.append(legend([stripes('line'), 'repetitions that are left out']));
  picture(label + '; left and right move in time, up and down between lanes', (width) => {
    const left = 62, top = 6, row = 26, inner = width - left - 8, scale = (inner - GAP * gantt.cuts.length) / shown;
    const x = (t) => {
      let at = clamp(t, gantt.begin, gantt.end) - gantt.begin, gaps = 0;
      for (const [from, to] of gantt.cuts) {
        if (t <= from) break;
        gaps += t >= to ? 1 : (t - from) / (to - from);
        at -= Math.min(t, to) - from;
      }
      return left + scale * at + GAP * gaps;
    };
    const height = row * names.length, root = svg('svg', { viewBox: `0 0 ${width} ${top + height + 26}` });
    names.forEach((name, i) => {
      const y = top + row * i;
      root.append(text(left - 6, y + 16, name, { 'text-anchor': 'end', class: 'small' }), line(left, y + row - 3, left + inner, y + row - 3, 'grid'));
      let d = '';
      for (const b of gantt.lanes[name]) {
        if (b[1] < gantt.begin || b[0] > gantt.end) continue;
        const from = x(b[0]), w = Math.max(.6, x(b[1]) - from);
        d += `M${from.toFixed(1)} ${y + 3}h${w.toFixed(1)}v${row - 8}h${(-w).toFixed(1)}z`;
      }
      root.append(svg('path', { d, fill: 'var(--' + LANE_COLORS[name] + ')' }));
    });
    for (const [from, to, repetitions] of gantt.cuts) {
      root.append(svg('rect', { class: 'hatch', x: x(from) + 1, y: top, width: GAP - 2, height }), text(x(from) + GAP / 2, top + height + 20, '+ ' + count(repetitions) + ' more', { 'text-anchor': 'middle', class: 'small' }));
      add(root, {}, [line(x(from) + 1, top, x(from) + 1, top + height, 'axis'), line(x(to) - 1, top, x(to) - 1, top + height, 'axis')]);
    }
    root.append(text(left, top + height + 20, '0', { class: 'small' }), text(left + inner, top + height + 20, seconds(gantt.end), { 'text-anchor': 'end', class: 'small' }));
    const box = svg('rect', { class: 'box', height: row - 6 });
    root.append(box);
    let lane = 0, index = 0;
    const list = () => gantt.lanes[names[lane]];
    const show = () => {
      index = clamp(index, 0, list().length - 1);
      const b = list()[index], wait = index > 0 ? b[0] - list()[index - 1][1] : 0;
      add(box, { x: x(b[0]) - 1, y: top + row * lane + 2, width: Math.max(2, x(b[1]) - x(b[0]) + 2) }, []);
      return [bold(names[lane] + ': ' + b[3] + (b[2] > 1 ? ` and ${b[2] - 1} more` : '')), ` from ${seconds(Math.max(0, b[0]))}${b[0] < 0 ? ' (in the step before)' : ''}, for ${seconds(b[1] - b[0])}`,
        wait > 1e-9 && b[4] !== null ? `; waited ${seconds(wait)} before, for ${b[4]}` : ''];
    };
    const near = (t) => { let best = 0; list().forEach((b, i) => { if (b[0] <= t) best = i; }); return best; };
    const timeAt = (px) => { let low = gantt.begin, high = gantt.end; for (let i = 0; i < 40; i++) { const m = (low + high) / 2; if (x(m) < px) low = m; else high = m; } return low; };
    return { svg: root, most: Math.max(...names.map((n) => gantt.lanes[n].length)) - 1, now: () => index, start: show,
      at: (px, py) => { lane = clamp(Math.floor((py - top) / row), 0, names.length - 1); index = near(timeAt(px)); return show(); },
      move: (dx, dy) => { if (dy) { const t = list()[index][0]; lane = clamp(lane + dy, 0, names.length - 1); index = near(t); } index += dx; return show(); } };
  });
}

/* ---- tables ---- */

function peakTables(name) {
  const tier = account.memory[name];
  const rest = tier.classes.reduce((sum, c) => sum - c[3], tier.live_peak_bytes);
  const rows = tier.classes.map((c) => [el('span', {}, swatch(c[1]), c[0]), c[1], count(c[2]), bytes(c[3]), withBar(percent(c[3], tier.arena_bytes), c[3] / tier.arena_bytes)]);
  if (rest > 0) rows.push([`${tier.all_classes - tier.classes.length} other names`, '', '', bytes(rest), percent(rest, tier.arena_bytes)]);
  rows.push([`holes (${tier.all_holes})`, '', '', bytes(tier.hole_bytes), percent(tier.hole_bytes, tier.arena_bytes)]);
  rows.push([bold('the arena'), '', '', bold(bytes(tier.arena_bytes)), '']);
  main.append(el('h3', {}, `${name}, at tick ${count(tier.peak_tick)} (${tier.peak_op})`),
    table('What the peak of the ' + name + ' is made of', [['objects', 'text'], ['kind', 'text'], ['number'], ['bytes'], ['of the arena']], rows));
  const single = tier.objects.map((o) => [o.name, o.kind, bytes(o.bytes), bytes(o.offset), o.permanent ? 'permanent' : o.first_tick <= o.last_tick ? `${count(o.first_tick)} – ${count(o.last_tick)}` : `${count(o.first_tick)} – next ${count(o.last_tick)}`]);
  main.append(el('details', {}, el('summary', {}, `The ${tier.objects.length} largest of ${count(tier.all_objects)} objects, one by one`),
    table('The largest objects of the ' + name, [['object', 'text'], ['kind', 'text'], ['bytes'], ['at'], ['ticks']], single)));
  if (tier.holes.length)
    main.append(el('details', {}, el('summary', {}, `The ${tier.holes.length} largest of ${tier.all_holes} holes`),
      table('The largest holes of the ' + name, [['from'], ['bytes']], tier.holes.map((h) => [bytes(h[0]), bytes(h[1])]))));
}
function hasLanes(measured) { return measured && Object.values(measured.lanes).some((lane) => lane.busy_seconds > 0); }
function laneTable(whole) {
  const measured = hasLanes(whole) ? whole : null;
  const time = account.time, step = time.step_seconds;
  const rows = account.lanes.filter((name) => time.lanes[name].commands > 0).map((name) => {
    const lane = time.lanes[name], waits = Object.entries(lane.wait_seconds).filter((w) => w[1] > 0).sort((a, b) => b[1] - a[1]);
    const row = [name, count(lane.commands), lane.moved_bytes ? bytes(lane.moved_bytes) : '–', seconds(lane.busy_seconds), withBar(percent(lane.busy_seconds, step), lane.busy_seconds / step)];
    if (measured) row.push(seconds(measured.lanes[name].busy_seconds));
    row.push(waits.slice(0, 3).map((w) => `${w[0]} ${seconds(w[1])}`).join(', ') || '–');
    return row;
  });
  const columns = [['lane'], ['commands'], ['moved'], ['busy'], ['of the step']];
  if (measured) columns.push(['measured']);
  columns.push(['waits for', 'text']);
  main.append(table('Lanes', columns, rows));
}
/* What the compute lane waited beside the longest stalls. */
function otherStalls(measured) {
  const all = Object.values(measured.lanes.compute.wait_seconds).reduce((a, b) => a + b, 0);
  return Math.max(0, measured.stalls.reduce((left, s) => left - s.seconds, all));
}
function stallTable(stalls, other, step) {
  if (stalls.length === 0) { main.append(el('p', {}, 'The compute lane waits for nothing.')); return; }
  const rows = stalls.map((s) => [s.command, s.waited_for || '–', s.cause, seconds(s.seconds), percent(s.seconds, step)]);
  if (other > 0) rows.push(['all others', '', '', seconds(other), percent(other, step)]);
  main.append(table('The longest stalls', [['the compute lane, before', 'text'], ['waited for', 'text'], ['in the end', 'text'], ['time'], ['of the step']], rows));
}
function opTable(whole) {
  const measured = whole && Object.keys(whole.op_seconds).length ? whole : null;
  const time = account.time, all = time.ops.reduce((sum, op) => sum + op.seconds, 0);
  const columns = [['op'], ['number'], ['time'], ['of all'], ['FLOPs'], ['traffic'], ['of the roof']];
  if (measured) columns.push(['measured']);
  main.append(table('Time by kind of op', columns, time.ops.map((op) => {
    const row = [op.op, count(op.count), seconds(op.seconds), withBar(percent(op.seconds, all), op.seconds / all), op.flops ? amount(op.flops, 'FLOP') : '–', bytes(op.traffic_bytes), percent(op.roof_seconds, op.seconds)];
    if (measured) row.push(seconds(measured.op_seconds[op.op] || 0));
    return row;
  })));
}

/* ---- the page ---- */

function tile(name, value, note) { return el('li', {}, el('span', {}, name), el('b', {}, value), el('span', {}, note || '')); }
function summary(tiers) {
  const time = account.time, measured = data.measured;
  const step = measured ? measured.step_seconds : time.step_seconds;
  main.append(el('h1', {}, data.title), el('p', { class: 'quiet' }, data.subtitle));
  if (data.refusal) main.append(el('div', { class: 'refusal' }, el('b', {}, 'It does not fit: '), data.refusal.replace(/^it does not fit: /, '')));
  main.append(el('ul', { class: 'tiles' },
    tile(measured ? 'step, measured' : 'step, predicted', seconds(step), measured ? 'predicted: ' + seconds(time.step_seconds) : data.is_measured ? data.machine : 'a guess: see below'),
    tile('tokens a second', amount(account.tokens / step, ''), count(account.tokens) + ' tokens a step'),
    tile('bound by', time.bound_by, 'predicted: ' + seconds(time.resource_seconds[time.bound_by]) + ' of the step'),
    tile('model FLOPs used', percent(account.model_flops / step, time.flop_roof), amount(account.model_flops, 'FLOP') + ' a step'),
    ...tiers.map((name) => { const t = account.memory[name]; return tile(name, bytes(t.arena_bytes), t.budget_bytes === null ? 'no limit' : 'of ' + bytes(t.budget_bytes) + (t.overflow_bytes ? ': ' + bytes(t.overflow_bytes) + ' too much' : '')); })));
}
/* Planned and measured, in one place. */
function besidePlan(tiers, measured) {
  const time = account.time, step = measured.step_seconds;
  const rows = [['a step', seconds(time.step_seconds), seconds(step), (step / time.step_seconds).toFixed(2)],
    ['tokens a second', amount(account.tokens / time.step_seconds, ''), amount(account.tokens / step, ''), (time.step_seconds / step).toFixed(2)],
    ...tiers.map((name) => { const planned = account.memory[name].arena_bytes, found = measured.peak_bytes[name]; return ['peak of the ' + name, bytes(planned), bytes(found), (found / planned).toFixed(2)]; })];
  heading('Planned and measured', `Measured: the mean of ${count(measured.steps)} steps. Times are predicted by ${data.basis}.`);
  main.append(table('Planned and measured', [['what', 'text'], ['planned'], ['measured'], ['ratio']], rows));
  if (measured.resident_bytes) main.append(el('p', {}, 'Resident set of the process: ' + bytes(measured.resident_bytes) + '.'));
}
/* What each rank did: its compute lane, what that waited for, and its exchanges. */
function rankName(rank, i) {
  const all = data.measured.ranks.each, parts = [];
  for (const [key, name] of [['stage', 'stage'], ['data_rank', 'data rank'], ['tensor_rank', 'tensor rank']])
    if (all.some((other) => other[key] !== 0)) parts.push(`${name} ${rank[key]}`);
  return `rank ${i} (${parts.join(', ')})`;
}
function rankPicture(ranks) {
  const longest = Math.max(...ranks.map((rank) => rank.step_seconds));
  const causes = account.lanes.filter((name) => ranks.some((rank) => rank.wait_seconds[name] > 0));
  const parts = (rank) => [['computes', 'compute', rank.busy_seconds.compute], ...causes.map((name) => ['waits for ' + (name === 'comm' ? 'other ranks' : name), name, rank.wait_seconds[name]])];
  main.append(legend([swatch(LANE_COLORS.compute), 'computes'], ...causes.map((name) => [swatch(LANE_COLORS[name]), 'waits for ' + (name === 'comm' ? 'other ranks' : name)])));
  picture('The compute lane of each rank over a step; up and down move between ranks', (width) => {
    const left = 30, top = 4, inner = width - left - 8, row = clamp(Math.floor(480 / ranks.length), 6, 24);
    const root = svg('svg', { viewBox: `0 0 ${width} ${top + row * ranks.length + 22}` });
    ranks.forEach((rank, i) => {
      let x = left;
      for (const [, name, time] of parts(rank)) {
        const w = inner * time / longest;
        root.append(svg('rect', { x: x.toFixed(1), y: top + row * i + 1, width: w.toFixed(1), height: row - 2, fill: 'var(--' + LANE_COLORS[name] + ')' }));
        x += w;
      }
      if (row > 10 || i % 4 === 0) root.append(text(left - 6, top + row * i + row / 2 + 4, String(i), { 'text-anchor': 'end', class: 'small' }));
    });
    root.append(text(left, top + row * ranks.length + 16, '0', { class: 'small' }), text(left + inner, top + row * ranks.length + 16, seconds(longest), { 'text-anchor': 'end', class: 'small' }));
    const box = svg('rect', { class: 'box', x: left - 1, width: inner + 2, height: row });
    root.append(box);
    let now = 0;
    const show = (i) => {
      now = clamp(i, 0, ranks.length - 1);
      add(box, { y: top + row * now }, []);
      return [bold(rankName(ranks[now], now)), ': ' + parts(ranks[now]).map(([words, , time]) => `${words} ${seconds(time)}`).join(', ')];
    };
    return { svg: root, most: ranks.length - 1, now: () => now, start: () => show(data.measured.ranks.slowest), at: (px, py) => show(Math.floor((py - top) / row)), move: (dx, dy) => show(now + dx + dy) };
  });
}
function rankTables(tiers, ranks) {
  const slowest = data.measured.ranks.slowest, sent = (rank) => Object.values(rank.sent_bytes).reduce((a, b) => a + b, 0);
  const lanes = account.lanes.filter((name) => ranks.some((rank) => rank.busy_seconds[name] > 0));
  main.append(table('Lanes of each rank', [['rank', 'text'], ...lanes.map((name) => [name]), ['waits for ranks'], ['sent a step']],
    ranks.map((rank, i) => [i === slowest ? bold(rankName(rank, i)) : rankName(rank, i), ...lanes.map((name) => seconds(rank.busy_seconds[name])), withBar(seconds(rank.wait_seconds.comm), rank.wait_seconds.comm / rank.step_seconds), bytes(sent(rank))])));
  const used = tiers.concat(account.tiers.filter((name) => !tiers.includes(name) && ranks.some((rank) => rank.peak_bytes[name][0] > 0)));
  main.append(table('Memory of each rank', [['rank', 'text'], ...used.flatMap((name) => [[name + ', planned'], ['measured']])],
    ranks.map((rank, i) => [rankName(rank, i), ...used.flatMap((name) => rank.peak_bytes[name].map(bytes))])));
}
function theRanks(tiers) {
  const ranks = data.measured.ranks.each, slowest = data.measured.ranks.slowest, it = ranks[slowest];
  heading('The ranks', `The slowest is ${rankName(it, slowest)}: it waits for others for ${percent(it.wait_seconds.comm, it.step_seconds)} of the step, the least of all ranks. All other pictures are of rank 0.`);
  rankPicture(ranks);
  rankTables(tiers, ranks);
}
function theRun() {
  const run = runs[0];
  heading('The run', `Steps ${count(run.first_step)} to ${count(run.last_step)}` + (run.reason ? '' : ', and it goes on') + (run.reason === 'signal' ? '; it was stopped by a signal' : run.reason === 'patience' ? '; --patience ended it' : run.reason === 'error' ? '; it failed' : '') + '.');
  curves();
  samples();
}
function build() {
  const tiers = account.tiers.filter((name) => account.memory[name].arena_bytes > 0), time = account.time, measured = data.measured;
  document.body.prepend(patterns());
  summary(tiers);
  main.append(el('p', { class: 'note keys' }, 'Point at a picture, or focus it and use the arrow keys: the line below it says what stands there.'));
  if (runs.length) theRun();
  if (data.measured) besidePlan(tiers, data.measured);
  if (data.measured && data.measured.ranks) theRanks(tiers);
  heading('Why the plan is as it is', 'Times in these lines are predicted.');
  main.append(el('ul', { class: 'explain' }, ...data.explain.map((words) => el('li', {}, words))));
  heading('Memory over a step', 'Bytes alive at each tick of the step, by kind. A tick is the place of an op in the program; a section that is repeated for each micro-batch is drawn once, with how often it runs below it.');
  scaleBars(tiers);
  main.append(phaseLegend());
  tiers.forEach(memoryPicture);
  heading('What the peak is made of', 'Objects alive at the tick of each tier’s peak, those of one name together. Kinds and holes add up to the arena.');
  tiers.forEach(peakTables);
  heading('The lanes', 'One step as it was simulated. Lanes work beside each other; of a loop the first two and the last two repetitions are drawn.');
  lanePicture('The lanes over one predicted step', time.gantt);
  if (measured && measured.gantt) { main.append(el('h3', {}, 'Measured'), el('p', { class: 'quiet' }, 'The last of the measured steps, as it ran: not their mean.')); lanePicture('The lanes over one measured step', measured.gantt); }
  laneTable(measured);
  main.append(el('h3', {}, measured && measured.stalls ? 'The longest measured stalls' : 'The longest stalls'));
  if (measured && measured.stalls) stallTable(measured.stalls, otherStalls(measured), measured.step_seconds);
  else stallTable(time.stalls, time.other_stall_seconds, time.step_seconds);
  main.append(el('h3', {}, 'What each resource needs alone'));
  main.append(table('Resources', [['resource'], ['seconds'], ['of the step']], Object.entries(time.resource_seconds).filter((r) => r[1] > 0).map((r) => [r[0] + (r[0] === time.bound_by ? ' (binds)' : ''), seconds(r[1]), withBar(percent(r[1], time.step_seconds), r[1] / time.step_seconds)])));
  main.append(el('h3', {}, 'Time by kind of op'));
  opTable(measured);
  heading('Where the chunks are', 'Each row is a chunk of one group (or a few neighbours), each colour the tiers that hold it; its home always does.');
  residencyPicture();
  heading('Address maps', 'What lies where in each arena.');
  tiers.forEach(mapPicture);
  heading('By rule of thumb', 'What the usual formulas say, beside the exact plan.');
  main.append(table('Rules of thumb', [['rule', 'text'], ['it says'], ['the plan']], data.thumb.map((t) => [t[0], t[3] === 'bytes' ? bytes(t[1]) : count(t[1]), t[3] === 'bytes' ? bytes(t[2]) : count(t[2])])));
  main.append(el('footer', {}, data.version));
  drawPictures();
}
build();
