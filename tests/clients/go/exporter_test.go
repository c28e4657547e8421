package clients

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/memcached_exporter/pkg/exporter"
)

// The figures that memcached's exporter has scraped at the listener: by name, and by name and labels.
func scrapeMemcached(t *testing.T) map[string]float64 {
	t.Helper()
	var complaints []string
	logger := log.LoggerFunc(func(words ...any) error {
		// Figures of memcached's crawler and slabs are asked for, which there are none of.
		if text := fmt.Sprintln(words...); !strings.HasPrefix(text, "level debug msg Key not found key") {
			complaints = append(complaints, text)
		}
		return nil
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(exporter.New(os.Getenv("TEST_LISTENER"), 10*time.Second, logger, nil))
	families, err := registry.Gather()
	no(t, err)
	if len(complaints) > 0 {
		t.Fatal(complaints)
	}
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			value := metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue()
			found[family.GetName()] = value
			found[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return found
}

// Every field that the exporter's board shows.
func TestMemcachedExporterScrapesItsBoard(t *testing.T) {
	tidemark(t, "tenant", "create", "listener", "--cap", "32MiB")
	t.Cleanup(func() { tidemark(t, "tenant", "remove", "listener", "--yes") })
	client := memcache.New(os.Getenv("TEST_LISTENER"))
	client.Timeout = 10 * time.Second
	t.Cleanup(func() { client.Close() })
	for i := range 5 {
		no(t, client.Set(&memcache.Item{Key: fmt.Sprintf("k%d", i), Value: []byte("1")}))
	}
	for _, key := range []string{"k0", "k1", "none"} {
		if _, err := client.Get(key); err != nil && err != memcache.ErrCacheMiss {
			t.Fatal(err)
		}
	}
	if _, err := client.Increment("k0", 1); err != nil {
		t.Fatal(err)
	}
	no(t, client.Touch("k1", 60))
	no(t, client.Delete("k4"))
	if err := client.Delete("none"); err != memcache.ErrCacheMiss {
		t.Fatal(err)
	}
	item, err := client.Get("k2")
	no(t, err)
	no(t, client.CompareAndSwap(item))

	found := scrapeMemcached(t)
	for name, expected := range map[string]float64{
		"memcached_up":                                      1,
		"memcached_current_items":                           4,
		"memcached_limit_bytes":                             32 * mib,
		"memcached_items_evicted_total":                     0,
		"memcached_items_reclaimed_total":                   0,
		"memcached_accepting_connections":                   1,
		"memcached_commands_total{command=get,status=hit}":  3,
		"memcached_commands_total{command=get,status=miss}": 1,
		// A compare-and-swap is not among them.
		"memcached_commands_total{command=set,status=hit}":     5,
		"memcached_commands_total{command=delete,status=hit}":  1,
		"memcached_commands_total{command=delete,status=miss}": 1,
		"memcached_commands_total{command=incr,status=hit}":    1,
		"memcached_commands_total{command=touch,status=hit}":   1,
		"memcached_commands_total{command=cas,status=hit}":     1,
	} {
		if value, ok := found[name]; !ok || value != expected {
			t.Errorf("%s is %v, not %v", name, value, expected)
		}
	}
	for _, name := range []string{
		"memcached_version", "memcached_uptime_seconds", "memcached_time_seconds", "memcached_current_bytes",
		"memcached_items_total", "memcached_current_connections", "memcached_max_connections", "memcached_connections_total",
		"memcached_read_bytes_total", "memcached_written_bytes_total",
		"memcached_slab_current_items", "memcached_slab_mem_requested_bytes", "memcached_slab_chunks_used",
	} {
		if found[name] <= 0 {
			t.Errorf("%s is %v", name, found[name])
		}
	}
	for _, name := range []string{
		"memcached_connections_rejected_total", "memcached_connections_yielded_total",
		"memcached_connections_listener_disabled_total", "memcached_malloced_bytes",
		"memcached_process_user_cpu_seconds_total", "memcached_process_system_cpu_seconds_total",
		"memcached_slab_items_age_seconds", "memcached_slab_items_evicted_total",
	} {
		if _, ok := found[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if t.Failed() {
		t.Log(found)
	}
}
