'use strict';
// rhea-promise, the client of Azure's JavaScript libraries, against the broker at POSTROAD_AMQP.

const assert = require('node:assert');
const { randomUUID } = require('node:crypto');
const { test } = require('node:test');
const { Connection, ReceiverEvents } = require('rhea-promise');

const { hostname: host, port } = new URL(process.env.POSTROAD_AMQP);
const unique = (label) => `test.rhea-promise.${label}.${randomUUID()}`;
const TIMEOUT = { timeout: 30000 };

async function opened() {
    const connection = new Connection({ host, port: Number(port), reconnect: false, username: 'me', password: 'secret' });
    await connection.open();
    return connection;
}

async function send(connection, address, ...bodies) {
    const sender = await connection.createAwaitableSender({ target: { address } });
    for (const body of bodies) {
        const delivery = await sender.send({ body, durable: true }, { timeoutInSeconds: 10 });
        assert.ok(delivery.settled);
    }
    await sender.close();
}

// Reads so many messages, and gives each this verdict. Its listener is there before the credit: nothing is missed.
async function receive(connection, source, count, verdict = (delivery) => delivery.accept()) {
    const seen = [];
    let done;
    const all = new Promise((resolve) => { done = resolve; });
    const receiver = await connection.createReceiver({
        source,
        credit_window: 0,
        autoaccept: false,
        onMessage: ({ message, delivery }) => {
            seen.push([message.body, message.delivery_count || 0]);
            verdict(delivery);
            if (seen.length === count) done();
        },
    });
    receiver.addCredit(count);
    await all;
    await receiver.close();
    return seen;
}

test('what is sent is received once it was confirmed', TIMEOUT, async () => {
    const connection = await opened();
    const address = unique('queue');
    await send(connection, address, 'a', 'b');
    assert.deepEqual(await receive(connection, { address }, 2), [['a', 0], ['b', 0]]);
    await connection.close();
});

test('a browser takes nothing', TIMEOUT, async () => {
    const connection = await opened();
    const address = unique('browse');
    await send(connection, address, 'a', 'b');
    for (let round = 0; round < 2; round++) {
        const seen = await receive(connection, { address, distribution_mode: 'copy' }, 2);
        assert.deepEqual(seen, [['a', 0], ['b', 0]]);
    }
    assert.deepEqual(await receive(connection, { address }, 2), [['a', 0], ['b', 0]]);
    await connection.close();
});

test('what is given back comes again, counted if it failed', TIMEOUT, async () => {
    const connection = await opened();
    const address = unique('back');
    await send(connection, address, 'a');
    assert.deepEqual(await receive(connection, { address }, 1, (delivery) => delivery.release()), [['a', 0]]);
    const failed = (delivery) => delivery.modified({ delivery_failed: true, undeliverable_here: false });
    assert.deepEqual(await receive(connection, { address }, 1, failed), [['a', 0]]);
    assert.deepEqual(await receive(connection, { address }, 1), [['a', 1]]);
    await connection.close();
});

test('what a lost connection had is received by the next one', TIMEOUT, async () => {
    const address = unique('lost');
    const lost = await opened();
    await send(lost, address, 'a');
    const receiver = await lost.createReceiver({ source: { address }, credit_window: 0, autoaccept: false });
    const message = new Promise((resolve) => receiver.once(ReceiverEvents.message, resolve));
    receiver.addCredit(1);
    assert.equal((await message).message.body, 'a');
    // With an error, for the client does not see another end of its own socket, and its timers go on.
    lost._connection.socket.destroy(new Error('cut'));
    const next = await opened();
    assert.deepEqual(await receive(next, { address }, 1), [['a', 1]]);
    await next.close();
});

// A refusal is an attach without a node, and then a detach: the promise is kept by the first, the second is an event.
test('a refused link says why by its event of errors', TIMEOUT, async () => {
    const connection = await opened();
    let refused;
    const why = new Promise((resolve) => { refused = resolve; });
    const onError = ({ receiver }) => refused(receiver.error.condition);
    await connection.createReceiver({ source: { address: '' }, credit_window: 0, onError });
    assert.equal(await why, 'amqp:invalid-field');
    await send(connection, unique('alive'), 'a');
    await connection.close();
});
