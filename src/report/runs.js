/* Draws the page of one run or of several, from what their logs hold. */
function lastOf(rows) { return rows && rows.length ? rows[rows.length - 1] : null; }
/* The least loss of an evaluation on what training does not see, and its step. */
function bestEval(run) {
  const rows = run.evals.validation || run.evals.eval || [];
  return rows.reduce((best, row) => !best || lowOf(row) < best[1] ? [isOne(row) ? row[0] : row[3], lowOf(row)] : best, null);
}
function meanRate(run) {
  const rows = run.curves.tokens_per_s || [];
  const steps = (row) => isOne(row) ? 1 : row[1];
  const all = rows.reduce((sum, row) => sum + steps(row), 0);
  return all ? rows.reduce((sum, row) => sum + steps(row) * meanOf(row), 0) / all : null;
}
function stateOf(run) {
  return { '': 'goes on, or was cut off', done: 'done', patience: 'ended by --patience', signal: 'stopped by a signal', error: 'failed' }[run.reason] || run.reason;
}
function runTable() {
  const rows = runs.map((run, i) => {
    const loss = lastOf(run.curves.loss), best = bestEval(run), rate = meanRate(run), peak = lastOf(run.curves.device_bytes);
    const curve = loss && smooth(run.curves.loss);
    return [el('span', {}, runSwatch(i), run.name), stateOf(run), run.steps ? count(run.last_step) : '–', run.tokens_total ? amount(run.tokens_total, '') : '–',
      curve ? lastOf(curve)[1].toFixed(4) : '–', best ? `${best[1].toFixed(4)} at ${count(best[0])}` : '–', rate ? amount(rate, '') : '–', peak ? bytes(highOf(peak)) : '–'];
  });
  main.append(table('Runs', [['run', 'text'], ['state', 'text'], ['last step'], ['tokens'], ['loss, smoothed'], ['best evaluation'], ['tokens a second'], ['device peak']], rows));
}
/* Options in which the runs differ. */
function differences() {
  const known = runs.filter((run) => run.config);
  if (known.length < 2) return;
  const show = (value) => value === undefined || value === null ? '–' : Array.isArray(value) ? value.join(' ') : typeof value === 'number' && !Number.isInteger(value) ? rateWords(value) : String(value);
  const own = ['log_json', 'log_csv', 'report', 'timeline', 'tensorboard', 'save', 'resume', 'overwrite', 'quiet'];
  const keys = [...new Set(known.flatMap((run) => Object.keys(run.config)))].filter((key) => !own.includes(key) && new Set(known.map((run) => show(run.config[key]))).size > 1);
  heading('Options that differ');
  if (keys.length === 0) { main.append(el('p', {}, 'None.')); return; }
  main.append(table('Options that differ', [['option', 'text'], ...runs.map((run) => [run.name])],
    keys.map((key) => ['--' + key.replaceAll('_', '-'), ...runs.map((run) => run.config ? show(run.config[key]) : '–')])));
}
function remarks() {
  const list = runs.flatMap((run) => {
    const parts = [];
    if (run.damaged) parts.push(`${count(run.damaged)} ${run.damaged === 1 ? 'line is' : 'lines are'} no record and left out, the first is line ${count(run.damaged_line)}`);
    if (run.repeated) parts.push(`${count(run.repeated)} records are replaced by later ones of their steps: the run went on from an earlier step`);
    if (run.nonfinite) parts.push(`${count(run.nonfinite)} steps have no finite loss`);
    if (run.skipped) parts.push(`${count(run.skipped)} updates were skipped`);
    return parts.map((words) => el('li', {}, bold(run.name + ': '), words + '.'));
  });
  if (list.length) main.append(el('ul', { class: 'explain' }, ...list));
}
document.body.prepend(patterns());
main.append(el('h1', {}, runs.length === 1 ? runs[0].name : `${runs.length} runs`));
runTable();
remarks();
main.append(el('p', { class: 'note keys' }, 'Point at a picture, or focus it and use the arrow keys: the line below it says what stands there.'));
curves();
samples();
differences();
main.append(el('footer', {}, data.version));
drawPictures();
