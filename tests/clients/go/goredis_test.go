package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func connectRedis(t *testing.T, name, secret string, protocol int) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:     redisAddress(),
		Username: name,
		Password: secret,
		Protocol: protocol,
		// Errors have to be seen.
		MaxRetries: -1,
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// Runs a test in RESP2 and in RESP3, each with a tenant of its own.
func inBothProtocols(t *testing.T, test func(*testing.T, context.Context, *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("resp%d", protocol), func(t *testing.T) {
			made := newTenant(t)
			test(t, limited(t), connectRedis(t, made.Name, made.Secret, protocol))
		})
	}
}

func TestRedisCommands(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		soon := time.Now().Add(time.Hour).Truncate(time.Second)
		for i, step := range []struct {
			command  redis.Cmder
			expected string
		}{
			{c.Ping(ctx), "ping: PONG"},
			{c.Echo(ctx, "hello"), "echo hello: hello"},
			{c.Get(ctx, "k"), "get k: redis: nil"},
			{c.Set(ctx, "k", "v", 0), "set k v: OK"},
			{c.SetNX(ctx, "k", "w", 0), "set k w nx: false"},
			{c.SetXX(ctx, "k", "w", time.Minute), "set k w ex 60 xx: true"},
			{c.TTL(ctx, "k"), "ttl k: 1m0s"},
			{c.SetArgs(ctx, "k", "x", redis.SetArgs{Get: true, KeepTTL: true}), "set k x keepttl get: w"},
			{c.TTL(ctx, "k"), "ttl k: 1m0s"},
			{c.GetSet(ctx, "k", "y"), "getset k y: x"},
			{c.Append(ctx, "k", "z"), "append k z: 2"},
			{c.StrLen(ctx, "k"), "strlen k: 2"},
			{c.GetRange(ctx, "k", 0, -2), "getrange k 0 -2: y"},
			{c.SetRange(ctx, "k", 1, "!"), "setrange k 1 !: 2"},
			{c.GetEx(ctx, "k", time.Hour), "getex k ex 3600: y!"},
			{c.TTL(ctx, "k"), "ttl k: 1h0m0s"},
			{c.Persist(ctx, "k"), "persist k: true"},
			{c.TTL(ctx, "k"), "ttl k: -1ns"},
			{c.GetDel(ctx, "k"), "getdel k: y!"},
			{c.TTL(ctx, "k"), "ttl k: -2ns"},
			{c.MSet(ctx, "a", 1, "b", 2), "mset a 1 b 2: OK"},
			{c.MGet(ctx, "a", "missing", "b"), "mget a missing b: [1 <nil> 2]"},
			{c.MSetNX(ctx, "b", 3, "c", 3), "msetnx b 3 c 3: false"},
			{c.Exists(ctx, "a", "a", "c"), "exists a a c: 2"},
			{c.Incr(ctx, "a"), "incr a: 2"},
			{c.IncrBy(ctx, "a", 40), "incrby a 40: 42"},
			{c.DecrBy(ctx, "a", 50), "decrby a 50: -8"},
			{c.IncrByFloat(ctx, "a", 0.5), "incrbyfloat a 0.5: -7.5"},
			{c.ExpireAt(ctx, "a", soon), fmt.Sprintf("expireat a %d: true", soon.Unix())},
			{c.ExpireTime(ctx, "a"), fmt.Sprintf("expiretime a: %v", time.Duration(soon.Unix())*time.Second)},
			{c.ExpireGT(ctx, "a", time.Minute), "expire a 60 GT: false"},
			{c.PExpire(ctx, "a", time.Minute), "pexpire a 60000: true"},
			{c.Rename(ctx, "a", "d"), "rename a d: OK"},
			{c.RenameNX(ctx, "d", "b"), "renamenx d b: false"},
			{c.Type(ctx, "d"), "type d: string"},
			{c.Touch(ctx, "d", "missing"), "touch d missing: 1"},
			{c.DBSize(ctx), "dbsize: 2"},
			{c.Del(ctx, "b", "missing"), "del b missing: 1"},
			{c.Unlink(ctx, "d"), "unlink d: 1"},
			{c.FlushDB(ctx), "flushdb: OK"},
		} {
			if text := step.command.String(); text != step.expected {
				t.Fatalf("step %d: %s; not %s", i, text, step.expected)
			}
		}
	})
}

func TestRedisKeysAndValuesAreBinary(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		for _, size := range []int{0, 1, 16 << 10, 64 << 10, 256 << 10, valueBytesMax} {
			key, value := string(allBytes(min(size, 64<<10))), allBytes(size)
			no(t, c.Set(ctx, key, value, 0).Err())
			read, err := c.Get(ctx, key).Bytes()
			no(t, err)
			if !bytes.Equal(read, value) {
				t.Fatalf("%d bytes came back as others", size)
			}
		}
		no(t, c.Set(ctx, "k", "before", 0).Err())
		if err := c.Set(ctx, "k", allBytes(valueBytesMax+1), 0).Err(); err == nil {
			t.Fatal("a value that is too large was taken")
		}
		if value := c.Get(ctx, "k").Val(); value != "before" {
			t.Fatalf("a write that was refused left %q", value)
		}
	})
}

func TestRedisPipelines(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		pipeline := c.Pipeline()
		for i := range 3000 {
			pipeline.Set(ctx, fmt.Sprint("k", i), i, 0)
			pipeline.Get(ctx, fmt.Sprint("k", i))
		}
		commands, err := pipeline.Exec(ctx)
		no(t, err)
		for i := range 3000 {
			if value := commands[2*i+1].(*redis.StringCmd).Val(); value != fmt.Sprint(i) {
				t.Fatalf("k%d is %q", i, value)
			}
		}
		words := pipeline.Set(ctx, "words", "v", 0)
		wrong := pipeline.Incr(ctx, "words")
		right := pipeline.Get(ctx, "words")
		if _, err := pipeline.Exec(ctx); err == nil {
			t.Fatal("an error in a pipeline was lost")
		}
		if words.Err() != nil || wrong.Err() == nil || right.Val() != "v" {
			t.Fatalf("%v; %v; %v", words, wrong, right)
		}
	})
}

func TestRedisTransactions(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		var incremented *redis.IntCmd
		_, err := c.TxPipelined(ctx, func(transaction redis.Pipeliner) error {
			transaction.Set(ctx, "n", 1, 0)
			incremented = transaction.Incr(ctx, "n")
			return nil
		})
		no(t, err)
		if incremented.Val() != 2 {
			t.Fatal(incremented)
		}
		write := func(between func()) error {
			return c.Watch(ctx, func(transaction *redis.Tx) error {
				old, err := transaction.Get(ctx, "n").Int()
				if err != nil {
					return err
				}
				between()
				_, err = transaction.TxPipelined(ctx, func(pipeline redis.Pipeliner) error {
					pipeline.Set(ctx, "n", old*10, 0)
					return nil
				})
				return err
			}, "n")
		}
		no(t, write(func() {}))
		err = write(func() { no(t, c.Set(ctx, "n", 7, 0).Err()) })
		if !errors.Is(err, redis.TxFailedErr) {
			t.Fatalf("a transaction over another write: %v", err)
		}
		if value := c.Get(ctx, "n").Val(); value != "7" {
			t.Fatalf("n is %s", value)
		}
	})
}

func TestRedisScan(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		pipeline := c.Pipeline()
		for i := range 2000 {
			pipeline.Set(ctx, fmt.Sprint("key:", i), i, 0)
		}
		_, err := pipeline.Exec(ctx)
		no(t, err)
		found := map[string]bool{}
		iterator := c.Scan(ctx, 0, "key:*", 50).Iterator()
		for iterator.Next(ctx) {
			found[iterator.Val()] = true
		}
		no(t, iterator.Err())
		if len(found) != 2000 {
			t.Fatalf("%d keys were found", len(found))
		}
	})
}

func TestRedisExpiry(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		no(t, c.Set(ctx, "k", "v", 80*time.Millisecond).Err())
		for c.Exists(ctx, "k").Val() == 1 {
			no(t, ctx.Err())
			time.Sleep(10 * time.Millisecond)
		}
		if err := c.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) {
			t.Fatalf("it is still there: %v", err)
		}
	})
}

func TestRedisErrors(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		no(t, c.Set(ctx, "text", "words", 0).Err())
		for _, step := range []struct {
			command []any
			message string
		}{
			{[]any{"nosuch"}, "ERR unknown command 'nosuch'"},
			{[]any{"get"}, "ERR wrong number of arguments for 'get' command"},
			{[]any{"incr", "text"}, "ERR value is not an integer or out of range"},
			{[]any{"set", "k", "v", "px", "-1"}, "ERR invalid expire time in 'set' command"},
			{[]any{"hset", "h", "f", "v"}, "is not offered by Tidemark"},
		} {
			err := c.Do(ctx, step.command...).Err()
			if err == nil || !strings.Contains(err.Error(), step.message) {
				t.Errorf("%v: %v; not %s", step.command, err, step.message)
			}
		}
		if value := c.Get(ctx, "text").Val(); value != "words" {
			t.Fatalf("text is %q", value)
		}
	})
}

func TestRedisScripts(t *testing.T) {
	release := redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		no(t, c.Set(ctx, "lock", "token", time.Minute).Err())
		for _, step := range []struct {
			token string
			want  int64
		}{{"other", 0}, {"token", 1}, {"token", 0}} {
			// The first time it is not known by its name, and is sent.
			got, err := release.Run(ctx, c, []string{"lock"}, step.token).Int64()
			no(t, err)
			if got != step.want {
				t.Fatalf("%s: %d", step.token, got)
			}
		}
		known, err := c.ScriptExists(ctx, release.Hash(), strings.Repeat("0", 40)).Result()
		no(t, err)
		if !slices.Equal(known, []bool{true, false}) {
			t.Fatal(known)
		}
		err = c.Eval(ctx, "return redis.call('hget', KEYS[1], 'f')", []string{"h"}).Err()
		if err == nil || !strings.Contains(err.Error(), "the command 'hget' is not offered") {
			t.Fatal(err)
		}
	})
}

func TestRedisConnection(t *testing.T) {
	inBothProtocols(t, func(t *testing.T, ctx context.Context, c *redis.Client) {
		connection := c.Conn()
		defer connection.Close()
		no(t, connection.ClientSetName(ctx, "checkout").Err())
		list, err := connection.ClientList(ctx).Result()
		no(t, err)
		if !strings.Contains(list, "name=checkout") {
			t.Fatal(list)
		}
		info, err := c.Info(ctx, "server").Result()
		no(t, err)
		if !strings.Contains(info, "redis_version:") {
			t.Fatal(info)
		}
		commands, err := c.Command(ctx).Result()
		no(t, err)
		if get := commands["get"]; get == nil || get.Arity != 2 || !get.ReadOnly || !slices.Contains(get.Flags, "fast") {
			t.Fatalf("%+v", get)
		}
	})
}

func TestRedisWrongSecret(t *testing.T) {
	made := newTenant(t)
	for _, protocol := range []int{2, 3} {
		client := connectRedis(t, made.Name, made.wrongSecret(), protocol)
		err := client.Ping(limited(t)).Err()
		if err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("RESP%d: %v", protocol, err)
		}
	}
}
