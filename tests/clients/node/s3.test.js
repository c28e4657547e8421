// The AWS SDK for JavaScript against the S3 address, with MiniStack as the S3 server behind it.

'use strict';

const assert = require('node:assert/strict');
const { execFileSync, spawn } = require('node:child_process');
const { randomBytes } = require('node:crypto');
const { mkdtempSync, rmSync } = require('node:fs');
const net = require('node:net');
const { tmpdir } = require('node:os');
const { join } = require('node:path');
const { createInterface } = require('node:readline');
const { after, before, describe, test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const {
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client,
  UploadPartCommand,
} = require('@aws-sdk/client-s3');

const Bucket = 'objects';
const MIB = 1 << 20;
const PATIENCE_MS = 60_000;

/** A port that is free now. */
async function freePort() {
  const listener = net.createServer().listen(0, '127.0.0.1');
  await new Promise((listening) => listener.once('listening', listening));
  const { port } = listener.address();
  await new Promise((closed) => listener.close(closed));
  return port;
}

const client = (endpoint, accessKeyId, secretAccessKey) =>
  new S3Client({
    endpoint,
    region: 'us-east-1',
    forcePathStyle: true,
    maxAttempts: 1,
    credentials: { accessKeyId, secretAccessKey },
  });

/** Ends a process that this started. */
async function end(child) {
  if (child && child.exitCode === null && child.signalCode === null) {
    child.kill('SIGKILL');
    await new Promise((ended) => child.once('exit', ended));
  }
}

describe('the AWS SDK for JavaScript', { timeout: 180_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidemark-s3-'));
  let origin;
  let server;
  let s3;

  before(async () => {
    const keys = { AWS_ACCESS_KEY_ID: 'originkey', AWS_SECRET_ACCESS_KEY: 'originsecret' };
    const port = await freePort();
    const env = { ...process.env, ...keys, BIND_HOST: '127.0.0.1', GATEWAY_PORT: String(port) };
    origin = spawn(process.env.TEST_PYTHON, ['-m', 'ministack'], { env, stdio: 'ignore' });
    const direct = client(`http://127.0.0.1:${port}`, 'originkey', 'originsecret');
    for (const until = Date.now() + PATIENCE_MS; ; await sleep(100)) {
      try {
        await direct.send(new CreateBucketCommand({ Bucket }));
        break;
      } catch (error) {
        if (Date.now() > until) throw error;
      }
    }
    const args = ['serve', '--memcached', 'off', '--redis', '127.0.0.1:0', '--admin', 'off', '--memory', '128MiB'];
    args.push('--data', folder, '--s3', '127.0.0.1:0', '--origin', `s3://${Bucket}?endpoint=http://127.0.0.1:${port}`);
    server = spawn(process.env.TEST_TIDEMARK, args, { env: { ...process.env, ...keys }, stdio: ['ignore', 'pipe', 'ignore'] });
    const { value: ready } = await createInterface({ input: server.stdout })[Symbol.asyncIterator]().next();
    const address = / s3=(\S+)/.exec(ready)[1];
    const tidemark = (...words) =>
      JSON.parse(execFileSync(process.env.TEST_TIDEMARK, ['--json', 'tenant', '--data', folder, ...words], { encoding: 'utf8' }));
    tidemark('create', 'shop');
    const key = tidemark('s3-key', 'shop');
    s3 = client(`http://${address}`, key.access_key, key.secret_key);
    // The server reads the list of keys once a second.
    for (const until = Date.now() + PATIENCE_MS; ; await sleep(100)) {
      try {
        await s3.send(new ListObjectsV2Command({ Bucket }));
        break;
      } catch (error) {
        if (Date.now() > until) throw error;
      }
    }
  });

  after(async () => {
    await end(server);
    await end(origin);
    rmSync(folder, { recursive: true, force: true });
  });

  test('puts, reads, ranges, lists and deletes', async () => {
    const Key = 'a folder/ä.bin';
    const Body = randomBytes(3 * MIB + 5);
    const put = await s3.send(new PutObjectCommand({ Bucket, Key, Body, Metadata: { colour: 'blue' } }));
    for (const cached of [false, true]) {
      const got = await s3.send(new GetObjectCommand({ Bucket, Key }));
      assert.deepEqual(Buffer.from(await got.Body.transformToByteArray()), Body, `read again: ${cached}`);
      assert.equal(got.ETag, put.ETag);
      assert.equal(got.Metadata.colour, 'blue');
    }
    const part = await s3.send(new GetObjectCommand({ Bucket, Key, Range: `bytes=${MIB - 3}-${MIB + 3}` }));
    assert.deepEqual(Buffer.from(await part.Body.transformToByteArray()), Body.subarray(MIB - 3, MIB + 4));
    const head = await s3.send(new HeadObjectCommand({ Bucket, Key }));
    assert.equal(head.ContentLength, Body.length);
    const list = await s3.send(new ListObjectsV2Command({ Bucket, Prefix: 'a folder/' }));
    assert.deepEqual(list.Contents.map((object) => object.Key), [Key]);
    await s3.send(new DeleteObjectCommand({ Bucket, Key }));
    await assert.rejects(s3.send(new GetObjectCommand({ Bucket, Key })), { name: 'NoSuchKey' });
  });

  test('uploads in parts', async () => {
    const Key = 'parts';
    const parts = [randomBytes(5 * MIB), randomBytes(1234)];
    const { UploadId } = await s3.send(new CreateMultipartUploadCommand({ Bucket, Key }));
    const Parts = [];
    for (const [index, Body] of parts.entries()) {
      const PartNumber = index + 1;
      const { ETag } = await s3.send(new UploadPartCommand({ Bucket, Key, UploadId, PartNumber, Body }));
      Parts.push({ PartNumber, ETag });
    }
    await s3.send(new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } }));
    const got = await s3.send(new GetObjectCommand({ Bucket, Key }));
    assert.deepEqual(Buffer.from(await got.Body.transformToByteArray()), Buffer.concat(parts));
  });

  test('is refused what is not true', async () => {
    const Key = 'conditions';
    const { ETag } = await s3.send(new PutObjectCommand({ Bucket, Key, Body: 'one' }));
    await assert.rejects(s3.send(new GetObjectCommand({ Bucket, Key, IfMatch: '"other"' })), { name: 'PreconditionFailed' });
    await assert.rejects(s3.send(new GetObjectCommand({ Bucket, Key, IfNoneMatch: ETag })), (error) => error.$metadata.httpStatusCode === 304);
    await assert.rejects(s3.send(new GetObjectCommand({ Bucket, Key, Range: 'bytes=9-' })), (error) => error.$metadata.httpStatusCode === 416);
  });
});
