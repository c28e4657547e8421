package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// A client whose every connection logs in first: memcached's login is a `set` whose value is name and secret.
func connectMemcached(t *testing.T, name, secret string) *memcache.Client {
	t.Helper()
	client := memcache.New(memcachedAddress())
	client.Timeout = 10 * time.Second
	client.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		login := name + " " + secret
		if _, err := fmt.Fprintf(connection, "set auth 0 0 %d\r\n%s\r\n", len(login), login); err != nil {
			return nil, err
		}
		answer := make([]byte, 256)
		count, err := connection.Read(answer)
		if err == nil && string(answer[:count]) != "STORED\r\n" {
			err = errors.New(strings.TrimSpace(string(answer[:count])))
		}
		return connection, err
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func memcachedOf(t *testing.T) *memcache.Client {
	t.Helper()
	made := newTenant(t)
	return connectMemcached(t, made.Name, made.Secret)
}

// As an application is configured that knows no logins: an address, and no more.
func TestATenantsListenerNeedsNoLogin(t *testing.T) {
	tidemark(t, "tenant", "create", "listener", "--cap", "32MiB")
	t.Cleanup(func() { tidemark(t, "tenant", "remove", "listener", "--yes") })
	client := memcache.New(os.Getenv("TEST_LISTENER"))
	client.Timeout = 10 * time.Second
	t.Cleanup(func() { client.Close() })
	no(t, client.Set(&memcache.Item{Key: "k", Value: []byte("v"), Expiration: 60}))
	item, err := client.Get("k")
	no(t, err)
	if string(item.Value) != "v" {
		t.Fatalf("%q", item.Value)
	}
	no(t, client.Add(&memcache.Item{Key: "n", Value: []byte("1")}))
	if err := client.Add(&memcache.Item{Key: "n", Value: []byte("2")}); err != memcache.ErrNotStored {
		t.Fatal(err)
	}
	number, err := client.Increment("n", 4)
	no(t, err)
	if number != 5 {
		t.Fatal(number)
	}
	found, err := client.GetMulti([]string{"k", "n", "none"})
	no(t, err)
	if len(found) != 2 {
		t.Fatal(found)
	}
	no(t, client.Delete("k"))
	if _, err := client.Get("k"); err != memcache.ErrCacheMiss {
		t.Fatal(err)
	}
	// The keys are the tenant's: who logs in as it sees them, others do not.
	others := memcachedOf(t)
	if _, err := others.Get("n"); err != memcache.ErrCacheMiss {
		t.Fatal(err)
	}
}

func TestMemcacheCommands(t *testing.T) {
	client := memcachedOf(t)
	value := func(key, expected string) error {
		item, err := client.Get(key)
		if err == nil && string(item.Value) != expected {
			err = fmt.Errorf("%s is %q, not %q", key, item.Value, expected)
		}
		return err
	}
	item := func(key, value string) *memcache.Item {
		return &memcache.Item{Key: key, Value: []byte(value), Flags: 0xFFFFFFFF}
	}
	var number uint64
	count := func(to uint64, err error) error { number = to; return err }
	for i, step := range []struct {
		err, expected error
	}{
		{client.Ping(), nil},
		{value("k", ""), memcache.ErrCacheMiss},
		{client.Set(item("k", "v")), nil},
		{value("k", "v"), nil},
		{client.Add(item("k", "w")), memcache.ErrNotStored},
		{client.Replace(item("missing", "w")), memcache.ErrNotStored},
		{client.Replace(item("k", "w")), nil},
		{client.Append(item("k", "x")), nil},
		{client.Prepend(item("k", "v")), nil},
		{value("k", "vwx"), nil},
		{client.Touch("k", 100), nil},
		{client.Touch("missing", 100), memcache.ErrCacheMiss},
		{client.Delete("k"), nil},
		{client.Delete("k"), memcache.ErrCacheMiss},
		{client.Set(item("n", "41")), nil},
		{count(client.Increment("n", 2)), nil},
		{count(client.Decrement("n", 1)), nil},
		{count(client.Increment("missing", 1)), memcache.ErrCacheMiss},
		{value("n", "42"), nil},
		{client.Set(item(strings.Repeat("k", 250), "v")), nil},
		{client.Set(item(strings.Repeat("k", 251), "v")), memcache.ErrMalformedKey},
		{client.FlushAll(), nil},
		{value("n", ""), memcache.ErrCacheMiss},
	} {
		if !errors.Is(step.err, step.expected) {
			t.Fatalf("step %d: %v, not %v (%d)", i, step.err, step.expected, number)
		}
	}
}

func TestMemcacheFlagsAndManyKeys(t *testing.T) {
	client := memcachedOf(t)
	keys := []string{"missing"}
	for i := range 1000 {
		key := fmt.Sprintf("k%d", i)
		keys = append(keys, key)
		no(t, client.Set(&memcache.Item{Key: key, Value: []byte(key), Flags: uint32(i)}))
	}
	items, err := client.GetMulti(keys)
	no(t, err)
	if len(items) != 1000 {
		t.Fatalf("%d items", len(items))
	}
	for i := range 1000 {
		key := fmt.Sprintf("k%d", i)
		if item := items[key]; item == nil || string(item.Value) != key || item.Flags != uint32(i) {
			t.Fatalf("%s is %+v", key, item)
		}
	}
}

func TestMemcacheCompareAndSwap(t *testing.T) {
	client := memcachedOf(t)
	no(t, client.Set(&memcache.Item{Key: "k", Value: []byte("first")}))
	first, err := client.Get("k")
	no(t, err)
	second, err := client.Get("k")
	no(t, err)
	second.Value = []byte("second")
	no(t, client.CompareAndSwap(second))
	first.Value = []byte("lost")
	if err := client.CompareAndSwap(first); !errors.Is(err, memcache.ErrCASConflict) {
		t.Fatalf("a swap of an old item: %v", err)
	}
	no(t, client.Delete("k"))
	if err := client.CompareAndSwap(second); !errors.Is(err, memcache.ErrCacheMiss) {
		t.Fatalf("a swap of a deleted item: %v", err)
	}
}

func TestMemcacheExpiry(t *testing.T) {
	client := memcachedOf(t)
	no(t, client.Set(&memcache.Item{Key: "k", Value: []byte("v"), Expiration: 1}))
	no(t, client.Set(&memcache.Item{Key: "stays", Value: []byte("v"), Expiration: 60}))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, err := client.Get("k")
		if errors.Is(err, memcache.ErrCacheMiss) {
			break
		}
		no(t, err)
		if time.Now().After(deadline) {
			t.Fatal("it never expired")
		}
	}
	_, err := client.Get("stays")
	no(t, err)
}

func TestMemcacheValuesOfAllSizes(t *testing.T) {
	client := memcachedOf(t)
	for _, size := range []int{0, 1, 16 << 10, 64 << 10, 256 << 10, valueBytesMax} {
		value := allBytes(size)
		no(t, client.Set(&memcache.Item{Key: "large", Value: value}))
		item, err := client.Get("large")
		no(t, err)
		if !bytes.Equal(item.Value, value) {
			t.Fatalf("%d bytes came back as others", size)
		}
	}
	err := client.Set(&memcache.Item{Key: "large", Value: allBytes(valueBytesMax + 1)})
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Fatalf("a value that is too large: %v", err)
	}
	no(t, client.Set(&memcache.Item{Key: "large", Value: []byte("again")}))
}

func TestMemcacheErrors(t *testing.T) {
	made := newTenant(t)
	client := connectMemcached(t, made.Name, made.Secret)
	no(t, client.Set(&memcache.Item{Key: "text", Value: []byte("words")}))
	if _, err := client.Increment("text", 1); err == nil || !strings.Contains(err.Error(), "non-numeric") {
		t.Fatalf("counting words: %v", err)
	}
	_, err := client.Get("text")
	no(t, err)
	stranger := connectMemcached(t, made.Name, made.wrongSecret())
	if _, err := stranger.Get("text"); err == nil || !strings.Contains(err.Error(), "authentication failure") {
		t.Fatalf("a wrong secret: %v", err)
	}
}
