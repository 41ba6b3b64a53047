package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// An outcome is how an attempt ended, as its client reports it.
type outcome string

const (
	answered outcome = "answered" // with the result of the tool
	failed   outcome = "failed"   // with an error of the tool or of the server: it may have run
	unsent   outcome = "unsent"   // with an error that says that it has not run
	unknown  outcome = "unknown"  // with an error that says that it may have run
	untyped  outcome = "untyped"  // with an error that says neither
)

// An attempt is one call of a client. Attempts with one nonce are retries of one call.
type attempt struct {
	ID        int
	Worker    int
	Principal string
	Era       string
	Op        string
	Nonce     string
	Begin     time.Duration // since the start of the run, as are all times
	End       time.Duration // zero while it is in progress
	Deadline  time.Duration // by which it has to end
	Late      time.Duration // how long this process was not scheduled meanwhile
	Outcome   outcome
	Error     string // its kind, for the table
	Detail    string // the text of the error
	Want, Got string // the text of the result

	Sessions [2]time.Duration // when the sessions of the worker began, the current one last
}

func (a *attempt) String() string {
	return fmt.Sprintf("%8.3f–%8.3f worker %d %s %s %s %s: %s %s got %q want %q %s", a.Begin.Seconds(), a.End.Seconds(),
		a.Worker, a.Principal, a.Era, a.Op, a.Nonce, a.Outcome, a.Error, a.Got, a.Want, a.Detail)
}

// A note is a notification that a client received.
type note struct {
	At     time.Duration
	Stream string // the nonce of its call, or the name of its subscription
	Kind   string // progress, log, tick, clock
	Owner  string // the principal that received it
	For    string // the principal that it was made for
	N      int64
	Late   bool // it arrived after the result of its call
}

func (n note) String() string {
	return fmt.Sprintf("%8.3f %s of %s: number %d for %s received by %s", n.At.Seconds(), n.Kind, n.Stream, n.N, n.For,
		n.Owner)
}

// A singleUse is one use of something that may be used once: a code, a refresh token, the answer to
// a question.
type singleUse struct {
	Begin, End time.Duration
	Chain      string // of the login or call that it belongs to
	Kind       string // code, refresh, answer
	Secret     string // what is used
	Outcome    outcome
	Result     string // what it was exchanged for
	Again      bool   // the worker used it before
}

func (u singleUse) String() string {
	return fmt.Sprintf("%8.3f–%8.3f %s of %s: …%s used (again: %t): %s …%s", u.Begin.Seconds(), u.End.Seconds(),
		u.Kind, u.Chain, ending(u.Secret), u.Again, u.Outcome, ending(u.Result))
}

// ending returns the end of a secret, in which two secrets differ.
func ending(s string) string { return s[max(0, len(s)-12):] }

// A fault is what the nemesis did.
type fault struct {
	Begin, End time.Duration
	Kind       string
}

func (f fault) String() string {
	return fmt.Sprintf("%8.3f–%8.3f fault: %s", f.Begin.Seconds(), f.End.Seconds(), f.Kind)
}

// A batch is the part of a history between two checks.
type batch struct {
	Attempts   []*attempt // that have ended
	Open       []attempt  // that are in progress
	Notes      []note
	Uses       []singleUse
	Faults     []fault
	Duplicates []string // bodies of requests that the proxy delivered twice
	Runs       []string // lines of the journal
	Now        time.Duration
	Direct     []violation      // found by a worker
	Calm       [2]time.Duration // no fault was near: zero for no such time
	Late       time.Duration    // how long this process was not scheduled, since the start
	Risks      []fault          // since the start
}

// appendTo appends a batch to a file, in which the cause of a violation can be found.
func (b batch) appendTo(dir string) error {
	file, err := os.OpenFile(filepath.Join(dir, "history"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	for _, a := range b.Attempts {
		fmt.Fprintln(w, a)
	}
	for _, n := range b.Notes {
		fmt.Fprintln(w, n)
	}
	for _, u := range b.Uses {
		fmt.Fprintln(w, u)
	}
	for _, f := range b.Faults {
		fmt.Fprintln(w, f)
	}
	return errors.Join(w.Flush(), file.Close())
}

// keepHistory keeps the file of a stage in which a rule was broken, and removes it otherwise.
func keepHistory(dir string, stage int, keep bool) {
	name := filepath.Join(dir, "history")
	if keep {
		_ = os.Rename(name, fmt.Sprint(name, "-", stage))
		return
	}
	_ = os.Remove(name)
}

// A history records what happens. Its methods are safe for concurrent use.
type history struct {
	start time.Time
	late  lateness

	mu    sync.Mutex // guards the fields below
	last  int
	wiped time.Duration // when the shared store last lost its data
	risks []fault       // in which the shared store may lose writes that it has confirmed
	open  map[int]*attempt
	batch batch
	total table
}

func newHistory() *history {
	return &history{start: time.Now(), open: map[int]*attempt{}, total: newTable()}
}

func (h *history) now() time.Duration { return time.Since(h.start) }

// begin records the begin of an attempt. The caller fills in the rest and passes it to end.
func (h *history) begin(a attempt, timeout time.Duration) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	a.ID, a.Begin, a.Late = h.last, h.now(), h.late.sum()
	a.Deadline = a.Begin + timeout
	started := a
	h.open[a.ID] = &started
	return &a
}

func (h *history) end(a *attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a.End, a.Late = h.now(), h.late.sum()-a.Late
	delete(h.open, a.ID)
	h.batch.Attempts = append(h.batch.Attempts, a)
	h.total.add(a)
}

func (h *history) note(n note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n.At = h.now()
	h.batch.Notes = append(h.batch.Notes, n)
	h.total.notes[n.Kind]++
}

func (h *history) use(u singleUse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batch.Uses = append(h.batch.Uses, u)
	h.total.uses[u.Kind+" "+string(u.Outcome)]++
}

func (h *history) fault(f fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batch.Faults = append(h.batch.Faults, f)
	h.total.faults[f.Kind]++
}

func (h *history) duplicated(body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batch.Duplicates = append(h.batch.Duplicates, body)
	h.total.duplicates++
}

// calm records a time in which no fault is near.
func (h *history) calm(span [2]time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batch.Calm = span
}

// wipe records that the shared store has lost its data.
func (h *history) wipe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wiped = h.now()
}

// risk records that the shared store may lose writes that it has confirmed until the function is called.
func (h *history) risk() (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := len(h.risks)
	h.risks = append(h.risks, fault{Begin: h.now(), End: endless, Kind: "risk"})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.risks[i].End = h.now()
	}
}

const (
	endless = time.Duration(1<<63 - 1)
	// riskBefore and riskAfter extend a risk: writes may have been on their way to a replica, and
	// clients may use the former master until it learns that it is none.
	riskBefore, riskAfter = time.Second, 5 * time.Second
)

// isRisky reports whether what was written between two times may be lost.
func isRisky(risks []fault, from, to time.Duration) bool {
	return slices.ContainsFunc(risks, func(f fault) bool {
		return f.Begin-riskBefore <= to && (f.End == endless || f.End+riskAfter >= from)
	})
}

// survives reports whether a task that started at a time must still be in the store.
func (h *history) survives(born time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return born > h.wiped && h.now()-born < taskTTL && !isRisky(h.risks, born, born)
}

// violate records a violation that a worker has found.
func (h *history) violate(rule, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batch.Direct = append(h.batch.Direct, violation{Rule: rule, Lines: []string{
		fmt.Sprintf("%8.3f %s", h.now().Seconds(), text)}})
}

// take returns what was recorded since the last call. mark is called at the same moment: what is in
// the journal before it comes from attempts in this batch or in earlier ones.
func (h *history) take(mark func()) batch {
	h.mu.Lock()
	defer h.mu.Unlock()
	mark()
	b := h.batch
	h.batch = batch{}
	b.Now, b.Late, b.Risks = h.now(), h.late.sum(), slices.Clone(h.risks)
	for _, a := range h.open {
		open := *a
		open.Late = h.late.sum() - a.Late
		b.Open = append(b.Open, open)
	}
	return b
}

// quick are the operations whose success is measured: they need nothing but a server.
var quick = []string{"echo", "append"}

// success counts the quick attempts that began in a span of time, and those that were answered.
func (h *history) success(from, to time.Duration) (answers, all int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := func(a *attempt) {
		if a.Begin < from || a.Begin >= to || !slices.Contains(quick, a.Op) {
			return
		}
		all++
		if a.Outcome == answered {
			answers++
		}
	}
	for i := len(h.batch.Attempts) - 1; i >= 0; i-- {
		count(h.batch.Attempts[i])
	}
	for _, a := range h.open {
		count(a)
	}
	return answers, all
}

// A table is the totals of a run.
type table struct {
	faults, answers, errors, notes, uses map[string]int
	calls, duplicates                    int
}

func newTable() table {
	return table{faults: map[string]int{}, answers: map[string]int{}, errors: map[string]int{},
		notes: map[string]int{}, uses: map[string]int{}}
}

func (t *table) add(a *attempt) {
	t.calls++
	if a.Outcome == answered {
		t.answers[a.Op]++
		return
	}
	t.errors[string(a.Outcome)+": "+a.Error]++
}

// String returns the table as text.
func (t *table) String() string {
	var b strings.Builder
	section := func(name string, counts map[string]int) {
		keys, sum := make([]string, 0, len(counts)), 0
		for key, n := range counts {
			keys, sum = append(keys, key), sum+n
		}
		slices.Sort(keys)
		fmt.Fprintf(&b, "%s: %d\n", name, sum)
		for _, key := range keys {
			fmt.Fprintf(&b, "  %8d  %s\n", counts[key], key)
		}
	}
	section("faults", t.faults)
	fmt.Fprintf(&b, "calls: %d\n", t.calls)
	section("answers", t.answers)
	section("typed errors", t.errors)
	section("notifications", t.notes)
	section("uses of what may be used once", t.uses)
	fmt.Fprintf(&b, "requests that the proxy delivered twice: %d\n", t.duplicates)
	return b.String()
}
