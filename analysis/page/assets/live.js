// While a study runs: ask the server whether it has changed, and if so, take the new numbers.
const PATIENCE = { seen: 2500, lost: 10000 };

function follow(data, take) {
  if (!data.live) return;
  let version = data.live;
  const say = (words, lost) => {
    if ($('live').textContent !== words) $('live').textContent = words;
    $('live').classList.toggle('lost', Boolean(lost));
  };
  const ask = async () => {
    let wait = PATIENCE.seen;
    try {
      if (!document.hidden) {
        const now = (await (await fetch('version', { cache: 'no-store' })).json()).version;
        if (now !== version) {
          const fresh = await (await fetch('data.json', { cache: 'no-store' })).json();
          version = fresh.live;
          take(fresh);
        }
        say(`Live, made ${$('made').textContent}`);
      }
    } catch {
      say('Not connected: the server has stopped. The numbers are the last it gave.', true);
      wait = PATIENCE.lost;
    }
    setTimeout(ask, wait);
  };
  setTimeout(ask, PATIENCE.seen);
  say('Live');
}
