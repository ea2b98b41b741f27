'use strict';
// rhea against the broker at POSTROAD_AMQP.

const assert = require('node:assert');
const { randomUUID } = require('node:crypto');
const { test } = require('node:test');
const rhea = require('rhea');
const { WebSocket } = require('ws');

const { hostname: host, port } = new URL(process.env.POSTROAD_AMQP);
const PATIENCE_MS = 10000;
const unique = (label) => `test.rhea.${label}.${randomUUID()}`;

function connect(options = {}) {
    const container = rhea.create_container();
    const connection = container.connect({ host, port: Number(port), reconnect: false, ...options });
    return connection;
}

// The next event of a name, or a failure.
function once(emitter, name) {
    return new Promise((resolve, reject) => {
        const timer = setTimeout(() => reject(new Error(`no ${name} in time`)), PATIENCE_MS);
        emitter.once(name, (context) => {
            clearTimeout(timer);
            resolve(context);
        });
    });
}

async function close(connection) {
    const closed = once(connection, 'connection_close');
    connection.close();
    await closed;
}

async function send(connection, target, ...messages) {
    const sender = connection.open_sender(target);
    const opened = once(sender, 'sendable');
    await opened;
    for (const message of messages) {
        const done = Promise.race([
            once(sender, 'accepted').then(() => 'accepted'),
            once(sender, 'rejected').then((context) => context.delivery.remote_state.error.condition),
        ]);
        sender.send(message);
        const outcome = await done;
        if (outcome !== 'accepted') {
            return outcome;
        }
    }
    sender.close();
    return 'accepted';
}

test('messages go and come', async () => {
    const connection = connect();
    const queue = unique('queue');
    assert.equal(await send(connection, queue, { body: 'a', durable: true }, { body: { n: 1 } }), 'accepted');
    const receiver = connection.open_receiver({ source: queue, credit_window: 0 });
    await once(receiver, 'receiver_open');
    const bodies = [];
    for (let count = 0; count < 2; count++) {
        const message = once(receiver, 'message');
        receiver.add_credit(1);
        bodies.push((await message).message.body);
    }
    assert.deepEqual(bodies, ['a', { n: 1 }]);
    await close(connection);
});

test('released and failed deliveries come again', async () => {
    const connection = connect();
    const queue = unique('again');
    await send(connection, queue, { body: 'a' });
    const receiver = connection.open_receiver({ source: queue, credit_window: 0, autoaccept: false });
    await once(receiver, 'receiver_open');
    const counts = [];
    for (const verdict of ['release', 'modified', 'accept']) {
        const message = once(receiver, 'message');
        receiver.add_credit(1);
        const { delivery, message: got } = await message;
        counts.push(got.delivery_count || 0);
        if (verdict === 'accept') {
            delivery.accept();
        } else {
            delivery.modified({ delivery_failed: verdict === 'modified', undeliverable_here: false });
        }
    }
    assert.deepEqual(counts, [0, 0, 1]);
    await close(connection);
});

test('a browser takes nothing', async () => {
    const connection = connect();
    const queue = unique('browse');
    await send(connection, queue, { body: 'a' }, { body: 'b' });
    for (const distribution_mode of ['copy', 'copy', 'move']) {
        const receiver = connection.open_receiver({ source: { address: queue, distribution_mode }, credit_window: 0 });
        const { receiver: opened } = await once(receiver, 'receiver_open');
        assert.equal(opened.source.distribution_mode, distribution_mode);
        const bodies = [];
        for (let count = 0; count < 2; count++) {
            const message = once(receiver, 'message');
            receiver.add_credit(1);
            bodies.push((await message).message.body);
        }
        assert.deepEqual(bodies, ['a', 'b'], distribution_mode);
        const closed = once(receiver, 'receiver_close');
        receiver.close();
        await closed;
    }
    await close(connection);
});

test('what a lost connection had comes again by the one that rhea makes itself', async () => {
    const connection = connect({ reconnect: 1 });
    const queue = unique('lost');
    await send(connection, queue, { body: 'a', durable: true });
    const receiver = connection.open_receiver({ source: queue, credit_window: 1, autoaccept: false });
    const { message: first } = await once(receiver, 'message');
    assert.deepEqual([first.body, first.delivery_count || 0], ['a', 0]);
    const again = once(receiver, 'message');
    // With an error: of a socket that it destroys itself the client sees no other end.
    connection.socket.destroy(new Error('cut'));
    const { message, delivery } = await again;
    assert.deepEqual([message.body, message.delivery_count], ['a', 1]);
    delivery.accept();
    await close(connection);
});

test('a topic is an address with a prefix or a capability', async () => {
    const connection = connect();
    const topic = unique('topic');
    const receiver = connection.open_receiver({ source: { address: topic, capabilities: ['topic'] } });
    await once(receiver, 'receiver_open');
    const message = once(receiver, 'message');
    await send(connection, `topic://${topic}`, { body: 'news' });
    assert.equal((await message).message.body, 'news');
    await close(connection);
});

test('a durable subscription outlives its connection', async () => {
    const container_id = unique('container');
    const topic = unique('durable');
    const source = { address: topic, capabilities: ['topic'], durable: 2, expiry_policy: 'never' };
    const first = connect({ container_id });
    const link = first.open_receiver({ name: 'news', source, credit_window: 0 });
    await once(link, 'receiver_open');
    link.detach();
    await send(first, { target: { address: topic, capabilities: ['topic'] } }, { body: 'kept' });
    await close(first);

    const second = connect({ container_id });
    const again = second.open_receiver({ name: 'news', source });
    assert.equal((await once(again, 'message')).message.body, 'kept');
    const closed = once(again, 'receiver_close');
    again.close();
    await closed;
    await close(second);
});

test('what a link may not do ends that link alone', async () => {
    const connection = connect();
    const receiver = connection.open_receiver({ source: { address: '' } });
    const { receiver: refused } = await once(receiver, 'receiver_error');
    assert.equal(refused.error.condition, 'amqp:invalid-field');
    assert.equal(await send(connection, unique('alive'), { body: 'a' }), 'accepted');
    await close(connection);
});

test('messages go and come inside of WebSockets', async () => {
    const container = rhea.create_container();
    const dial = container.websocket_connect(WebSocket);
    const connection = container.connect({
        connection_details: dial(process.env.POSTROAD_AMQPWS, ['amqp'], { binaryType: 'arraybuffer' }),
        reconnect: false,
    });
    const queue = unique('websocket');
    const body = 'x'.repeat(200000);
    assert.equal(await send(connection, queue, { body: 'a', durable: true }, { body }), 'accepted');
    const receiver = connection.open_receiver({ source: queue, credit_window: 0 });
    await once(receiver, 'receiver_open');
    const bodies = [];
    for (let count = 0; count < 2; count++) {
        const message = once(receiver, 'message');
        receiver.add_credit(1);
        bodies.push((await message).message.body);
    }
    assert.deepEqual(bodies, ['a', body]);
    await close(connection);
});

test('a WebSocket of another protocol is refused', async () => {
    const socket = new WebSocket(process.env.POSTROAD_AMQPWS, ['mqtt']);
    await new Promise((resolve, reject) => {
        socket.addEventListener('open', () => reject(new Error('it was let in')));
        socket.addEventListener('error', resolve);
    });
});

test('large messages pass in small frames', async () => {
    const connection = connect({ max_frame_size: 1024 });
    const queue = unique('large');
    const body = 'x'.repeat(200000);
    await send(connection, queue, { body });
    const receiver = connection.open_receiver(queue);
    assert.equal((await once(receiver, 'message')).message.body, body);
    await close(connection);
});
