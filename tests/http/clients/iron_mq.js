// The unmodified Node client of IronMQ, against the broker at port PORT and the endpoint ENDPOINT.
const assert = require('node:assert');
const { Client } = require('iron_mq');

const of = (queue_name) =>
  new Client({
    scheme: 'http',
    host: '127.0.0.1',
    port: Number(process.env.PORT),
    project_id: 'node',
    token: 'any',
    queue_name,
  });
const mq = of('node-queue');

// Each call once: the client calls back a second time with the result of the callback for some.
const call = (method, ...given) => callOf(mq, method, ...given);
const callOf = (client, method, ...given) =>
  new Promise((resolve, reject) => {
    let first = true;
    client[method](...given, (error, body) => {
      if (!first) return;
      first = false;
      error ? reject(new Error(`${method}: ${error} ${JSON.stringify(body)}`)) : resolve(body);
    });
  });

async function main() {
  // The client hides the text of an error here.
  await assert.rejects(call('info'), /Unknown error|Queue not found/);
  const ids = await call('post', ['one', { body: 'two' }]);
  assert.strictEqual(ids.length, 2);
  assert.strictEqual((await call('info')).size, 2);
  const first = await call('reserve', { timeout: 60 });
  assert.deepStrictEqual([first.id, first.body, first.reserved_count], [ids[0], 'one', 1]);
  assert.strictEqual((await call('peek', {})).body, 'two');
  const touched = await call('msg_touch', first.id, first.reservation_id, { timeout: 90 });
  await call('msg_release', first.id, touched.reservation_id, {});
  const both = await call('get_n', { n: 10 });
  assert.deepStrictEqual(both.map((message) => message.body), ['one', 'two']);
  await call('del', both[0].id, { reservation_id: both[0].reservation_id });
  await assert.rejects(call('del', both[1].id, { reservation_id: '1' }), /timed out/);
  await call('del_multiple', { reservation_ids: both.slice(1) });
  assert.deepStrictEqual(await call('get_n', { wait: 1 }), []);
  await call('post', 'x');
  await call('clear');
  assert.strictEqual((await call('info')).size, 0);
  await call('del_queue');

  const mortal = of('node-mortal');
  await callOf(mortal, 'create_queue', 'node-mortal', {
    dead_letter: { queue_name: 'node-dead', max_reservations: 1 },
    alerts: [{ type: 'fixed', direction: 'asc', trigger: 1, queue: 'node-alerts' }],
  });
  await callOf(of('node-alerts'), 'create_queue', 'node-alerts', {});
  await callOf(mortal, 'post', 'm');
  const [alert] = await callOf(of('node-alerts'), 'reserve', { n: 5, wait: 20 }).then((got) => [got].flat());
  assert.strictEqual(JSON.parse(alert.body).source_queue, 'node-mortal');
  const reserved = await callOf(mortal, 'reserve', { wait: 20 });
  await callOf(mortal, 'msg_release', reserved.id, reserved.reservation_id, {});
  assert.strictEqual((await callOf(of('node-dead'), 'reserve', { wait: 20 })).body, 'm');
  for (const name of ['node-mortal', 'node-dead', 'node-alerts']) await callOf(of(name), 'del_queue');

  const subscriber = { name: 'node', url: process.env.ENDPOINT };
  await call('create_queue', 'node-queue', { type: 'multicast', push: { subscribers: [subscriber] } });
  await call('add_subscribers', { name: 'other', url: 'http://127.0.0.1:1/' });
  await call('rm_subscribers', { name: 'other' });
  await call('post', 'pushed to node');
  const names = (await call('queues', {})).map((queue) => queue.name);
  assert.deepStrictEqual(names, ['node-queue']);
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
