package oauth_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// BenchmarkKnownTokenUnderInvalidTokens measures how long requests with a known token take: quiet, and
// while 2,000 callers send a new invalid token each second. heap-growth-MB is what the flood leaves in
// memory. The authorization server answers after 20 ms. One iteration is enough: -benchtime 1x.
func BenchmarkKnownTokenUnderInvalidTokens(b *testing.B) {
	for _, tt := range []struct {
		name      string
		cacheTime time.Duration
	}{{"default cache", 0}, {"cache of 200ms", 200 * time.Millisecond}, {"no cache", -1}} {
		b.Run(tt.name, func(b *testing.B) {
			for b.Loop() {
				h := introspected(b, tt.cacheTime)
				before := heapInUse()
				quiet := latencies(b, h)
				stop := flood(h)
				time.Sleep(time.Second) // until the queue is full
				loaded := latencies(b, h)
				stop()
				b.ReportMetric(heapInUse()-before, "heap-growth-MB")
				for name, all := range map[string][]time.Duration{"quiet": quiet, "flood": loaded} {
					b.ReportMetric(milliseconds(all[len(all)/2]), name+"-p50-ms")
					b.ReportMetric(milliseconds(all[len(all)*99/100]), name+"-p99-ms")
				}
			}
		})
	}
}

// heapInUse returns the size of the live heap, in megabytes.
func heapInUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// introspected returns a resource whose authorization server knows one token.
func introspected(b *testing.B, cacheTime time.Duration) http.Handler {
	const answerTime = 20 * time.Millisecond
	as := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(answerTime)
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, mustJSON(goodClaims(claims{"active": form.Get("token") == "known", "iss": nil})))
	}))
	b.Cleanup(as.Close)
	v := oauth.NewIntrospectionVerifier(issuerURL, &oauth.IntrospectionOptions{
		Endpoint: as.URL, ClientID: "me", ClientSecret: "secret", CacheTime: cacheTime,
		Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{InsecureAnyAddress: true, Logger: discardLog}),
	})
	served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	return oauth.Require(v, testMetadata(), &oauth.RequireOptions{Logger: discardLog})(served)
}

// sendToken sends one request with a token and returns the status.
func sendToken(h http.Handler, token string) int {
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(""))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// latencies returns the sorted times of requests with the known token, one every 5 ms.
func latencies(b *testing.B, h http.Handler) (all []time.Duration) {
	const requests, interval = 800, 5 * time.Millisecond
	for range requests {
		begun := time.Now()
		if code := sendToken(h, "known"); code != http.StatusOK {
			b.Fatalf("got status %d for the known token, want 200", code)
		}
		took := time.Since(begun)
		all = append(all, took)
		time.Sleep(max(0, interval-took))
	}
	slices.Sort(all)
	return all
}

// flood starts 2,000 callers that send a new invalid token each second, until stop is called.
func flood(h http.Handler) (stop func()) {
	const callers = 2000
	var running sync.WaitGroup
	done := make(chan struct{})
	for i := range callers {
		running.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / callers)
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for n := 0; ; n++ {
				sendToken(h, fmt.Sprintf("invalid-%d-%d", i, n))
				select {
				case <-tick.C:
				case <-done:
					return
				}
			}
		})
	}
	return func() {
		close(done)
		running.Wait()
	}
}
