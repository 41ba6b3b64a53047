package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// grace is how long after its deadline a call may end, without the time for which this process was
// not scheduled. The machine is shared: 100 ms, which a quiet one allows, would fail by chance.
const grace = time.Second

// A violation is a broken rule, with the lines of the history that show it.
type violation struct {
	Rule  string
	Lines []string
}

func (v violation) String() string { return v.Rule + "\n    " + strings.Join(v.Lines, "\n    ") }

// An account is what the history says about one nonce.
type account struct {
	runs      int // of the tool
	accepted  int // answers that the tool ran with
	stopped   int // runs that a cancellation has ended
	answers   int
	maybe     int // attempts that may have run
	duplicate int // deliveries by the proxy beyond the first
	open      int // attempts in progress
	again     bool
	attempts  []*attempt
}

// A chain is what the history says about a login and all that follows from it, or about the answers
// to one question.
type chain struct {
	results map[string]map[string]bool // by what was used: what it was exchanged for
	unsure  bool                       // something may have been used without an answer, or was used twice
	uses    []singleUse
}

// A checker judges a history, batch by batch.
type checker struct {
	accounts map[string]*account
	chains   map[string]*chain
	streams  map[string]*streamAccount
	touched  map[string]bool // nonces whose account has changed
	previous []*attempt      // of the batch before: their last notifications may arrive late
	before   time.Duration   // the time of that batch

	inProgress []*account   // at the end of the batch before
	duplicates []duplicate  // that a use may still be in progress for
	reported   map[int]bool // attempts that did not end

	shared bool          // several processes share a store
	wipes  []fault       // in which the store lost its data
	risks  []fault       // in which the store may have lost the last writes
	recent []fault       // of the last minute
	late   time.Duration // of the batch before
	stall  time.Duration // when the machine last let this process wait for long
}

// A streamAccount is what was received on one stream, by kind.
type streamAccount struct {
	last  map[string]int64
	count map[string]int
	notes []note
}

func newChecker() *checker {
	return &checker{
		accounts: map[string]*account{}, chains: map[string]*chain{}, streams: map[string]*streamAccount{},
		touched: map[string]bool{}, reported: map[int]bool{},
	}
}

// check returns the rules that the next batch of the history breaks.
func (c *checker) check(b batch) (broken []violation) {
	c.recent = slices.DeleteFunc(append(c.recent, b.Faults...), func(f fault) bool { return f.End < b.Now-time.Minute })
	for _, f := range b.Faults {
		if f.Kind == wipeFault {
			c.wipes = append(c.wipes, f)
		}
	}
	c.risks = b.Risks
	broken = slices.Clone(b.Direct)
	broken = append(broken, c.checkEnds(b)...)
	broken = append(broken, c.checkNotes(b)...)
	broken = append(broken, c.checkRuns(b)...)
	broken = append(broken, c.checkUses(b)...)
	broken = append(broken, c.checkShared(b)...)
	for i := range broken {
		for _, f := range b.Faults {
			broken[i].Lines = append(broken[i].Lines, f.String())
		}
	}
	return broken
}

// checkEnds checks that every attempt ended in time, in an answer or in a typed error, and that
// each answer was made for its caller.
func (c *checker) checkEnds(b batch) (broken []violation) {
	add := func(rule string, a *attempt) {
		broken = append(broken, violation{rule, []string{a.String()}})
	}
	for _, a := range b.Attempts {
		if a.End > a.Deadline+grace+a.Late {
			add(fmt.Sprintf("liveness: a call ended %v after its deadline", a.End-a.Deadline), a)
		}
		switch {
		case a.Outcome == untyped || a.Outcome == "":
			add("lost: a call ended without an answer and without a typed error", a)
		case a.Outcome == answered && a.Got != a.Want:
			add("crossed: a call got the answer of another", a)
		}
	}
	for _, a := range b.Open {
		if b.Now > a.Deadline+grace+a.Late && !c.reported[a.ID] {
			c.reported[a.ID] = true
			add(fmt.Sprintf("liveness: a call has not ended %v after its deadline", b.Now-a.Deadline), &a)
		}
	}
	return broken
}

// counts reports whether an attempt can run a tool from its start: not if it answers a question or
// waits for a task that exists.
func (a *attempt) counts() bool { return a.Nonce != "" && a.Op != opCollect && a.Op != opAnswer }

const (
	opCollect = "collect"
	opAnswer  = "raw answer"
)

func (c *checker) account(nonce string) *account {
	a := c.accounts[nonce]
	if a == nil {
		a = &account{}
		c.accounts[nonce] = a
	}
	c.touched[nonce] = true
	return a
}

// checkRuns checks that what was answered has run, and that nothing ran more often than its
// attempts and the duplicates of the proxy allow.
func (c *checker) checkRuns(b batch) (broken []violation) {
	for _, a := range c.inProgress {
		a.open = 0
	}
	c.inProgress = nil
	for i := range b.Open {
		if !b.Open[i].counts() {
			continue
		}
		a := c.account(b.Open[i].Nonce)
		a.open++
		c.inProgress = append(c.inProgress, a)
	}
	for _, a := range b.Attempts {
		if !a.counts() {
			continue
		}
		of := c.account(a.Nonce)
		of.attempts = append(of.attempts, a)
		of.again = of.again || a.Op == "again"
		switch a.Outcome {
		case answered:
			of.answers++
		case failed, unknown:
			of.maybe++
		}
	}
	for _, body := range b.Duplicates {
		if nonce := nonceIn(body); nonce != "" {
			c.account(nonce).duplicate++
		}
	}
	for _, line := range b.Runs {
		switch event, nonce, _ := strings.Cut(line, " "); event {
		case "run":
			c.account(nonce).runs++
		case "answered":
			c.account(nonce).accepted++
		case "stopped":
			c.account(nonce).stopped++
		}
	}
	for nonce := range c.touched {
		a := c.accounts[nonce]
		if a.open > 0 {
			continue // judged when it has ended
		}
		delete(c.touched, nonce)
		if rule := a.judge(); rule != "" && !(a.accepted > a.runs && c.mayForget(a.begin(), b.Now)) {
			broken = append(broken, a.violation(rule, nonce, b))
		}
	}
	for nonce, a := range c.accounts {
		if n := len(a.attempts); n > 0 && a.open == 0 && a.attempts[n-1].End < b.Now-accountTime {
			delete(c.accounts, nonce)
		}
	}
	return broken
}

// accountTime is how long the account of a call is kept: a task may run again until it expires. A run
// after that is one without a call.
const accountTime = taskTTL + time.Minute

// judge returns the rule that an account breaks, or "".
func (a *account) judge() string {
	asked := slices.ContainsFunc(a.attempts, func(t *attempt) bool { return t.Op == "ask" && t.Outcome == answered })
	runs := slices.ContainsFunc(a.attempts, func(t *attempt) bool {
		return t.Outcome == answered && slices.Contains(journaled, t.Op)
	})
	switch allowed := a.answers + a.maybe + a.duplicate; {
	case runs && a.runs == 0:
		return "lost: an answered call is not in the journal"
	case asked && a.accepted == 0:
		return "lost: the answer to a question was acknowledged but is not in the journal"
	case a.runs > allowed && !a.again:
		return fmt.Sprintf("doubled: a call ran %d times, at most %d are allowed (%d answers, %d that may have run, "+
			"%d deliveries by the proxy)", a.runs, allowed, a.answers, a.maybe, a.duplicate)
	case a.accepted > a.runs:
		return fmt.Sprintf("doubled: %d answers were accepted for %d questions", a.accepted, a.runs)
	}
	return ""
}

// journaled are the operations whose answer is given after the line in the journal.
var journaled = []string{"echo", "append", "slow", "stream", "ask", "work", "again"}

func (a *account) violation(rule, nonce string, b batch) violation {
	v := violation{Rule: rule}
	for _, t := range a.attempts {
		v.Lines = append(v.Lines, t.String())
	}
	v.Lines = append(v.Lines, fmt.Sprintf("journal of %s: %d runs, %d accepted answers", nonce, a.runs, a.accepted))
	for _, body := range b.Duplicates {
		if strings.Contains(body, nonce) {
			v.Lines = append(v.Lines, "delivered twice: "+body)
		}
	}
	return v
}

// nonceIn returns the nonce in a request. All nonces have the form n<round>-<worker>-<number>.
func nonceIn(body string) string {
	_, after, found := strings.Cut(body, `"nonce":"`)
	nonce, _, closed := strings.Cut(after, `"`)
	if !found || !closed {
		return ""
	}
	return nonce
}

// checkNotes checks the order and the receivers of notifications.
func (c *checker) checkNotes(b batch) (broken []violation) {
	for _, n := range b.Notes {
		s := c.streams[n.Stream]
		if s == nil {
			s = &streamAccount{last: map[string]int64{}, count: map[string]int{}}
			c.streams[n.Stream] = s
		}
		lines := []string{n.String()}
		if len(s.notes) > 0 {
			lines = append([]string{s.notes[len(s.notes)-1].String()}, lines...)
		}
		calls := n.Kind == "log" || n.Kind == "progress"
		switch last := s.last[n.Kind]; {
		case n.For != n.Owner:
			broken = append(broken, violation{"crossed: a notification reached another principal", lines})
		case n.N < last, calls && n.N == last:
			broken = append(broken, violation{"order: the numbers of a stream do not rise", lines})
		case n.Kind == "progress" && n.Late:
			broken = append(broken, violation{"order: progress after the result", lines})
		}
		s.last[n.Kind] = max(s.last[n.Kind], n.N)
		s.count[n.Kind]++
		s.notes = append(s.notes, n)
	}
	for _, a := range c.previous {
		broken = append(broken, c.checkStream(a)...)
	}
	c.previous = b.Attempts
	defer func() { c.before = b.Now }()
	for name, s := range c.streams {
		if s.notes[len(s.notes)-1].At < c.before-time.Minute {
			delete(c.streams, name) // of a subscription
		}
	}
	return broken
}

// checkStream checks that an answered call has sent all of its log messages: none was lost where
// its stream was resumed. Then it forgets the stream.
func (c *checker) checkStream(a *attempt) (broken []violation) {
	if a.Op != "stream" {
		return nil
	}
	s := c.streams[a.Nonce]
	delete(c.streams, a.Nonce)
	if a.Outcome != answered {
		return nil
	}
	got := 0
	var lines []string
	if s != nil {
		got = s.count["log"]
		for _, n := range s.notes {
			lines = append(lines, n.String())
		}
	}
	if got != streamNotes {
		rule := fmt.Sprintf("order: an answered call has %d log messages, want %d: a gap without an error", got,
			streamNotes)
		broken = append(broken, violation{rule, append(lines, a.String())})
	}
	return broken
}

// A duplicate is the body of a request that the proxy delivered twice.
type duplicate struct {
	at   time.Duration // or a little earlier
	body string
}

// useTime is longer than any use of a secret takes.
const useTime = 30 * time.Second

// checkUses checks that what may be used once was accepted once, and that what was granted is
// accepted.
func (c *checker) checkUses(b batch) (broken []violation) {
	for _, body := range b.Duplicates {
		c.duplicates = append(c.duplicates, duplicate{b.Now, body})
	}
	c.duplicates = slices.DeleteFunc(c.duplicates, func(d duplicate) bool { return d.at < b.Now-useTime })
	slices.SortFunc(b.Uses, func(x, y singleUse) int { return int(x.End - y.End) })
	for _, u := range b.Uses {
		k := c.chains[u.Chain]
		if k == nil {
			k = &chain{results: map[string]map[string]bool{}}
			c.chains[u.Chain] = k
		}
		k.uses = append(k.uses, u)
		if slices.ContainsFunc(c.duplicates, k.isIn) {
			k.unsure = true
		}
		if rule := k.judge(u); rule != "" && !c.mayForget(k.uses[0].Begin-useTime, u.End) {
			v := violation{Rule: rule}
			for _, u := range k.uses {
				v.Lines = append(v.Lines, u.String())
			}
			broken = append(broken, v)
		}
	}
	for name, k := range c.chains { // a chain takes a few seconds
		if k.uses[len(k.uses)-1].End < b.Now-time.Minute {
			delete(c.chains, name)
		}
	}
	return broken
}

// isIn reports whether a request uses a secret of the chain.
func (k *chain) isIn(d duplicate) bool {
	return slices.ContainsFunc(k.uses, func(u singleUse) bool { return strings.Contains(d.body, u.Secret) })
}

// judge adds a use to the chain and returns the rule that it breaks, or "".
func (k *chain) judge(u singleUse) string {
	if u.Again || u.Outcome == unknown {
		k.unsure = true
	}
	switch u.Outcome {
	case failed:
		if !k.unsure {
			return "lost: a granted " + u.Kind + " is refused at its first use"
		}
	case answered:
		if k.results[u.Secret] == nil {
			k.results[u.Secret] = map[string]bool{}
		}
		k.results[u.Secret][u.Result] = true
		if len(k.results[u.Secret]) > 1 {
			return "doubled: one " + u.Kind + " was accepted twice"
		}
	}
	return ""
}
