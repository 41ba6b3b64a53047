package main

import (
	"strings"
	"testing"
	"time"
)

// ended returns an attempt that took 10 ms and has a deadline of a second.
func ended(op, nonce string, o outcome) *attempt {
	a := &attempt{ID: 1, Principal: "p0", Op: op, Nonce: nonce, Begin: time.Second, End: time.Second + 10*time.Millisecond,
		Deadline: 2 * time.Second, Outcome: o, Want: "p0 " + nonce}
	if o == answered {
		a.Got = a.Want
	}
	return a
}

func all(attempts ...*attempt) batch { return batch{Attempts: attempts, Now: 3 * time.Second} }

func (b batch) with(change func(b *batch)) batch {
	change(&b)
	return b
}

func (b batch) ran(lines ...string) batch { return b.with(func(b *batch) { b.Runs = lines }) }

func (b batch) twice(bodies ...string) batch { return b.with(func(b *batch) { b.Duplicates = bodies }) }

func notes(kind string, numbers ...int64) (all []note) {
	for _, n := range numbers {
		all = append(all, note{Stream: "a", Kind: kind, Owner: "p0", For: "p0", N: n})
	}
	return all
}

func noted(kind string, numbers ...int64) batch { return batch{Notes: notes(kind, numbers...)} }

func used(secret string, o outcome, result string) singleUse {
	return singleUse{Chain: "a", Kind: "code", Secret: secret, Outcome: o, Result: result}
}

func uses(all ...singleUse) batch { return batch{Uses: all} }

func again(u singleUse) singleUse {
	u.Again = true
	return u
}

const body = `{"params":{"arguments":{"nonce":"a"}}}`

var goodHistories = map[string]batch{
	"an answer":                  all(ended("append", "a", answered)).ran("run a"),
	"an error and no run":        all(ended("append", "a", unsent)),
	"an unclear error and a run": all(ended("append", "a", unknown)).ran("run a"),
	"a retry after an unclear error": all(ended("append", "a", unknown), ended("append", "a", answered)).
		ran("run a", "run a"),
	"a duplicate of the proxy":          all(ended("append", "a", answered)).ran("run a", "run a").twice(body),
	"a task that restarts":              all(ended("again", "a", answered)).ran("run a", "run a", "run a"),
	"a question with its answer":        all(ended("ask", "a", answered)).ran("run a", "answered a"),
	"a run of a call in progress":       {Open: []attempt{*ended("append", "a", "")}, Runs: []string{"run a"}},
	"a subscription that skips":         noted("tick", 1, 5, 5, 9),
	"a code that is refused later":      uses(used("c", answered, "t"), again(used("c", failed, ""))),
	"the same successor again":          uses(used("c", answered, "t"), again(used("c", answered, "t"))),
	"a refusal after a lost answer":     uses(used("c", unknown, ""), used("c", failed, "")),
	"a use after one that was not sent": uses(used("c", unsent, ""), used("c", answered, "t")),
	"a refusal after a duplicate":       uses(used("c", failed, "")).twice("code=c"),
	"a call that ends within the time": all(ended("append", "a", unsent)).with(func(b *batch) {
		b.Attempts[0].End = 2900 * time.Millisecond
	}),
	"a slow call on a busy machine": all(ended("append", "a", unsent)).with(func(b *batch) {
		b.Attempts[0].End, b.Attempts[0].Late = 4*time.Second, 2*time.Second
	}),
	"all messages of a stream": all(ended("stream", "a", answered)).ran("run a").with(func(b *batch) {
		b.Notes = append(notes("log", 1, 2, 3, 4, 5, 6), notes("progress", 1, 2, 3, 6)...)
	}),
}

func TestGoodHistoriesPass(t *testing.T) {
	for name, b := range goodHistories {
		c := newChecker()
		for _, b := range []batch{b, {Now: b.Now, Open: b.Open}} { // the second one judges the streams of the first one
			for _, v := range c.check(b) {
				t.Errorf("%s: %v", name, v)
			}
		}
	}
}

var badHistories = map[string]struct {
	batch batch
	rule  string
}{
	"an answer without a run":      {all(ended("append", "a", answered)), "lost: an answered call"},
	"an untyped error":             {all(ended("append", "a", untyped)), "lost: a call ended without"},
	"a run without a call":         {batch{Runs: []string{"run a"}}, "doubled"},
	"a run after an error without": {all(ended("append", "a", unsent)).ran("run a"), "doubled"},
	"two runs of one answer":       {all(ended("append", "a", answered)).ran("run a", "run a"), "doubled"},
	"three runs with one duplicate": {all(ended("append", "a", answered)).ran("run a", "run a", "run a").twice(body),
		"doubled"},
	"two answers to a question": {all(ended("ask", "a", answered)).ran("run a", "answered a", "answered a"),
		"doubled: 2 answers"},
	"a lost answer to a question": {all(ended("ask", "a", answered)).ran("run a"), "lost: the answer to a question"},
	"the answer of another": {all(ended("append", "a", answered)).ran("run a").with(func(b *batch) {
		b.Attempts[0].Got = "p1 a"
	}), "crossed"},
	"a notification of another": {batch{Notes: []note{{Stream: "a", Kind: "tick", Owner: "p0", For: "p1"}}}, "crossed"},
	"numbers that fall":         {noted("tick", 5, 4), "order"},
	"a message twice":           {noted("log", 1, 1), "order"},
	"progress after the result": {batch{Notes: []note{{Stream: "a", Kind: "progress", Owner: "p0", For: "p0", Late: true}}},
		"order"},
	"a late end": {all(ended("append", "a", unsent)).with(func(b *batch) {
		b.Attempts[0].End = 4 * time.Second
	}), "liveness"},
	"no end":                         {batch{Open: []attempt{*ended("append", "a", "")}, Now: 9 * time.Second}, "liveness"},
	"a code accepted twice":          {uses(used("c", answered, "t"), again(used("c", answered, "u"))), "doubled: one code"},
	"a granted code that is refused": {uses(used("c", failed, "")), "lost: a granted code"},
	"a successor that is refused":    {uses(used("c", answered, "d"), used("d", failed, "")), "lost: a granted code"},
	"what a worker found":            {batch{Direct: []violation{{Rule: "crossed: a task"}}}, "crossed: a task"},
	"a gap in a stream with a result": {all(ended("stream", "a", answered)).ran("run a").with(func(b *batch) {
		b.Notes = notes("log", 1, 2, 4, 5, 6)
	}), "order: an answered call has 5"},
}

func TestBadHistoriesFail(t *testing.T) {
	for name, test := range badHistories {
		c := newChecker()
		found := append(c.check(test.batch), c.check(batch{Now: test.batch.Now})...)
		if len(found) != 1 || !strings.HasPrefix(found[0].Rule, test.rule) {
			t.Errorf("%s: got %v, want one violation %q", name, found, test.rule)
		}
	}
}

// The proxy may deliver a request twice some time before the use of its secret is recorded.
func TestDuplicateBeforeTheEndOfAUse(t *testing.T) {
	c := newChecker()
	c.check(batch{Duplicates: []string{"code=c"}, Now: time.Second})
	refused := uses(used("c", failed, ""))
	refused.Now = 4 * time.Second
	if found := c.check(refused); len(found) > 0 {
		t.Errorf("got %v, want no violation", found)
	}
}
