package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/replica"
)

// An operation is a row of the table: what one process does for a client.
type operation struct {
	name string
	// prepare returns the function of each repetition. The repetitions run one after the other, so that the
	// times are latencies.
	prepare func(r *replicas) (func(n int) error, error)
}

var operations = []operation{
	{"a call of a session, at its process", func(r *replicas) (func(int) error, error) {
		id, err := r.open(0)
		return func(n int) error { return r.call(0, n, id) }, err
	}},
	{"a call of a session, at the next process", func(r *replicas) (func(int) error, error) {
		id, err := r.open(0)
		return func(n int) error { return r.call(n, n, id) }, err
	}},
	{"initialize", func(r *replicas) (func(int) error, error) {
		return func(n int) error { _, err := r.open(n); return err }, nil
	}},
	{"initialize, and the first call at another process", func(r *replicas) (func(int) error, error) {
		return func(n int) error {
			id, err := r.open(n)
			if err != nil {
				return err
			}
			return r.call(n+1, n, id)
		}, nil
	}},
	{"initialize and DELETE", func(r *replicas) (func(int) error, error) {
		return func(n int) error {
			id, err := r.open(n)
			if err != nil {
				return err
			}
			_, err = r.do(n, http.MethodDelete, id, "")
			return err
		}, nil
	}},
	{"a change of the record, which two processes read again", func(r *replicas) (func(int) error, error) {
		id, err := r.open(0)
		return func(n int) error {
			level := []string{"info", "debug"}[n%2]
			_, err := r.do(0, http.MethodPost, id, fmt.Sprintf(
				`{"jsonrpc":"2.0","id":%d,"method":"logging/setLevel","params":{"level":%q}}`, n, level))
			return errors.Join(err, r.call(1, n, id), r.call(2, n, id))
		}, err
	}},
	{"the life of a session is extended", func(r *replicas) (func(int) error, error) {
		sessions, ctx := r.stores[0].Redis.Sessions(), context.Background()
		err := sessions.Create(ctx, "bench", replica.Session{}, time.Hour)
		return func(int) error { return sessions.Keep(ctx, "bench", time.Hour) }, err
	}},
	{"a question, answered at its process", func(r *replicas) (func(int) error, error) {
		id, err := r.open(0)
		return func(n int) error { return r.ask(0, 0, n, id) }, err
	}},
	{"a question, answered at another process", func(r *replicas) (func(int) error, error) {
		id, err := r.open(0)
		return func(n int) error { return r.ask(0, 1+n%2, n, id) }, err
	}},
	{"a call with a progress notification, whose events have ids", func(r *replicas) (func(int) error, error) {
		id, err := r.stored.open(0)
		return func(n int) error {
			w, err := r.stored.do(0, http.MethodPost, id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call",`+
				`"params":{"name":"step","arguments":{},"_meta":{"progressToken":"p"}}}`, n))
			if err != nil {
				return err
			}
			if body := w.Body.String(); !strings.Contains(body, "\nid: ") || !strings.Contains(body, "done") {
				return fmt.Errorf("no event has an id: %s", body)
			}
			return nil
		}, err
	}},
}

// figures are the cost of an operation.
type figures struct {
	redis, process time.Duration // CPU
	commands       float64       // of Redis, with the commands of scripts
	p50, p99       time.Duration
}

// measure runs an operation n times.
func (o *operation) measure(server *redisServer, r *replicas, n int) (f figures, err error) {
	repeat, err := o.prepare(r)
	if err != nil {
		return f, err
	}
	for i := range 100 { // until buffers and caches are warm
		if err := repeat(i); err != nil {
			return f, err
		}
	}
	before, err := server.usage()
	if err != nil {
		return f, err
	}
	begin, times := rig.CPUTime(), make([]time.Duration, n)
	for i := range n {
		start := time.Now()
		if err := repeat(100 + i); err != nil {
			return f, err
		}
		times[i] = time.Since(start)
	}
	f.process = (rig.CPUTime() - begin) / time.Duration(n)
	after, err := server.usage()
	f.redis, f.commands = (after.cpu-before.cpu)/time.Duration(n), (after.commands-before.commands)/float64(n)
	slices.Sort(times)
	f.p50, f.p99 = times[n/2], times[n*99/100]
	return f, err
}
