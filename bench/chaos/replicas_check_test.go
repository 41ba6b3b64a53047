package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// inSession returns an attempt of a client with a session.
func inSession(op string, o outcome, kind string) *attempt {
	a := ended(op, "a", o)
	a.Era, a.Error = revisions[1], kind
	return a
}

// calmly makes the first 10 seconds a time without faults.
func calmly(b batch) batch {
	return b.with(func(b *batch) { b.Calm = [2]time.Duration{0, 10 * time.Second} })
}

func during(kind string, b batch) batch {
	return b.with(func(b *batch) { b.Faults = append(b.Faults, fault{0, 2 * time.Second, kind}) })
}

// atRisk makes the first 2 seconds a time in which the store may lose writes.
func atRisk(b batch) batch {
	return b.with(func(b *batch) { b.Risks = []fault{{0, 2 * time.Second, "failover"}} })
}

// later moves the attempts of a batch by some time.
func later(d time.Duration, b batch) batch {
	return b.with(func(b *batch) {
		b.Attempts = slices.Clone(b.Attempts)
		for i, a := range b.Attempts {
			moved := *a
			moved.Begin, moved.End, moved.Deadline = a.Begin+d, a.End+d, a.Deadline+d
			b.Attempts[i] = &moved
		}
		b.Now += d
	})
}

// since sets when the session of an attempt began.
func since(d time.Duration, a *attempt) *attempt {
	a.Sessions = [2]time.Duration{time.Hour, d}
	return a
}

func wiped(b batch) batch { return during(wipeFault, b) }

func withNote(b batch) batch { return b.with(func(b *batch) { b.Notes = notes("log", 1) }) }

func TestHistoriesOfReplicas(t *testing.T) {
	broken := all(inSession("stream", unknown, "timeout")).ran("run a")
	cancelled := all(inSession(opCancel, unknown, "cancelled"))
	lost := func(began time.Duration) batch {
		return atRisk(later(time.Minute, all(since(began, inSession("append", unsent, "session lost")))))
	}
	const killed = "kill -9 of a process and restart"
	stream := func(d time.Duration) batch { return during(killed, withNote(later(d, broken))) }
	twice := all(ended("ask", "a", answered)).ran("run a", "answered a", "answered a")
	for name, test := range map[string]struct {
		batch batch
		rule  string // empty for no violation
	}{
		"a lost session":                   {all(inSession("append", unsent, "session lost")), "lost: a session ended"},
		"a session lost with the store":    {wiped(all(inSession("append", unsent, "session lost"))), ""},
		"an error":                         {all(ended("append", "a", unsent)), ""},
		"an error without a fault":         {calmly(all(ended("append", "a", unsent))), "liveness: a call failed"},
		"a cancelled call that goes on":    {calmly(cancelled.ran("run a")), "liveness: a call runs"},
		"a cancelled call that ends":       {calmly(cancelled.ran("run a", "stopped a")), ""},
		"a stream that is not resumed":     {withNote(broken), "lost: the stream"},
		"a stream of a process that ended": {stream(0), ""},
		"a stream soon after a fault":      {stream(3 * time.Second), ""},
		"a stream long after a fault":      {stream(6 * time.Second), "lost: the stream"},
		"a stream without an event":        {broken, ""},
		"a state used twice":               {twice, "doubled: 2 answers"},
		"a state of a lost store":          {wiped(twice), ""},
		"a code of a lost store":           {wiped(uses(used("c", failed, ""))), ""},
		"a new session of a failover":      {lost(3 * time.Second), ""},
		"a later session than a failover":  {lost(20 * time.Second), "lost: a session ended"},
		"a state of a failover":            {atRisk(twice), ""},
		"a state long after a failover":    {atRisk(later(time.Minute, twice)), "doubled: 2 answers"},
	} {
		c := newChecker()
		c.shared = true
		found := c.check(test.batch)
		got := ""
		for _, v := range found {
			got += v.Rule
		}
		if !strings.HasPrefix(got, test.rule) || test.rule == "" && got != "" {
			t.Errorf("%s: got %v, want %q", name, found, test.rule)
		}
	}
}

// The proxy keeps the connection of a client when the response of a process is complete.
func TestResponseEnd(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for response, want := range map[string]bool{
		"HTTP/1.1 204 No Content\r\n\r\n":                       true,
		"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n":    true,
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345":     true,
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1234":      false,
		chunked + "5\r\n12345\r\n0\r\n\r\n":                     true,
		chunked + "5\r\n12345\r\n":                              false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r":   false,
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nab": false,
	} {
		for size := 1; size <= len(response); size++ {
			var e responseEnd
			for rest := response; rest != ""; rest = rest[min(size, len(rest)):] {
				_, _ = e.Write([]byte(rest[:min(size, len(rest))]))
			}
			if e.complete() != want {
				t.Errorf("%q in parts of %d: got %t, want %t", response, size, e.complete(), want)
			}
		}
	}
}
