// Package doctor explains why a server does not connect. It runs checks in the order in which a
// client connects, each on fresh connections, and reports the action, the observation and the next
// step of each check as it ends.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// A Status is the result of a check.
type Status string

// The results of a check.
const (
	OK      Status = "ok"
	Warn    Status = "warn"    // the server connects, but some clients or later requests may fail
	Fail    Status = "fail"    // the reason why the server does not connect
	Skipped Status = "skipped" // not applicable, or a check that it depends on failed
)

// A Check is a finished check. Its texts contain no secrets that the target configures, and no
// control, bidirectional or invisible characters.
type Check struct {
	Name   string   `json:"name"`
	Status Status   `json:"status"`
	Action string   `json:"action"`        // taken by the check
	Seen   []string `json:"seen"`          // the observations, a line each
	Next   string   `json:"next,omitzero"` // the next step; empty if there is none
	Ms     float64  `json:"ms"`

	ofLogin bool // a failure is a failure of the login
	// NeedsLogin reports that the check waits for a run with Options.Login.
	NeedsLogin bool `json:"-"`
}

// Options configures [Run].
type Options struct {
	Dialer *connect.Dialer // makes the requests, with the flags of the command line
	// Login lets the user log in if the server requires it. Default: no login begins.
	Login bool
	// Open opens the login page. Default: the user's browser opens, or the user opens the page.
	Open func(ctx context.Context, page string) error
	// LoginShell runs the user's login shell for its PATH if a program is not found.
	LoginShell bool
	// Stderr is called with the last lines of standard error whenever the command writes a line. Stderr
	// must be safe for concurrent use with Begin and End. Default: only the report contains the lines.
	Stderr func(lines []string)
	// Begin is called when a check begins. Default: it is not reported.
	Begin func(name, action string)
	// End is called with each check when it ended. Default: checks are only in the report.
	End func(c Check)
}

const (
	// maxSeen limits the observations of a check, and maxLine each of them, in characters: a report
	// is for reading and for an issue.
	maxSeen, maxLine = 24, 500
)

// Run checks the connection to a target, which must not be a host of several servers. The user must
// trust the command of the target. Begin and End are called by the calling goroutine. Run returns
// early when ctx ends.
func Run(ctx context.Context, t *target.Target, o *Options) *Report {
	r := &run{Options: o, ctx: ctx, target: t, blocked: map[string]string{}}
	r.secrets.addTarget(t)
	r.report = &Report{Target: Title(t)}
	if t.URL != "" {
		(&web{run: r}).checks()
	} else {
		(&process{run: r}).checks()
	}
	return r.report
}

// Title returns the URL or the command line of a target without values that are probably secret.
func Title(t *target.Target) string {
	var s secrets
	s.addTarget(t)
	if t.URL != "" {
		return s.clean(target.PublicURL(t.URL), maxLine)
	}
	return s.clean((&target.Target{Command: target.PublicArguments(t.Command)}).String(), maxLine)
}

// Hint returns the advice to examine a target after an error with an exit code, or "". t may be
// nil.
func Hint(code int, t *target.Target, config string) string {
	const hint = "To find the reason: patchbay doctor "
	switch {
	case code != exit.Unreachable || t == nil || t.Host != nil:
		return ""
	case t.From == "" && t.Command != nil:
		return hint + "-- " + t.String()
	}
	return hint + t.Argument(config)
}

// argument returns the target as an argument of a command line, without secrets.
func (r *run) argument() string {
	if r.target.From == "" {
		return r.report.Target
	}
	return r.target.Argument(r.Dialer.Flags.Config)
}

// A run is one run of the checks of a target.
type run struct {
	*Options
	ctx      context.Context //nolint:containedctx // of the whole run
	target   *target.Target
	secrets  secrets
	report   *Report
	attempts *attempts         // of the last negotiation
	blocked  map[string]string // the failed check that a failed or skipped check depends on, by its name
}

// check runs a check, unless one of the checks in needs failed, and reports it.
func (r *run) check(name, action, needs string, f func(ctx context.Context, c *Check)) {
	if r.ctx.Err() != nil {
		return
	}
	c := Check{Name: name, Status: OK, Action: action}
	if r.Begin != nil {
		r.Begin(name, action)
	}
	began := time.Now()
	failed := ""
	for need := range strings.FieldsSeq(needs) {
		failed = cmp.Or(failed, r.blocked[need])
	}
	if failed != "" {
		c.skip(failed + " failed")
	} else if f(r.ctx, &c); c.Status == Fail {
		failed = name
	}
	if c.Ms == 0 {
		c.Ms = term.Milliseconds(time.Since(began))
	}
	if r.ctx.Err() != nil {
		return // its result is that of an interrupted check
	}
	r.blocked[name] = failed
	c.Seen = c.Seen[:min(len(c.Seen), maxSeen)]
	for i, line := range c.Seen {
		c.Seen[i] = r.secrets.clean(line, maxLine)
	}
	c.Action, c.Next = r.secrets.clean(c.Action, maxLine), r.secrets.clean(c.Next, maxLine)
	r.report.Checks = append(r.report.Checks, c)
	if r.End != nil {
		r.End(c)
	}
}

// see adds an observation.
func (c *Check) see(format string, args ...any) {
	c.Seen = append(c.Seen, fmt.Sprintf(format, args...))
}

// end sets the result and the next step of a check.
func (c *Check) end(s Status, next string, args ...any) {
	c.Status, c.Next = s, fmt.Sprintf(next, args...)
}

// rounded returns a duration for people.
func rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// skip ends a check that does not apply. Checks that depend on it still run.
func (c *Check) skip(reason string) { c.Status, c.Seen = Skipped, []string{reason} }
