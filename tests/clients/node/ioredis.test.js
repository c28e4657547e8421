// ioredis, its current and its most used major version, against a server that scripts/with-server started. Each test has
// a tenant of its own, made through the command line.

'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { once } = require('node:events');
const { describe, test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const { RateLimiterRedis } = require('rate-limiter-flexible');

const MIB = 1 << 20;
// The largest value that the server takes by default.
const VALUE_BYTES_MAX = MIB;

let tenants = 0;

/** Runs the command line; what it prints, as JSON. */
function tidemark(...args) {
  const out = execFileSync(process.env.TEST_TIDEMARK, ['--json', ...args], { encoding: 'utf8', stdio: 'pipe' });
  return out.trim() === '' ? null : JSON.parse(out);
}

/** A secret of the right form that is not this one. */
function wrong(secret) {
  return secret.slice(0, -1) + (secret.endsWith('A') ? 'B' : 'A');
}

for (const version of ['ioredis', 'ioredis-5']) {
  const { Redis } = require(version);

  /** A client that gives up where another would try again, so that what goes wrong is seen. */
  const connect = (tenant, options = {}) => {
    const [host, port] = process.env.TEST_REDIS.split(':');
    const client = new Redis({
      host,
      port: Number(port),
      username: tenant.name,
      password: tenant.secret,
      retryStrategy: null,
      maxRetriesPerRequest: 0,
      ...options,
    });
    // Errors come to the commands; without a listener each is printed, too.
    client.on('error', () => {});
    return client;
  };

  /** Runs a test with a client of a tenant that no other test knows. */
  const withClient = (name, run) =>
    test(name, { timeout: 60_000 }, async () => {
      const made = `node-${process.pid}-${(tenants += 1)}`;
      const tenant = tidemark('tenant', 'create', made, '--cap', '32MiB');
      const client = connect(tenant);
      try {
        await run(client, tenant);
      } finally {
        client.disconnect();
        tidemark('tenant', 'remove', made, '--yes');
      }
    });

  // The commands to one tenant, in order, with their replies.
  const conversation = [
    [['ping'], 'PONG'],
    [['get', 'k'], null],
    [['set', 'k', 'v'], 'OK'],
    [['set', 'k', 'w', 'NX'], null],
    [['set', 'k', 'w', 'EX', 100, 'GET'], 'v'],
    [['ttl', 'k'], 100],
    [['getex', 'k', 'PERSIST'], 'w'],
    [['ttl', 'k'], -1],
    [['append', 'k', 'xyz'], 4],
    [['getrange', 'k', 1, -2], 'xy'],
    [['strlen', 'k'], 4],
    [['setrange', 'k', 0, 'W'], 4],
    [['getdel', 'k'], 'Wxyz'],
    [['mset', { a: 1, b: 2 }], 'OK'],
    [['mget', 'a', 'missing', 'b'], ['1', null, '2']],
    [['msetnx', 'b', 3, 'c', 3], 0],
    [['incr', 'a'], 2],
    [['incrby', 'a', 40], 42],
    [['decrby', 'a', 50], -8],
    [['incrbyfloat', 'a', 0.5], '-7.5'],
    [['expire', 'a', 100], 1],
    [['pexpire', 'a', 200_000, 'GT'], 1],
    [['persist', 'a'], 1],
    [['pttl', 'missing'], -2],
    [['exists', 'a', 'b', 'missing'], 2],
    [['type', 'a'], 'string'],
    [['rename', 'a', 'd'], 'OK'],
    [['dbsize'], 2],
    [['select', 3], 'OK'],
    [['dbsize'], 0],
    [['select', 0], 'OK'],
    [['del', 'b', 'missing'], 1],
    [['unlink', 'd'], 1],
    [['flushall'], 'OK'],
    [['client', 'SETNAME', 'checkout'], 'OK'],
    [['client', 'GETNAME'], 'checkout'],
    [['config', 'GET', 'appendonly'], ['appendonly', 'no']],
  ];

  // A command, and the error that Redis answers.
  const errors = [
    [['nosuch', 'a'], "ERR unknown command 'nosuch', with args beginning with: 'a' "],
    [['get'], "ERR wrong number of arguments for 'get' command"],
    [['incr', 'text'], 'ERR value is not an integer or out of range'],
    [['set', 'k', 'v', 'EX', 0], "ERR invalid expire time in 'set' command"],
    [['set', 'k', 'v', 'NX', 'XX'], 'ERR syntax error'],
    [['exec'], 'ERR EXEC without MULTI'],
    [['select', 16], 'ERR DB index is out of range'],
  ];

  describe(version, () => {
    withClient('common commands', async (client) => {
      for (const [[command, ...args], expected] of conversation) {
        assert.deepEqual(await client[command](...args), expected, `${command} ${args}`);
      }
    });

    withClient('errors', async (client) => {
      await client.set('text', 'words');
      for (const [[command, ...args], message] of errors) {
        await assert.rejects(client.call(command, ...args), { message }, `${command} ${args}`);
      }
      await assert.rejects(client.hset('h', 'f', 'v'), /is not offered by Tidemark/);
      assert.equal(await client.get('text'), 'words');
    });

    withClient('scripts, by text and by name', async (client) => {
      client.defineCommand('take', {
        numberOfKeys: 1,
        lua: "local n = redis.call('incrby', KEYS[1], ARGV[1]) redis.call('pexpire', KEYS[1], ARGV[2]) return {n, ARGV[2]}",
      });
      assert.deepEqual(await client.take('n', 2, 60000), [2, '60000']);
      assert.deepEqual(await client.take('n', 3, 60000), [5, '60000']);
      await client.script('FLUSH');
      assert.deepEqual(await client.take('n', 1, 60000), [6, '60000']);
      assert.ok((await client.pttl('n')) > 0);
    });

    withClient('rate-limiter-flexible', async (client) => {
      const limiter = new RateLimiterRedis({ storeClient: client, points: 5, duration: 60, keyPrefix: 'rl' });
      const results = await Promise.allSettled(Array.from({ length: 12 }, () => limiter.consume('user')));
      assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 5);
      const { consumedPoints, msBeforeNext } = await limiter.get('user');
      assert.equal(consumedPoints, 12);
      assert.ok(msBeforeNext > 0 && msBeforeNext <= 60_000);
      assert.equal((await limiter.penalty('user', 2)).consumedPoints, 14);
      assert.equal((await limiter.reward('user', 12)).consumedPoints, 2);
      await limiter.block('user', 30);
      const blocked = await limiter.consume('user').catch((refused) => refused);
      assert.ok(blocked.remainingPoints === 0 && blocked.msBeforeNext <= 30_000, JSON.stringify(blocked));
      assert.equal(await limiter.delete('user'), true);
      assert.equal((await limiter.consume('user')).remainingPoints, 4);
      // Without a duration it is another script, and the counter does not expire.
      const forever = new RateLimiterRedis({ storeClient: client, points: 2, duration: 0, keyPrefix: 'forever' });
      assert.equal((await forever.consume('user', 2)).remainingPoints, 0);
      assert.equal(await client.ttl('forever:user'), -1);
      assert.equal((await forever.consume('user').catch((refused) => refused)).consumedPoints, 3);
    });

    withClient('keys and values are binary, of all sizes', async (client) => {
      const bytes = (size) => Buffer.from({ length: size }, (_, i) => i);
      for (const size of [0, 1, 16 << 10, 64 << 10, 256 << 10, VALUE_BYTES_MAX]) {
        const key = bytes(Math.min(size, 64 << 10));
        const value = Buffer.alloc(size, bytes(256));
        await client.set(key, value);
        assert.ok(value.equals(await client.getBuffer(key)), `${size} bytes came back as others`);
      }
      await client.set('k', 'before');
      await assert.rejects(client.set('k', Buffer.alloc(VALUE_BYTES_MAX + 1)));
      assert.equal(await client.get('k'), 'before');
    });

    withClient('a pipeline answers in order', async (client) => {
      const pipeline = client.pipeline();
      for (let i = 0; i < 2000; i += 1) pipeline.set(`k${i}`, i).get(`k${i}`);
      pipeline.set('words', 'v').incr('words').get('words');
      const answers = await pipeline.exec();
      for (let i = 0; i < 2000; i += 1) assert.deepEqual(answers[2 * i + 1], [null, String(i)]);
      const [[, stored], [error], [, value]] = answers.slice(-3);
      assert.deepEqual([stored, error.message, value], ['OK', 'ERR value is not an integer or out of range', 'v']);
    });

    withClient('a transaction is done or not', async (client, tenant) => {
      const done = await client.multi().set('n', 1).incr('n').get('n').exec();
      assert.deepEqual(done, [[null, 'OK'], [null, 2], [null, '2']]);
      await client.watch('n');
      const other = connect(tenant);
      await other.set('n', 7);
      other.disconnect();
      assert.equal(await client.multi().set('n', 'lost').exec(), null);
      assert.equal(await client.get('n'), '7');
      await client.multi({ pipeline: false });
      await client.set('k', 'v');
      assert.equal(await client.discard(), 'OK');
      assert.equal(await client.get('k'), null);
    });

    withClient('scan finds every key', async (client) => {
      const keys = Array.from({ length: 2000 }, (_, i) => `key:${i}`);
      await client.mset(...keys.flatMap((key) => [key, 'v']));
      const found = new Set();
      for await (const some of client.scanStream({ match: 'key:*', count: 100 })) some.forEach((key) => found.add(key));
      assert.deepEqual([...found].sort(), keys.sort());
    });

    withClient('items expire', async (client) => {
      await client.set('k', 'v', 'PX', 80);
      while (await client.exists('k')) await sleep(10);
      assert.equal(await client.get('k'), null);
    });

    withClient('a wrong secret opens nothing', async (_client, tenant) => {
      const stranger = connect({ name: tenant.name, secret: wrong(tenant.secret) }, { lazyConnect: true });
      const failed = once(stranger, 'error');
      await assert.rejects(stranger.connect().then(() => stranger.set('k', 'v')));
      const [error] = await failed;
      assert.match(String(error), /WRONGPASS|NOAUTH/);
      stranger.disconnect();
    });
  });
}
