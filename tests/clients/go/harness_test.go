// Package clients tests Go's clients against a server that scripts/with-server started. Each test has a tenant of its
// own, made through the command line.
package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

const (
	mib = 1 << 20
	// The largest value that the server takes by default.
	valueBytesMax = mib
)

type tenant struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// A secret of the right form that is not the tenant's.
func (t tenant) wrongSecret() string {
	last := "A"
	if t.Secret[len(t.Secret)-1:] == last {
		last = "B"
	}
	return t.Secret[:len(t.Secret)-1] + last
}

var tenants atomic.Int32

// Runs the command line; what it prints.
func tidemark(t *testing.T, arguments ...string) []byte {
	t.Helper()
	command := exec.Command(os.Getenv("TEST_TIDEMARK"), append([]string{"--json"}, arguments...)...)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return out
}

// A tenant that no other test knows, until the test ends.
func newTenant(t *testing.T) tenant {
	t.Helper()
	name := fmt.Sprintf("go-%d-%d", os.Getpid(), tenants.Add(1))
	var made tenant
	if err := json.Unmarshal(tidemark(t, "tenant", "create", name, "--cap", "32MiB"), &made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tidemark(t, "tenant", "remove", name, "--yes") })
	return made
}

func redisAddress() string     { return os.Getenv("TEST_REDIS") }
func memcachedAddress() string { return os.Getenv("TEST_MEMCACHED") }

// A context in which nothing of a test may hang.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func no(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Every byte, so that nothing is taken for text.
func allBytes(size int) []byte {
	bytes := make([]byte, size)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	return bytes
}
