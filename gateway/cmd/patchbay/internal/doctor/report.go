package doctor

import (
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// A Report contains the checks of a run, in their order.
type Report struct {
	Target string  `json:"target"` // without secrets
	Checks []Check `json:"checks"`
}

// Failed returns the names of the failed checks.
func (r *Report) Failed() (names []string) {
	for _, c := range r.Checks {
		if c.Status == Fail {
			names = append(names, c.Name)
		}
	}
	return names
}

// ExitCode returns the exit code of a report: exit.Unreachable for a failed check of the connection,
// else exit.Auth for a failed check of the login, else exit.OK.
func (r *Report) ExitCode() int {
	code := exit.OK
	for _, c := range r.Checks {
		switch {
		case c.Status != Fail:
		case !c.ofLogin:
			return exit.Unreachable
		default:
			code = exit.Auth
		}
	}
	return code
}

// Text returns the report as text, for an issue or a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	var w Writer
	b.WriteString(r.Target + "\n")
	for _, c := range r.Checks {
		b.WriteString(w.Check(c))
	}
	b.WriteString(w.End(r))
	return b.String()
}

// A Writer formats checks as they end. Consecutive skipped checks with the same reason share a line,
// so it returns them with the next check. The zero value is ready to use.
type Writer struct {
	skipped []string
	reason  string
}

// nameWidth is the width of the column of names, in characters.
const nameWidth = len("server-metadata")

// Check returns the lines of a check, and of skipped checks before it.
func (w *Writer) Check(c Check) string {
	if c.Status == Skipped {
		text := ""
		if reason := strings.Join(c.Seen, ", "); reason != w.reason {
			text, w.reason = w.flush(), reason
		}
		w.skipped = append(w.skipped, c.Name)
		return text
	}
	word := map[Status]string{OK: "ok", Warn: "warn", Fail: "FAIL"}[c.Status]
	lines := c.Seen
	if len(lines) == 0 {
		lines = []string{c.Action}
	}
	var b strings.Builder
	b.WriteString(w.flush())
	fmt.Fprintf(&b, "  %-4s  %-*s  %s\n", word, nameWidth, c.Name, lines[0])
	hang := strings.Repeat(" ", nameWidth+10)
	for _, line := range lines[1:] {
		b.WriteString(hang + line + "\n")
	}
	if c.Next != "" {
		b.WriteString(hang + "-> " + c.Next + "\n")
	}
	return b.String()
}

func (w *Writer) flush() string {
	if w.skipped == nil {
		return ""
	}
	text := fmt.Sprintf("  --    %s  skipped: %s\n", strings.Join(w.skipped, ", "), w.reason)
	w.skipped, w.reason = nil, ""
	return text
}

// End returns the last lines of a report.
func (w *Writer) End(r *Report) string {
	failed := r.Failed()
	if failed == nil {
		return w.flush() + "no check failed\n"
	}
	return w.flush() + fmt.Sprintf("%d of %d checks failed: %s\n", len(failed), len(r.Checks),
		strings.Join(failed, ", "))
}
