//go:build unix

package capture_test

import (
	"net/http/httptest"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// BenchmarkCapture compares the CPU time of calls through a host that records summaries, or also bodies,
// with calls through a host that records nothing. The time includes client and server, in memory or over
// HTTP on both sides of the host. The batches alternate, and the median of each counts.
func BenchmarkCapture(b *testing.B) {
	for name, over := range map[string]func(testing.TB, mcp.Handler) mcp.Transport{"memory": inMemory, "http": overHTTP} {
		b.Run(name, func(b *testing.B) {
			const calls = 200
			clients := []*mcp.Client{openHost(b, nil, nil, over), openHost(b, capture.New(nil), nil, over),
				openHost(b, capture.New(&capture.Options{Always: true}), nil, over)}
			var batches [3][]time.Duration
			for b.Loop() {
				for i, c := range clients {
					began := cpuTime(b)
					for range calls {
						if _, err := c.CallTool(b.Context(), "srv__add", map[string]any{"a": 1}); err != nil {
							b.Fatal(err)
						}
					}
					batches[i] = append(batches[i], cpuTime(b)-began)
				}
			}
			off := median(batches[0])
			b.ReportMetric(float64(off.Nanoseconds())/calls, "cpu-ns/call")
			b.ReportMetric(float64(median(batches[1]))/float64(off), "summaries")
			b.ReportMetric(float64(median(batches[2]))/float64(off), "bodies")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// cpuTime returns the CPU time of the process.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func overHTTP(t testing.TB, h mcp.Handler) mcp.Transport {
	server := httptest.NewServer(mcphttp.NewHandler(h, nil))
	t.Cleanup(server.Close)
	return mcphttp.NewTransport(server.URL, nil)
}
