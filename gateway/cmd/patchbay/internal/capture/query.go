package capture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Query selects exchanges. Nil selects all. Its terms are separated by spaces and must all match:
//
//	method:tools/call status:error dur:>500ms -caller:ann "two words"
//
// A term is FIELD:VALUE, or only VALUE for the field text; a hyphen before it means not. A value
// with spaces is in double quotes. Values match a part of the field in any case; the field text is
// the target and all frames that are held. The values of from and to are times, such as 12:01:07
// for a time of this day or 2026-11-29T12:01:07Z: an exchange matches if it is in progress at or
// after from, and at or before to. dur:>V and dur:<V compare durations, status:>V and status:<V
// the code.
type Query struct {
	terms []term
	only  func(x *Exchange) bool // see Only
}

// Only limits the query to exchanges for which allows returns true. Nil allows all exchanges.
func (q *Query) Only(allows func(x *Exchange) bool) { q.only = allows }

type term struct {
	field string
	not   bool
	op    byte   // ':', '>' or '<'
	value string // in lower case
	limit float64
	time  time.Time
}

// fields are the fields of queries.
var fields = []string{"method", "server", "caller", "status", "dur", "hop", "trace", "from", "to", "text"}

const (
	// maxQuery and maxTerms bound a query, which is part of a URL.
	maxQuery, maxTerms = 1000, 20
)

// A QueryError reports an invalid query.
type QueryError struct {
	Position int    // of the error, in characters from 1
	Problem  string // with the values that are allowed
}

// Error returns the position and the problem.
func (e *QueryError) Error() string { return fmt.Sprintf("position %d: %s", e.Position, e.Problem) }

// ParseQuery parses a query. The error is a [*QueryError].
func ParseQuery(text string) (*Query, error) {
	q := &Query{}
	fail := func(at int, format string, args ...any) error {
		return &QueryError{utf8.RuneCountInString(text[:at]) + 1, fmt.Sprintf(format, args...)}
	}
	if len(text) > maxQuery {
		return nil, fail(0, "a query has at most %d bytes", maxQuery)
	}
	for at := 0; ; {
		at += len(text[at:]) - len(strings.TrimLeft(text[at:], " \t"))
		if at == len(text) {
			return q, nil
		}
		if len(q.terms) == maxTerms {
			return nil, fail(at, "a query has at most %d terms", maxTerms)
		}
		t := term{field: "text", op: ':'}
		if text[at] == '-' {
			t.not = true
			at++
		}
		if name, _, ok := strings.Cut(text[at:], ":"); ok && !strings.ContainsAny(name, "\" \t") {
			if !slices.Contains(fields, name) {
				return nil, fail(at, "unknown field %q: must be %s, or a text in quotes", bounded(name, maxText),
					strings.Join(fields, ", "))
			}
			t.field, at = name, at+len(name)+1
			if at < len(text) && (text[at] == '>' || text[at] == '<') {
				t.op = text[at]
				at++
			}
		}
		value, end := valueAt(text, at)
		switch {
		case end < 0:
			return nil, fail(at, "the quote is not closed: end the value with \"")
		case value == "":
			return nil, fail(at, "want a value for %s", t.field)
		}
		t.value = strings.ToLower(value)
		if problem := t.check(); problem != "" {
			return nil, fail(at, "%s", problem)
		}
		q.terms, at = append(q.terms, t), end
	}
}

// valueAt returns the value at an offset and its end, which is -1 if a quote is not closed.
func valueAt(text string, at int) (value string, end int) {
	if !strings.HasPrefix(text[at:], `"`) {
		if n := strings.IndexAny(text[at:], " \t"); n >= 0 {
			return text[at : at+n], at + n
		}
		return text[at:], len(text)
	}
	n := strings.IndexByte(text[at+1:], '"')
	if n < 0 {
		return "", -1
	}
	return text[at+1 : at+1+n], at + n + 2
}

// check completes a term. It returns the problem of an invalid term, or "".
func (t *term) check() string {
	switch {
	case t.field == "dur":
		d, err := time.ParseDuration(t.value)
		if err != nil || d < 0 || t.op == ':' {
			return fmt.Sprintf("invalid duration %q: want such as dur:>500ms or dur:<2s", t.value)
		}
		t.limit = float64(d)
	case t.op == ':' && (t.field == "from" || t.field == "to"):
		var ok bool
		if t.time, ok = timeOf(t.value, time.Now()); !ok {
			return fmt.Sprintf("invalid time %q: must be a time of this day such as 12:01:07, or as in RFC 3339 "+
				"such as 2026-11-29T12:01:07Z", t.value)
		}
	case t.op == ':':
		hops := []Hop{Downstream, Upstream, HTTP, OAuth, Process}
		if t.field == "hop" && !slices.Contains(hops, Hop(t.value)) {
			return fmt.Sprintf("unknown hop %q: must be one of %v", t.value, hops)
		}
	case t.field == "status":
		code, err := strconv.Atoi(t.value)
		if err != nil {
			return fmt.Sprintf("invalid code %q: want a number such as status:>399", t.value)
		}
		t.limit = float64(code)
	default:
		return fmt.Sprintf("%s cannot be compared with %c: only dur and status can", t.field, t.op)
	}
	return ""
}

// timeOf returns the time of a text, in which a time of day is a time of the day of now.
func timeOf(text string, now time.Time) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339, strings.ToUpper(text))
	if err == nil {
		return t, true
	}
	day := now.Local().Format(time.DateOnly) + " "
	for _, format := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if t, err = time.ParseInLocation(format, day+text, time.Local); err == nil {
			return t, true
		}
	}
	return t, false
}

// Range returns the times of the terms from and to; a time without its term is unchanged.
func (q *Query) Range(from, to time.Time) (begin, end time.Time) {
	for i := 0; q != nil && i < len(q.terms); i++ {
		switch t := &q.terms[i]; {
		case t.field == "from" && !t.not:
			from = t.time
		case t.field == "to" && !t.not:
			to = t.time
		}
	}
	return from, to
}

// readsFrames reports whether the query depends on frames.
func (q *Query) readsFrames() bool {
	return q != nil && slices.ContainsFunc(q.terms, func(t term) bool { return t.field == "text" })
}

// matches reports whether an exchange with its frames matches all terms.
func (q *Query) matches(x *Exchange, frames []Frame) bool {
	if q == nil {
		return true
	}
	if q.only != nil && !q.only(x) {
		return false
	}
	return !slices.ContainsFunc(q.terms, func(t term) bool { return t.matches(x, frames) == t.not })
}

func (t *term) matches(x *Exchange, frames []Frame) bool {
	switch t.field {
	case "method":
		return t.isIn(x.Method)
	case "server":
		return t.isIn(x.Server)
	case "caller":
		return t.isIn(x.Caller)
	case "hop":
		return string(x.Hop) == t.value
	case "trace":
		return t.isIn(x.Trace)
	case "from":
		return !x.IsOver() || !x.Queued.Add(x.End).Before(t.time)
	case "to":
		return !x.Queued.After(t.time)
	case "dur":
		d := x.End
		if !x.IsOver() {
			d = time.Since(x.Queued)
		}
		return t.compare(float64(d))
	case "status":
		if t.op == ':' {
			return t.isIn(x.Status) || t.value == "error" && x.IsError()
		}
		_, code, _ := strings.Cut(x.Status, " ")
		n, err := strconv.Atoi(code)
		return err == nil && t.compare(float64(n))
	}
	return t.isIn(x.Target) || slices.ContainsFunc(frames, func(f Frame) bool { return t.isIn(f.Text) })
}

func (t *term) compare(n float64) bool {
	return t.op == '>' && n > t.limit || t.op == '<' && n < t.limit
}

func (t *term) isIn(text string) bool { return strings.Contains(strings.ToLower(text), t.value) }
