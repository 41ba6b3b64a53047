package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlp"
)

// A transport is a collector without a network.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

const protobuf = "application/x-protobuf"

func respond(status int, contentType string, body io.Reader, header ...string) *http.Response {
	r := &http.Response{StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
		Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body)}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// upload sends a span and returns the outcome.
func upload(ctx context.Context, t *testing.T, c *otlp.Client) (outcome error) {
	t.Helper()
	reports := 0
	c.URL, c.Report = "http://collector.example/v1/traces", func(err error) { outcome, reports = err, reports+1 }
	if c.Over == nil {
		c.Over = context.Background()
	}
	spans := []*traces.ResourceSpans{{ScopeSpans: []*traces.ScopeSpans{{Spans: []*traces.Span{{Name: "call"}}}}}}
	if err := c.UploadTraces(ctx, spans); err != nil || reports != 1 {
		t.Errorf("%d reports, and the error %v", reports, err)
	}
	return outcome
}

// Attempts are repeated when the collector is overloaded or restarts, within a minute.
func TestAttemptsAreRepeated(t *testing.T) {
	const least = 2500 * time.Millisecond
	tests := []struct {
		name     string
		status   int
		header   []string
		attempts int
		least    time.Duration // between two attempts
	}{
		{"too many requests", 429, nil, 3, least},
		{"bad gateway", 502, nil, 3, least},
		{"unavailable", 503, []string{"Retry-After", "invalid"}, 3, least},
		{"gateway timeout", 504, []string{"Retry-After", "-1"}, 3, least},
		{"delay in seconds", 429, []string{"Retry-After", "20"}, 3, 20 * time.Second},
		{"delay until a time", 503, []string{"Retry-After", "Sat, 01 Jan 2000 00:00:25 GMT"}, 3, least},
		{"delay in the past", 503, []string{"Retry-After", "Sat, 01 Jan 1999 00:00:00 GMT"}, 3, least},
		{"delay longer than an export", 429, []string{"Retry-After", "61"}, 1, 0},
		{"delay beyond any number", 429, []string{"Retry-After", strings.Repeat("9", 1000)}, 1, 0},
		{"invalid request", 400, nil, 1, 0},
		{"unauthorized", 401, nil, 1, 0},
		{"too large", 413, []string{"Retry-After", "1"}, 1, 0},
		{"failure", 500, nil, 1, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var times []time.Time
				c := &otlp.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
					body, err := io.ReadAll(r.Body)
					var sent traces.TracesData
					if err != nil || proto.Unmarshal(body, &sent) != nil || len(sent.ResourceSpans) != 1 {
						t.Errorf("attempt %d sends %q, %v", len(times), body, err)
					}
					if times = append(times, time.Now()); len(times) == 3 {
						return respond(200, protobuf, http.NoBody), nil
					}
					return respond(test.status, "text/plain", strings.NewReader("busy"), test.header...), nil
				})}
				err := upload(t.Context(), t, c)
				if len(times) != test.attempts || (err == nil) != (test.attempts == 3) {
					t.Errorf("%d attempts, want %d; error %v", len(times), test.attempts, err)
				}
				status := fmt.Sprintf("%d %s: busy", test.status, http.StatusText(test.status))
				if err != nil && !strings.Contains(err.Error(), status) {
					t.Errorf("error %v", err)
				}
				for i := 1; i < len(times); i++ {
					if pause := times[i].Sub(times[i-1]); pause < test.least || pause > 26*time.Second {
						t.Errorf("a pause of %v, want at least %v", pause, test.least)
					}
				}
			})
		})
	}
}

// A collector that is never ready receives a few attempts, with growing pauses.
func TestAttemptsEnd(t *testing.T) {
	busy := func(attempts *int) transport {
		return func(*http.Request) (*http.Response, error) {
			*attempts++
			return respond(503, "text/plain", http.NoBody), nil
		}
	}
	t.Run("after a minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			attempts, begun := 0, time.Now()
			err := upload(t.Context(), t, &otlp.Client{Transport: busy(&attempts)})
			if took := time.Since(begun); err == nil || took > time.Minute || attempts < 3 || attempts > 12 {
				t.Errorf("%d attempts in %v: %v", attempts, took, err)
			}
		})
	})
	t.Run("before the deadline of the SDK", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			attempts, begun := 0, time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := upload(ctx, t, &otlp.Client{Transport: busy(&attempts)})
			if err == nil || attempts != 1 || time.Since(begun) != 0 {
				t.Errorf("%d attempts in %v: %v", attempts, time.Since(begun), err)
			}
		})
	})
	t.Run("with the program", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			attempts, begun := 0, time.Now()
			over, end := context.WithCancelCause(t.Context())
			ended := errors.New("the program has ended")
			time.AfterFunc(time.Second, func() { end(ended) })
			err := upload(t.Context(), t, &otlp.Client{Transport: busy(&attempts), Over: over})
			if !errors.Is(err, ended) || !strings.Contains(err.Error(), "503") || time.Since(begun) != time.Second {
				t.Errorf("%d attempts in %v: %v", attempts, time.Since(begun), err)
			}
		})
	})
}

// A connection that fails, as while the collector restarts, is attempted again, unless the export is over.
func TestFailedConnectionsAreRepeated(t *testing.T) {
	for _, failure := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, io.ErrUnexpectedEOF} {
		synctest.Test(t, func(t *testing.T) {
			attempts, begun := 0, time.Now()
			collector := transport(func(*http.Request) (*http.Response, error) {
				if attempts++; attempts == 3 {
					return respond(200, protobuf, http.NoBody), nil
				}
				return nil, failure
			})
			err := upload(t.Context(), t, &otlp.Client{Transport: collector})
			if took := time.Since(begun); err != nil || attempts != 3 || took < 5*time.Second {
				t.Errorf("%v: %d attempts in %v: %v", failure, attempts, took, err)
			}
			attempts = -100
			begun = time.Now()
			err = upload(t.Context(), t, &otlp.Client{Transport: collector})
			if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), failure.Error()) ||
				attempts > -90 || took > time.Minute {
				t.Errorf("%v: %d attempts in %v: %v", failure, attempts+100, took, err)
			}
			attempts = -100
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err = upload(ctx, t, &otlp.Client{Transport: collector}); err == nil || attempts != -99 {
				t.Errorf("%v, cancelled: %d attempts: %v", failure, attempts+100, err)
			}
		})
	}
	t.Run("redirect", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			err := upload(t.Context(), t, &otlp.Client{Transport: transport(
				func(*http.Request) (*http.Response, error) {
					attempts++
					return respond(307, "text/plain", http.NoBody, "Location", "http://other.example"), nil
				})})
			if err == nil || attempts != 1 {
				t.Errorf("%d attempts: %v", attempts, err)
			}
		})
	})
}

// The end of the program ends the pause of an export, which has a last attempt.
func TestPausesEndWithTheProgram(t *testing.T) {
	for last, status := range []int{200, 503} {
		synctest.Test(t, func(t *testing.T) {
			attempts, begun := 0, time.Now()
			ending, end := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, end)
			err := upload(t.Context(), t, &otlp.Client{Ending: ending.Done(), Transport: transport(
				func(*http.Request) (*http.Response, error) {
					if attempts++; attempts == 1 {
						return nil, syscall.ECONNREFUSED
					}
					return respond(status, protobuf, http.NoBody), nil
				})})
			if took := time.Since(begun); (err == nil) != (last == 0) || attempts != 2 || took != time.Second {
				t.Errorf("%d: %d attempts in %v: %v", status, attempts, took, err)
			}
		})
	}
}

// An attempt without a response ends after the timeout, and is repeated.
func TestAttemptsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts, begun := 0, time.Now()
		err := upload(t.Context(), t, &otlp.Client{Timeout: 2 * time.Second, Transport: transport(
			func(r *http.Request) (*http.Response, error) {
				if attempts++; attempts == 2 {
					return respond(200, protobuf, http.NoBody), nil
				}
				<-r.Context().Done()
				return nil, r.Context().Err()
			})})
		took := time.Since(begun)
		if err != nil || attempts != 2 || took < 4500*time.Millisecond || took > 10*time.Second {
			t.Errorf("%d attempts in %v: %v", attempts, took, err)
		}
	})
}

// field returns a field of a message.
func field(number protowire.Number, value any) []byte {
	switch v := value.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(v))
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), v)
	}
	panic(value)
}

func join(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func TestResponses(t *testing.T) {
	tests := []struct {
		name        string
		status      int
		contentType string
		body        []byte
		want        string // "" without an error
	}{
		{"empty", 200, protobuf, nil, ""},
		{"accepted", 202, protobuf, field(1, []byte(nil)), ""},
		{"unknown fields", 200, protobuf, join(field(9, 1), field(8, []byte("text"))), ""},
		{"page of a proxy", 200, "text/html", []byte("<html>"), ""},
		{"partial", 200, protobuf, field(1, join(field(1, 3), field(2, []byte("too old")))),
			"3 spans or points were rejected: too old"},
		{"warning", 200, protobuf, field(1, field(2, []byte("deprecated"))),
			"0 spans or points were rejected: deprecated"},
		{"count of another type", 200, protobuf, field(1, field(1, []byte("3"))), ""},
		{"negative", 200, protobuf, field(1, field(1, -1)), "-1 spans or points were rejected: "},
		{"invalid", 200, protobuf, []byte{0xff, 0xff}, "the collector sends an invalid response"},
		{"invalid success", 200, protobuf, field(1, []byte{0x0a, 0x7f}), "the collector sends an invalid response"},
		{"too deep", 200, protobuf, bytes.Repeat([]byte{0x0b}, 60<<10), "the collector sends an invalid response"},
		{"status", 400, protobuf, join(field(1, 3), field(2, []byte("bad span"))),
			"the collector responds 400 Bad Request: bad span"},
		{"invalid status", 400, protobuf, []byte{0xff}, "the collector responds 400 Bad Request"},
		{"text", 403, "text/plain", []byte("no key"), "the collector responds 403 Forbidden: no key"},
		{"status without a meaning", 302, "text/plain", nil, "the collector responds 302 Found"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			collector := transport(func(*http.Request) (*http.Response, error) {
				return respond(test.status, test.contentType, bytes.NewReader(test.body)), nil
			})
			err := upload(t.Context(), t, &otlp.Client{Transport: collector})
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			partial := new(otlp.PartialError)
			if errors.As(err, &partial) != strings.Contains(test.want, "were rejected") {
				t.Errorf("the type of %v is %T", err, err)
			}
		})
	}
}

// endless is a response without an end, which counts the bytes that are read.
type endless struct {
	read   int
	closed bool
}

func (e *endless) Read(b []byte) (int, error) {
	e.read += len(b)
	return copy(b, bytes.Repeat([]byte{0x08}, len(b))), nil
}

func (e *endless) Close() error {
	e.closed = true
	return nil
}

// The client reads a small part of a response without an end.
func TestResponsesAreBounded(t *testing.T) {
	for _, status := range []int{200, 400} {
		body := &endless{}
		err := upload(t.Context(), t, &otlp.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			r := respond(status, protobuf, nil)
			r.Body = body
			return r, nil
		})})
		if err != nil && len(err.Error()) > 128<<10 || body.read > 128<<10 || !body.closed {
			t.Errorf("%d: read %d bytes, closed %v: %.100v", status, body.read, body.closed, err)
		}
	}
}

func TestRequestsAreCompressed(t *testing.T) {
	err := upload(t.Context(), t, &otlp.Client{Gzip: true,
		Header: http.Header{"Api-Key": {"k"}, "Content-Type": {"own"}},
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			unzipped, err := gzip.NewReader(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(unzipped)
			var sent traces.TracesData
			if err != nil || proto.Unmarshal(body, &sent) != nil || len(sent.ResourceSpans) != 1 {
				t.Errorf("the body is %q, %v", body, err)
			}
			h := r.Header
			if h.Get("Content-Encoding") != "gzip" || h.Get("Content-Type") != protobuf || h.Get("Api-Key") != "k" {
				t.Errorf("headers %v", h)
			}
			return respond(200, protobuf, http.NoBody), nil
		})})
	if err != nil {
		t.Error(err)
	}
}

// A metric of an unknown kind does not prevent the export of others, and is reported.
func TestUnknownMetricsAreReported(t *testing.T) {
	var outcome error
	requests := 0
	c := &otlp.Client{URL: "http://collector.example", Over: t.Context(), Report: func(err error) { outcome = err },
		Transport: transport(func(*http.Request) (*http.Response, error) {
			requests++
			return respond(200, protobuf, http.NoBody), nil
		})}
	err := exporterOf(c).Export(t.Context(), &metricdata.ResourceMetrics{Resource: process,
		ScopeMetrics: []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Attributes: attribute.NewSet()},
			Metrics: []metricdata.Metrics{{Name: "summary", Data: metricdata.Summary{}}}}}})
	if err != nil || requests != 1 || outcome == nil ||
		!strings.Contains(outcome.Error(), `metric "summary" is not exported`) {
		t.Errorf("%d requests, %v, outcome %v", requests, err, outcome)
	}
}

// No response makes the client panic, or succeed with an error of another kind than documented.
func FuzzResponse(f *testing.F) {
	f.Add(200, field(1, join(field(1, 3), field(2, []byte("too old")))))
	f.Add(400, join(field(1, 3), field(2, []byte("bad span"))))
	f.Add(200, []byte{0xff})
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status = 200 + status&0xff; status == 429 || status < 200 {
			status = 400 // is not repeated
		}
		err := upload(t.Context(), t, &otlp.Client{Transport: transport(func(*http.Request) (*http.Response, error) {
			return respond(status, protobuf, bytes.NewReader(body)), nil
		})})
		if (status > 299) && err == nil {
			t.Errorf("%d is a success", status)
		}
		if partial := new(otlp.PartialError); errors.As(err, &partial) && status > 299 {
			t.Errorf("%d is a partial success", status)
		}
	})
}
