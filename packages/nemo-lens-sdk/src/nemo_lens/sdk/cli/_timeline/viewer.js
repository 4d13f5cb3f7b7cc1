// Runs in Perfetto's page. Perfetto sorts processes by how many slices they have, whatever the trace says: this puts
// them in the order of their numbers, which is the order of ranks, and unfolds the first ones.
(async () => {
  const UNFOLDED = 10;
  const loaded = () => window.app?.trace && !window.app.isLoadingTrace;
  while (!loaded()) await new Promise((resolve) => setTimeout(resolve, 50));
  const {engine, workspace} = window.app.trace;

  const number = new Map();
  const found = await engine.query('SELECT upid, pid FROM process');
  for (const row = found.iter({}); row.valid(); row.next()) {
    number.set(`/process_${row.get('upid')}`, Number(row.get('pid')));
  }
  const processes = workspace.children.filter((track) => number.has(track.uri));
  processes.sort((one, other) => number.get(one.uri) - number.get(other.uri));
  for (const track of processes) workspace.addChildLast(track);
  for (const track of processes.slice(0, UNFOLDED)) track.expand();
  window.raf.scheduleFullRedraw();
})().finally(() => { window.inRankOrder = true; });
