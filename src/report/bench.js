/* Draws the page of a measured machine. Each row is a bar with its spread, beside its roof where there is one; the
 * numbers stand beside the bars, so that nothing is said by a picture alone. */
const bench = data.bench;
const groups = [
  ['gemm', 'Matrix products', 'Shares are of the roof: multiply-adds from registers, or on a GPU the largest square product.'],
  ['adamw', 'AdamW', 'Shares are of a loop that reads four arrays and writes three, or on a GPU of a copy within it.'],
  ['host_adamw', 'AdamW on the host', 'Shares are of the same loop on the host.'],
  ['op', 'Other ops of a step', 'On data as warm as a step leaves it; so there is no roof.'],
  ['product', 'Products of known models', 'Shares are of multiply-adds from registers alone, by the instruction that computes such products.'],
  ['attention', 'Attention of known models', 'Shares are of the same.'],
  ['memory', 'Host memory', 'All workers. The rows named after STREAM count bytes as that benchmark does.'],
  ['copy', 'Copies', ''],
  ['disk', 'Disk', 'Shares are of threads that read and write past the page cache without a store.'],
  ['numa', 'NUMA nodes', 'Cores of one node read memory of another.'],
  ['comm', 'Collectives', ''],
];

function rate(n, unit) {
  for (const [size, prefix] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M']]) if (n >= size) return (n / size).toFixed(1) + ' ' + prefix + unit;
  return n.toFixed(0) + ' ' + unit;
}
function spread(row) { return '± ' + (50 * (row.p90 - row.p10) / row.median).toFixed(1) + ' %'; }

/* A bar of the median, a line from p10 to p90, a stroke at the roof and a dashed one at the old median. */
function bar(row, most) {
  const width = 260, at = (n) => Math.min(width - 1, width * n / most).toFixed(1);
  const picture = svg('svg', { class: 'bench', viewBox: `0 0 ${width} 16`, preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  picture.append(svg('rect', { x: 0, y: 3, width: at(row.median), height: 10, fill: 'var(--param)' }));
  if (row.roof) picture.append(svg('line', { x1: at(row.roof), x2: at(row.roof), y1: 0, y2: 16, stroke: 'var(--ink)', 'stroke-width': 2 }));
  if (row.old_median) picture.append(svg('line', { x1: at(row.old_median), x2: at(row.old_median), y1: 1, y2: 15, stroke: 'var(--bad)', 'stroke-width': 2, 'stroke-dasharray': '3 2' }));
  picture.append(svg('line', { x1: at(row.p10), x2: at(row.p90), y1: 8, y2: 8, stroke: 'var(--grad)', 'stroke-width': 3 }));
  picture.append(svg('title', {}, `${row.name}: ${rate(row.p10, row.unit)} to ${rate(row.p90, row.unit)}`));
  return picture;
}
/* Rows of one unit share a scale. */
function mostOf(rows, unit) {
  return Math.max(...rows.filter((row) => row.unit === unit).map((row) => Math.max(row.p90, row.roof || 0, row.old_median || 0)));
}
function verdict(row) {
  if (!row.old_median) return '–';
  return el('span', { class: row.verdict === 'worse' ? 'bad' : null }, row.ratio.toFixed(2) + (row.verdict === 'same' ? '' : ', ' + row.verdict));
}
function groupTable(title, rows) {
  const has = { type: rows.some((row) => row.type), roof: rows.some((row) => row.roof), old: rows.some((row) => row.old_median) };
  const most = { 'B/s': mostOf(rows, 'B/s'), 'FLOP/s': mostOf(rows, 'FLOP/s') };
  const columns = [['what', 'text'], has.type ? ['type'] : null, ['bar', 'picture'], ['median'], ['spread'], has.roof ? ['of the roof'] : null, has.old ? ['to the old run'] : null];
  const body = rows.map((row) => [row.name, has.type ? row.type : null, bar(row, most[row.unit]), rate(row.median, row.unit), spread(row),
    has.roof ? row.roof ? row.percent_of_roof.toFixed(1) + ' %' : '–' : null, has.old ? verdict(row) : null]);
  const isThere = (cell) => cell !== null;
  return table(title, columns.filter(isThere), body.map((row) => row.filter((cell, i) => columns[i] !== null)));
}

function build() {
  main.append(el('h1', {}, (bench.gpu ? bench.gpu + ' beside ' : '') + bench.cpu));
  main.append(el('p', { class: 'quiet' }, `${bench.thread_count} workers of ${bench.core_count} cores of ${bench.host}; ${bench.kernels}; measured ${bench.date}.`));
  if (bench.against) {
    const changed = (verdict) => bench.rows.filter((row) => row.verdict === verdict).length;
    main.append(el('p', {}, `Held against ${bench.against}: the middle of all ratios is ${bench.against_ratio.toFixed(3)}; ${changed('worse')} rows are worse and ${changed('better')} better by more than both runs' spread.`));
  }
  main.append(el('p', { class: 'quiet' }, 'A bar is the median; the line in it goes from the slow end (p10) to the fast end (p90); the stroke is the roof; a dashed stroke is the old run.'));
  for (const [name, title, words] of groups) {
    const rows = bench.rows.filter((row) => row.group === name);
    if (rows.length === 0) continue;
    main.append(el('h2', {}, title));
    if (words) main.append(el('p', { class: 'quiet' }, words));
    main.append(groupTable(title, rows));
  }
  for (const [name, note] of [['Disk: ', bench.disk_note], ['fio: ', bench.fio_note], ['NUMA: ', bench.numa_note]])
    if (note) main.append(el('p', { class: 'quiet' }, name + note));
  main.append(el('footer', {}, data.version));
}
build();
