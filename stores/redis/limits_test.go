package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// The keys of limits do not contain names of principals, and are deleted when they have no effect any more.
func TestKeysOfLimitsExpire(t *testing.T) {
	s := openPrefix(t, "limit").Limits()
	if _, _, _, err := s.Take(t.Context(), "secret name", 100*time.Millisecond, 3, 1); err != nil {
		t.Fatal(err)
	}
	first := state.Operation{Process: "a", Number: 1}
	if _, err := s.Lease(t.Context(), "secret name", first, time.Second, 100, 3); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Join(t.Context(), "process", 300*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if keys := keysOf(t, "limit"); strings.Contains(fmt.Sprint(keys), "name") {
		t.Errorf("the keys contain the name of a principal: %q", keys)
	}
	await(t, func() error {
		if keys := keysOf(t, "limit"); len(keys) > 0 {
			return fmt.Errorf("these keys remain: %q", keys)
		}
		return nil
	})
}

// A process that joined while the clock of the server was ahead, and was killed, does not count.
func TestProcessesAfterTheClockWentBack(t *testing.T) {
	s := openPrefix(t, "ahead").Limits()
	join := func(process string) (place, processes int) {
		t.Helper()
		place, processes, err := s.Join(t.Context(), process, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return place, processes
	}
	join("killed")
	ahead := strconv.FormatInt(time.Now().Add(48*time.Hour).UnixMilli(), 10)
	command(t, shared.url(), "ZADD", "ahead:processes", ahead, "killed")
	join("a")
	if place, processes := join("z"); place != 1 || processes != 2 {
		t.Errorf("the process is %d of %d, want 1 of 2", place, processes)
	}
}

// A server whose clock is behind, after a failover, blocks a caller for at most the time that its bucket needs to fill.
// It continues a budget of the next period, and begins a budget of a later period again.
func TestLimitsAfterTheClockWentBack(t *testing.T) {
	s := openPrefix(t, "clock").Limits()
	take := func() time.Duration {
		t.Helper()
		_, _, wait, err := s.Take(t.Context(), "a", time.Minute, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	number := int64(0)
	lease := func() (units, taken int64) {
		t.Helper()
		number++
		l, err := s.Lease(t.Context(), "a", state.Operation{Process: "a", Number: number}, 24*time.Hour, 10, 4)
		if err != nil {
			t.Fatal(err)
		}
		return l.Units, l.Taken
	}
	take()
	lease()
	move := func(days int) {
		ahead := time.Now().AddDate(0, 0, days)
		for _, key := range keysOf(t, "clock") {
			if strings.HasPrefix(key, "clock:rate:") {
				command(t, shared.url(), "SET", key, strconv.FormatInt(ahead.UnixMicro(), 10), "PX", "3600000")
			} else {
				command(t, shared.url(), "HSET", key, "period", strconv.FormatInt(ahead.Unix()/86400, 10))
			}
		}
	}
	move(1)
	if wait := take(); wait <= 0 || wait > time.Minute {
		t.Errorf("the next token needs %v, want at most a minute", wait)
	}
	if units, taken := lease(); units != 4 || taken != 8 {
		t.Errorf("the lease contains %d, %d in all; want 4 and 8", units, taken)
	}
	move(365 * 25)
	if units, taken := lease(); units != 4 || taken != 4 {
		t.Errorf("after 25 years, the lease contains %d, %d in all; want 4 and 4", units, taken)
	}
}

// Calls of a caller below a rate with a large burst do not send a command each.
func TestRatesOfCallsInBatches(t *testing.T) {
	const calls, batch, rates, patchbay = 1000, 2000 / 32, 2, `{"limits": {"perTool": "1000/s burst 2000"}}`
	server := startServer(t)
	const servers = `{"s": {"url": "https://s.example/mcp"}}`
	file, err := config.Parse([]byte(`{"mcpServers": ` + servers + `, "patchbay": ` + patchbay + `}`))
	if err != nil {
		t.Fatal(err)
	}
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "tool"}, func(context.Context, struct{}) (string, error) { return "done", nil })
	h, err := host.Open(t.Context(), file, &host.Options{Limits: open(t, server.url(), calm()).Limits(),
		Logger: slog.New(slog.DiscardHandler),
		Dial:   func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(s), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ann := &policy.Caller{Principal: &mcp.Principal{Subject: "ann"}}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(ann)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	command(t, server.url(), "CONFIG", "RESETSTAT")
	for range calls {
		if res, err := c.CallTool(t.Context(), "s__tool", nil); err != nil || res.IsError {
			t.Fatalf("got %+v, %v", res, err)
		}
	}
	text := command(t, server.url(), "INFO", "commandstats")
	stats, err := text.ToString()
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, line := range strings.Split(stats, "\r\n") {
		var n int
		if name, rest, _ := strings.Cut(line, ":calls="); strings.HasPrefix(name, "cmdstat_eval") {
			_, _ = fmt.Sscan(rest, &n)
		}
		commands += n
	}
	if most := 2 * rates * calls / batch; commands == 0 || commands > most {
		t.Errorf("%d calls sent %d scripts, want 1 to %d:\n%s", calls, commands, most, stats)
	}
}

// Without a server, limits fail in bounded time, so that a process can admit its share.
func TestLimitsWithoutAServer(t *testing.T) {
	server := startServer(t)
	limits := open(t, server.url(), &redis.Options{Timeout: time.Second}).Limits()
	await(t, func() error {
		_, _, _, err := limits.Take(t.Context(), "a", time.Hour, 2, 1)
		return err
	})
	command(t, server.url(), "CLIENT", "PAUSE", strconv.Itoa(int(patience.Milliseconds())), "ALL")
	begin := time.Now()
	for range 100 {
		taken, left, wait, err := limits.Take(t.Context(), "a", time.Hour, 2, 1)
		if taken != 0 || left != 0 || wait != 0 || !errors.Is(err, redis.ErrUnavailable) {
			t.Fatalf("Take of a paused server returned %d, %d, %v, %v", taken, left, wait, err)
		}
		l, err := limits.Lease(t.Context(), "a", state.Operation{Process: "a", Number: 1}, 24*time.Hour, 2, 1)
		if l.Units != 0 || !errors.Is(err, redis.ErrUnavailable) {
			t.Fatalf("Lease of a paused server returned %+v, %v", l, err)
		}
	}
	if took := time.Since(begin); took > patience/2 { // three operations take a second each
		t.Errorf("200 operations of a paused server took %v", took)
	}
}
